/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/calls/calls.h"

#include "tests/fuzz/run.h"

#include <stdlib.h>
#include <string.h>

/* A round has at most FUZZ_MAX_CALLS buffers in each arena, so it always fits. What does not fit
 * into a slot's part of the windows goes to the arena. */
enum { N_PART_REGIONS = 12 };

void fuzz_place_open(struct fuzz_rank *rank)
{
    const size_t region = (size_t)fuzz_options.max_bytes + FUZZ_SLACK_BYTES;
    const gyre_device_kind kind = rank->device->kind;
    void *memory[2];
    rank->arena_bytes = FUZZ_MAX_CALLS * region;
    rank->part_bytes = N_PART_REGIONS * region;
    FUZZ_TRY(rank, gyre_mem_alloc(&memory[0], rank->arena_bytes, kind, rank->ordinal));
    FUZZ_TRY(rank, gyre_mem_alloc(&memory[1], rank->arena_bytes + FUZZ_N_SLOTS * rank->part_bytes,
                                  kind, rank->ordinal));
    rank->send = memory[0];
    rank->recv = memory[1];
    rank->seen = malloc(region);
    rank->expected = malloc(region);
    if (rank->seen == NULL || rank->expected == NULL)
        fuzz_fail(rank, FUZZ_FAILED, "malloc of %zu bytes", region);
}

void fuzz_place_close(struct fuzz_rank *rank)
{
    FUZZ_TRY(rank, gyre_mem_free(rank->send, rank->device->kind));
    FUZZ_TRY(rank, gyre_mem_free(rank->recv, rank->device->kind));
    free(rank->seen);
    free(rank->expected);
}

uint8_t *fuzz_place_window(const struct fuzz_rank *rank, size_t *n_bytes_out)
{
    *n_bytes_out = FUZZ_N_SLOTS * rank->part_bytes;
    return rank->recv + rank->arena_bytes;
}

void fuzz_place_nothing(struct fuzz_rank *rank)
{
    rank->send_used = rank->recv_used = 0;
    memset(rank->part_used, 0, sizeof(rank->part_used));
}

/* Three times in four at any element of 64 bytes, else right after the guard. */
static struct fuzz_region take(size_t *used, size_t n_bytes, size_t elem_bytes,
                               struct fuzz_rng *rng)
{
    const size_t first = (*used + 255) / 256 * 256;
    const uint64_t n_places = fuzz_once_in(rng, 4) ? 1 : 64 / elem_bytes;
    const size_t data = first + FUZZ_GUARD_BYTES + fuzz_below(rng, n_places) * elem_bytes;
    const struct fuzz_region region = {first, data, data + n_bytes + FUZZ_GUARD_BYTES};
    *used = region.end;
    return region;
}

/* Every rank names the same place in a window, so there the receive buffer begins at the same place
 * on every rank, and all ranks must find room for the largest one. */
static bool place_in_window(struct fuzz_rank *rank, struct fuzz_call *call, struct fuzz_rng *rng)
{
    const int slot = call->comm->slot;
    const size_t elem_bytes = fuzz_types[call->values.type].n_bytes;
    const bool is_gathering =
        call->kind == FUZZ_GATHER || call->kind == FUZZ_ALL_GATHER || call->kind == FUZZ_ALL_TO_ALL;
    const size_t n_bytes =
        call->count * elem_bytes * (size_t)(is_gathering ? call->comm->n_ranks : 1);
    const bool differs =
        call->kind == FUZZ_SEND_RECV ||
        (call->has_in_place && (call->kind == FUZZ_SCATTER || call->kind == FUZZ_REDUCE_SCATTER));
    if (!call->comm->has_window || differs ||
        rank->part_used[slot] + n_bytes + FUZZ_SLACK_BYTES > rank->part_bytes)
        return false;
    const size_t base = rank->arena_bytes + (size_t)slot * rank->part_bytes;
    const struct fuzz_region region = take(&rank->part_used[slot], n_bytes, elem_bytes, rng);
    call->recv = (struct fuzz_region){base + region.first, base + region.data, base + region.end};
    return true;
}

void fuzz_place(struct fuzz_rank *rank, struct fuzz_call *call, struct fuzz_rng *rng)
{
    const size_t elem_bytes = fuzz_types[call->values.type].n_bytes;
    const size_t n_recv =
        call->is_in_place && call->n_send > call->n_recv ? call->n_send : call->n_recv;
    const size_t n_send = call->is_in_place || call->chain >= 0 ? 0 : call->n_send;
    call->is_windowed = place_in_window(rank, call, rng);
    if (!call->is_windowed)
        call->recv = take(&rank->recv_used, n_recv * elem_bytes, elem_bytes, &rank->own);
    call->send = take(&rank->send_used, n_send * elem_bytes, elem_bytes, &rank->own);
    if (rank->recv_used > rank->arena_bytes || rank->send_used > rank->arena_bytes)
        fuzz_fail(rank, FUZZ_FAILED, "the fuzzer's own memory is too small");
}
