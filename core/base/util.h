/* SPDX-License-Identifier: Apache-2.0
 *
 * Small things that every folder needs: clocks, rounding, hashing, host identity.
 */
#ifndef GYRE_BASE_UTIL_H
#define GYRE_BASE_UTIL_H

#include "core/base/status.h"

#define GYRE_ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define GYRE_CACHE_LINE_BYTES    64

/** gyre_now_ns - CLOCK_MONOTONIC. */
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

/** gyre_hash - continue a 64-bit FNV-1a over n bytes; start from GYRE_HASH_INIT. */
uint64_t gyre_hash(uint64_t hash, const void *bytes, size_t n_bytes);

/** gyre_host_hash - identifies this host: hostname and boot id, or `host_id` (GYRE_HOSTID) when it
 * is not NULL or empty, so that one machine can stand for several hosts. Where the kernel has no
 * boot id, the hostname alone.
 * Errors: SYSTEM (no file descriptor is left: a rank must not look like another host for that). */
gyre_status gyre_host_hash(const char *host_id, uint64_t *hash_out);

/** gyre_boot_hash - add the id of the running kernel's boot to a hash. Errors: SYSTEM when it
 * cannot be read for want of descriptors or memory; a kernel without one adds nothing. */
gyre_status gyre_boot_hash(uint64_t hash, uint64_t *hash_out);

/** gyre_random_bytes - from the kernel's generator. Errors: SYSTEM. */
gyre_status gyre_random_bytes(void *bytes, size_t n_bytes);

/** gyre_edit_distance - Levenshtein, for "did you mean"; strings are cut at 63 bytes. */
unsigned gyre_edit_distance(const char *a, const char *b);

#endif
