/* SPDX-License-Identifier: Apache-2.0
 *
 * One end of a FIFO of lines over a network. The test plays the executor and moves numbered slots.
 */
#ifndef GYRE_TESTS_LINE_PIPE_H
#define GYRE_TESTS_LINE_PIPE_H

#include "core/foundation/base/sync.h"
#include "core/foundation/model/line.h"
#include "kernels/host/host_exec.h"
#include "tests/support/check.h"
#include "transport/transport.h"

enum { LINE_MOST_BYTES = 8192 };

struct line_pipe {
    struct gyre_host_end end;
    int from, to;
    uint32_t fifo;
    bool is_send;
};

/** @connectors: of the rank. */
static inline struct line_pipe line_pipe_of(const struct gyre_fifo_spec *spec,
                                            const struct gyre_connector *connectors, int rank,
                                            int peer, uint32_t fifo, bool is_send)
{
    const struct gyre_connector *connector =
        &connectors[gyre_connector_index(spec, (uint32_t)peer, fifo, is_send)];
    CHECK(connector->slots[GYRE_PROTO_LL] != NULL);
    return (struct line_pipe){.end = {.slots = connector->slots[GYRE_PROTO_LL],
                                      .inbox = connector->inbox,
                                      .credit = connector->credit,
                                      .depth = connector->depth,
                                      .proto = GYRE_PROTO_LL,
                                      .slot_bytes = spec->net_line_bytes},
                              .from = is_send ? rank : peer,
                              .to = is_send ? peer : rank,
                              .fifo = fifo,
                              .is_send = is_send};
}

/** Of the next slot. */
static inline uint32_t line_bytes_of(const struct line_pipe *pipe)
{
    const uint32_t most = gyre_slot_payload_bytes(GYRE_PROTO_LL, pipe->end.slot_bytes);
    const uint32_t sizes[] = {8, most, 0, 1, 9, most - 1, 100, most / 2 + 3, 4, 7};
    return sizes[pipe->end.n_moved % GYRE_ARRAY_LENGTH(sizes)];
}

static inline void line_fill(const struct line_pipe *pipe, unsigned char *bytes, uint32_t n_bytes)
{
    const uint64_t seed = (uint64_t)pipe->from * 7 + (uint64_t)pipe->to * 3 + pipe->fifo * 31ULL +
                          pipe->end.n_moved * 13;
    for (uint32_t i = 0; i < n_bytes; i++)
        bytes[i] = (unsigned char)(seed + i * 17 + (i >> 8));
}

static inline void line_advance(struct gyre_host_end *end)
{
    end->n_moved++;
    end->slot = (end->slot + 1) % end->depth;
    end->n_seen = 0;
}

static inline bool line_has_room(const struct gyre_host_end *end)
{
    return end->n_moved - gyre_load_acquire_u64(&end->credit->head[GYRE_PROTO_LL]) < end->depth;
}

/** False: there is no room. */
static inline bool line_send_slot(struct line_pipe *pipe)
{
    unsigned char bytes[LINE_MOST_BYTES];
    const uint32_t n_bytes = line_bytes_of(pipe);
    if (!line_has_room(&pipe->end))
        return false;
    line_fill(pipe, bytes, n_bytes);
    gyre_host_lines_send(&pipe->end, bytes, n_bytes);
    line_advance(&pipe->end);
    return true;
}

/** False: it has not arrived. Gives no credit. */
static inline bool line_take_slot(struct line_pipe *pipe)
{
    unsigned char bytes[LINE_MOST_BYTES], expected[LINE_MOST_BYTES];
    struct gyre_host_end *end = &pipe->end;
    const uint32_t n_bytes = line_bytes_of(pipe);
    if (!gyre_host_lines_arrived(end, n_bytes))
        return false;
    gyre_host_lines_unpack(end, bytes, n_bytes);
    line_fill(pipe, expected, n_bytes);
    CHECK_MSG(memcmp(bytes, expected, n_bytes) == 0, "%d to %d, FIFO %u, slot %llu of %u bytes",
              pipe->from, pipe->to, pipe->fifo, (unsigned long long)end->n_moved, n_bytes);
    line_advance(end);
    return true;
}

static inline void line_return_slots(const struct line_pipe *pipe)
{
    gyre_store_release_u64(&pipe->end.credit->head[GYRE_PROTO_LL], pipe->end.n_moved);
}

static inline bool line_receive_slot(struct line_pipe *pipe)
{
    if (!line_take_slot(pipe))
        return false;
    line_return_slots(pipe);
    return true;
}

/* Flags of lines have 30 bits of a slot's number: the first slots behind 2^30 are sent whole. */
#define LINE_LATE_NUMBER ((1ULL << 30) - 2)

/** Behind a slot that was received: whether all of its lines are clean where they must be. */
static inline void line_check_cleaned(const struct line_pipe *pipe, uint64_t number)
{
    const struct gyre_host_end *end = &pipe->end;
    const uint64_t *words =
        (const uint64_t *)(const void *)(end->slots + number % end->depth * end->slot_bytes);
    const uint64_t *last = &words[end->slot_bytes / sizeof(*words) - 1];
    if (number < 1ULL << 30 || number >= (1ULL << 30) + end->depth)
        return;
    TEST_YIELD_UNTIL(gyre_load_acquire_u64(last) >> 32 == gyre_ll_flag(number));
    CHECK_MSG(gyre_load_acquire_u64(last) >> 32 == gyre_ll_flag(number), "slot %llu",
              (unsigned long long)number);
}

#endif
