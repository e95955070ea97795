/* SPDX-License-Identifier: Apache-2.0
 *
 * An image is what a region must hold, computed in host memory and compared whole.
 */
#include "tests/fuzz/calls/calls.h"

#include "tests/fuzz/run.h"

#include <string.h>

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
