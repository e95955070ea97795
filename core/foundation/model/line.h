/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines of protocol LL: 16 bytes, {data, flag, data, flag}, 4 bytes each. An aligned half of 8
 * bytes is stored, sent and loaded as a whole, so its data have arrived when its flag has. Valid as
 * C11 and as CUDA.
 */
#ifndef GYRE_MODEL_LINE_H
#define GYRE_MODEL_LINE_H

#include "core/foundation/model/types.h"

#include <stdbool.h>
#include <stdint.h>

#define GYRE_LL_LINE_BYTES 16
#define GYRE_LL_DATA_BYTES 8

/* A flag of LL is 31 bits of the slot's number, and never 0, so fresh memory never matches. Once in
 * 2^30 slots the sender writes every line of the slot, so no line is older than that, and a stale
 * flag never equals a new one, because flags repeat after 2^31 slots. */
#define GYRE_LL_CLEAN_PERIOD (1U << 30)

static GYRE_HOST_DEVICE inline uint32_t gyre_ll_flag(uint64_t slot_number)
{
    return (uint32_t)slot_number | 0x80000000U;
}

static GYRE_HOST_DEVICE inline bool gyre_ll_cleans(uint64_t slot_number, uint32_t depth)
{
    return ((uint32_t)slot_number & (GYRE_LL_CLEAN_PERIOD - 1)) < depth;
}

/** On a connection between hosts: at least one, so that an empty slot is seen, too. GPU kernels
 * announce and poll none for an empty slot. */
static GYRE_HOST_DEVICE inline uint32_t gyre_ll_lines(uint64_t n_bytes)
{
    return n_bytes == 0 ? 1 : (uint32_t)((n_bytes + GYRE_LL_DATA_BYTES - 1) / GYRE_LL_DATA_BYTES);
}

/** Tells the sending proxy of a slot of lines. It has a flag, as half of a line has. @n_lines: 0 =
 * the slot is empty. */
static GYRE_HOST_DEVICE inline uint64_t gyre_ll_announcement(uint64_t slot_number, uint32_t n_lines)
{
    return (uint64_t)gyre_ll_flag(slot_number) << 32 | n_lines;
}

static inline bool gyre_ll_is_announced(uint64_t announcement, uint64_t slot_number)
{
    return announcement >> 32 == gyre_ll_flag(slot_number);
}

#endif
