/* SPDX-License-Identifier: Apache-2.0
 *
 * Where buffers lie, and what they must hold: an image is what a region must hold, computed in host
 * memory and compared whole.
 */
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

static void put(uint8_t *at, unsigned n_bytes, size_t i, uint64_t bits)
{
    const uint32_t bits_32 = (uint32_t)bits;
    const uint16_t bits_16 = (uint16_t)bits;
    switch (n_bytes) { /* constant sizes are one store each */
    case 1:
        at[i] = (uint8_t)bits;
        break;
    case 2:
        memcpy(at + 2 * i, &bits_16, 2);
        break;
    case 4:
        memcpy(at + 4 * i, &bits_32, 4);
        break;
    default:
        memcpy(at + 8 * i, &bits, 8);
    }
}

/* Guards, and bytes that no rank writes. */
static void fill(uint8_t *bytes, const struct fuzz_region *region, uint64_t key)
{
    for (size_t i = 0; i < region->end - region->first; i++)
        bytes[i] = (uint8_t)(0x5b + i * 7 + key);
}

bool fuzz_check_sends_all(const struct fuzz_call *call)
{
    return call->kind == FUZZ_REDUCE_SCATTER || call->kind == FUZZ_SCATTER;
}

size_t fuzz_check_own_part(const struct fuzz_call *call)
{
    const bool has_blocks =
        call->kind == FUZZ_ALL_GATHER || call->kind == FUZZ_GATHER || fuzz_check_sends_all(call);
    return call->is_in_place && has_blocks ? (size_t)call->comm->rank * call->count : 0;
}

static uint64_t sent(const struct fuzz_rank *rank, const struct fuzz_call *call, int peer, size_t i)
{
    if (call->chain >= 0)
        return fuzz_value_reduced(&rank->calls[call->chain].values, i);
    return fuzz_value_sent(&call->values, peer, i);
}

static void put_sent(const struct fuzz_rank *rank, const struct fuzz_call *call, uint8_t *data)
{
    const unsigned n_bytes = fuzz_types[call->values.type].n_bytes;
    for (size_t i = 0; i < call->n_send; i++)
        put(data, n_bytes, i, sent(rank, call, call->comm->rank, i));
}

static uint64_t result(const struct fuzz_rank *rank, const struct fuzz_call *call, size_t i)
{
    const size_t mine = (size_t)call->comm->rank * call->count;
    switch (call->kind) {
    case FUZZ_BROADCAST:
        return sent(rank, call, call->root, i);
    case FUZZ_SCATTER:
        return sent(rank, call, call->root, mine + i);
    case FUZZ_REDUCE_SCATTER:
        return fuzz_value_reduced(&call->values, mine + i);
    case FUZZ_SEND_RECV:
        return sent(rank, call, call->from, i);
    default:
        return fuzz_value_reduced(&call->values, i);
    }
}

static void put_result(const struct fuzz_rank *rank, const struct fuzz_call *call, uint8_t *data)
{
    const unsigned n_bytes = fuzz_types[call->values.type].n_bytes;
    const bool is_of_root = call->kind == FUZZ_REDUCE || call->kind == FUZZ_GATHER;
    if (call->n_recv == 0 || (is_of_root && call->comm->rank != call->root))
        return;
    if (call->kind == FUZZ_ALL_GATHER || call->kind == FUZZ_GATHER ||
        call->kind == FUZZ_ALL_TO_ALL) {
        /* An all-to-all's block lies in the sender's buffer where this rank's is. */
        const size_t at =
            call->kind == FUZZ_ALL_TO_ALL ? (size_t)call->comm->rank * call->count : 0;
        for (int peer = 0; peer < call->comm->n_ranks; peer++)
            for (size_t i = 0; i < call->count; i++)
                put(data, n_bytes, (size_t)peer * call->count + i, sent(rank, call, peer, at + i));
        return;
    }
    uint8_t *own = data + (fuzz_check_sends_all(call) ? fuzz_check_own_part(call) : 0) * n_bytes;
    for (size_t i = 0; i < call->count; i++)
        put(own, n_bytes, i, result(rank, call, i));
}

