/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_BASE_UTIL_H
#define GYRE_BASE_UTIL_H

#include "core/foundation/base/status.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define GYRE_ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define GYRE_CACHE_LINE_BYTES    64
#define GYRE_SECOND_NS           1000000000ULL

/** Of a pointer variable: its memory is freed when the variable's block ends. */
#define GYRE_FREED __attribute__((cleanup(gyre_free_at_end)))

static inline void gyre_free_at_end(void *variable)
{
    void *memory;
    memcpy(&memory, variable, sizeof(memory));
    free(memory);
}

/** @array: address of an array's pointer, from malloc(). False = no memory, or
 * @n is 2^31 or more, and nothing changed. */
bool gyre_grow(void *array, uint32_t *capacity, uint64_t n, size_t item_bytes);

/** CLOCK_MONOTONIC. */
uint64_t gyre_now_ns(void);

static inline uint64_t gyre_div_round_up(uint64_t value, uint64_t unit)
{
    return value / unit + (value % unit != 0);
}

static inline uint64_t gyre_round_up(uint64_t value, uint64_t unit)
{
    return gyre_div_round_up(value, unit) * unit;
}

static inline uint64_t gyre_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint32_t gyre_min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint64_t gyre_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint32_t gyre_clamp_u32(uint64_t value, uint32_t low, uint32_t high)
{
    return value < low ? low : value > high ? high : (uint32_t)value;
}

#define GYRE_HASH_INIT 0xcbf29ce484222325ULL

/** 64-bit FNV-1a; start from GYRE_HASH_INIT. */
uint64_t gyre_hash(uint64_t hash, const void *bytes, size_t n_bytes);

/** Of hostname and boot id, or of a non-empty `host_id`. Errors: SYSTEM (no descriptor: another
 * hash would look like another host). */
gyre_status gyre_host_hash(const char *host_id, uint64_t *hash_out);

/** Adds the kernel's boot id, if it has one. Errors: SYSTEM (no descriptors or memory). */
gyre_status gyre_boot_hash(uint64_t hash, uint64_t *hash_out);

gyre_status gyre_random_bytes(void *bytes, size_t n_bytes);

/** Levenshtein's; strings are cut at 63 bytes. */
unsigned gyre_edit_distance(const char *a, const char *b);

/** Skips blanks and empty words of "a, b,c". False at the end. @at: starts as the list. @word_out:
 * not NUL-terminated. */
bool gyre_list_next(const char **at, const char **word_out, size_t *n_bytes_out);

/** memmove() in short pieces where `rep movsb` is slow: AMD Zen 3 and 4 (glibc before 2.39), if the
 * target lies 1 to 31 bytes behind the source within a page, as slots do behind malloc's memory. */
void gyre_copy(void *to, const void *from, size_t n_bytes);

#endif
