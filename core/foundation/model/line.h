/* SPDX-License-Identifier: Apache-2.0
 *
 * A line of protocol LL has 16 bytes, {data, flag, data, flag}. An aligned half of 8 bytes is
 * stored, sent and loaded whole, so the data arrive with the flag. Valid as C11 and as CUDA.
 */
#ifndef GYRE_MODEL_LINE_H
#define GYRE_MODEL_LINE_H

#include "core/foundation/model/types.h"

#include <stdbool.h>
#include <stdint.h>

#define GYRE_LL_LINE_BYTES 16
#define GYRE_LL_DATA_BYTES 8

/* 31 bits of the slot's number, never 0, so fresh memory never matches. Flags repeat after 2^31
 * slots; every 2^30 slots the sender writes all lines, so no stale flag equals a new one. */
#define GYRE_LL_CLEAN_PERIOD (1U << 30)

static GYRE_HOST_DEVICE inline uint32_t gyre_ll_flag(uint64_t slot_number)
{
    return (uint32_t)slot_number | 0x80000000U;
}

static GYRE_HOST_DEVICE inline bool gyre_ll_cleans(uint64_t slot_number, uint32_t depth)
{
    return ((uint32_t)slot_number & (GYRE_LL_CLEAN_PERIOD - 1)) < depth;
}

/** At least one between hosts, to show an empty slot. GPU kernels announce and poll none for it. */
static GYRE_HOST_DEVICE inline uint32_t gyre_ll_lines(uint64_t n_bytes)
{
    return n_bytes == 0 ? 1 : (uint32_t)((n_bytes + GYRE_LL_DATA_BYTES - 1) / GYRE_LL_DATA_BYTES);
}

/** Tells the sending proxy of a slot, with a flag like half of a line. @n_lines: 0 = empty. */
static GYRE_HOST_DEVICE inline uint64_t gyre_ll_announcement(uint64_t slot_number, uint32_t n_lines)
{
    return (uint64_t)gyre_ll_flag(slot_number) << 32 | n_lines;
}

static inline bool gyre_ll_is_announced(uint64_t announcement, uint64_t slot_number)
{
    return announcement >> 32 == gyre_ll_flag(slot_number);
}

#endif