static void draw_recv(const struct fuzz_rank *rank, const struct fuzz_call *call, bool is_after,
                      uint8_t *bytes)
{
    const size_t n_bytes = fuzz_types[call->values.type].n_bytes;
    uint8_t *data = bytes + (call->recv.data - call->recv.first);
    fill(bytes, &call->recv, call->values.key);
    if (call->is_in_place)
        put_sent(rank, call,
                 data + (fuzz_check_sends_all(call) ? 0 : fuzz_check_own_part(call)) * n_bytes);
    if (is_after)
        put_result(rank, call, data);
}

static void draw_send(const struct fuzz_rank *rank, const struct fuzz_call *call, uint8_t *bytes)
{
    fill(bytes, &call->send, ~call->values.key);
    if (!call->is_in_place && call->chain < 0)
        put_sent(rank, call, bytes + (call->send.data - call->send.first));
}

void fuzz_check_prepare(struct fuzz_rank *rank, const struct fuzz_call *call)
{
    draw_recv(rank, call, call->fate == FUZZ_LEFT_OUT, rank->expected);
    FUZZ_TRY_DEVICE(rank, rank->device->write(rank->recv + call->recv.first, rank->expected,
                                              call->recv.end - call->recv.first, rank->streams[0]));
    draw_send(rank, call, rank->expected);
    FUZZ_TRY_DEVICE(rank, rank->device->write(rank->send + call->send.first, rank->expected,
                                              call->send.end - call->send.first, rank->streams[0]));
}

static void compare(struct fuzz_rank *rank, const struct fuzz_call *call,
                    const struct fuzz_region *region, const char *which)
{
    const size_t n_bytes = region->end - region->first, guard = region->data - region->first;
    const size_t elem_bytes = fuzz_types[call->values.type].n_bytes;
    size_t at = 0, n_wrong = 0;
    uint64_t seen = 0, expected = 0;
    char text[512];
    if (memcmp(rank->seen, rank->expected, n_bytes) == 0)
        return;
    while (rank->seen[at] == rank->expected[at])
        at++;
    for (size_t i = at; i < n_bytes; i++)
        n_wrong += rank->seen[i] != rank->expected[i];
    const long offset = (long)at - (long)guard; /* negative: in the guard before the data */
    const size_t elem = offset < 0 ? at : guard + (size_t)offset / elem_bytes * elem_bytes;
    memcpy(&seen, rank->seen + elem, elem_bytes);
    memcpy(&expected, rank->expected + elem, elem_bytes);
    fuzz_describe(rank, call, text, sizeof(text));
    fuzz_fail(rank, FUZZ_WRONG,
              "%s: of the %s buffer and its guards %zu bytes differ, the first at byte %ld of %zu "
              "(%s): got %#llx, expected %#llx",
              text, which, n_wrong, offset, n_bytes - guard - FUZZ_GUARD_BYTES,
              offset < 0                                             ? "the guard before it"
              : (size_t)offset >= n_bytes - guard - FUZZ_GUARD_BYTES ? "the guard after it"
                                                                     : "data",
              (unsigned long long)seen, (unsigned long long)expected);
}

void fuzz_check_compare(struct fuzz_rank *rank, const struct fuzz_call *call)
{
    const size_t recv_bytes = call->recv.end - call->recv.first;
    FUZZ_TRY_DEVICE(rank, rank->device->read(rank->seen, rank->recv + call->recv.first, recv_bytes,
                                             rank->streams[0]));
    if (fuzz_options.break_at >= 0 && call->index >= fuzz_options.break_at &&
        call->fate == FUZZ_MADE)
        rank->seen[recv_bytes / 2] ^= 1;
    draw_recv(rank, call, call->fate != FUZZ_CANCELED, rank->expected);
    compare(rank, call, &call->recv, "receive");
    FUZZ_TRY_DEVICE(rank, rank->device->read(rank->seen, rank->send + call->send.first,
                                             call->send.end - call->send.first, rank->streams[0]));
    draw_send(rank, call, rank->expected);
    compare(rank, call, &call->send, "send");
    atomic_fetch_add(&fuzz_shared->n_elems, (long)(call->n_recv + call->n_send));
}
