/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/transport/line_rig.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "core/foundation/model/line.h"
#include "tests/support/check.h"

#include <sched.h>

const struct gyre_fifo_spec line_spec = {
    .n_fifos = LINE_FIFOS, .depth = LINE_DEPTH, .slot_bytes = {65536}, .net_line_bytes = 1024};

struct line_pipe line_pipe_of(const struct gyre_fifo_spec *spec,
                              const struct gyre_connector *connectors, int rank, int peer,
                              uint32_t fifo, bool is_send)
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

uint32_t line_bytes_of(const struct line_pipe *pipe)
{
    const uint32_t most = gyre_slot_payload_bytes(GYRE_PROTO_LL, pipe->end.slot_bytes);
    const uint32_t sizes[] = {8, most, 0, 1, 9, most - 1, 100, most / 2 + 3, 4, 7};
    return sizes[pipe->end.n_moved % GYRE_ARRAY_LENGTH(sizes)];
}

void line_fill(const struct line_pipe *pipe, unsigned char *bytes, uint32_t n_bytes)
{
    const uint64_t seed = (uint64_t)pipe->from * 7 + (uint64_t)pipe->to * 3 + pipe->fifo * 31ULL +
                          pipe->end.n_moved * 13;
    for (uint32_t i = 0; i < n_bytes; i++)
        bytes[i] = (unsigned char)(seed + i * 17 + (i >> 8));
}

void line_advance(struct gyre_host_end *end)
{
    end->n_moved++;
    end->slot = (end->slot + 1) % end->depth;
    end->n_seen = 0;
}

bool line_has_room(const struct gyre_host_end *end)
{
    return end->n_moved - gyre_load_acquire_u64(&end->credit->head[GYRE_PROTO_LL]) < end->depth;
}

bool line_send_slot(struct line_pipe *pipe)
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

bool line_take_slot(struct line_pipe *pipe)
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

void line_return_slots(const struct line_pipe *pipe)
{
    gyre_store_release_u64(&pipe->end.credit->head[GYRE_PROTO_LL], pipe->end.n_moved);
}

bool line_receive_slot(struct line_pipe *pipe)
{
    if (!line_take_slot(pipe))
        return false;
    line_return_slots(pipe);
    return true;
}

void line_pass(const struct rig_rank *self, struct line_pipe *pipes, size_t n_pipes, uint64_t n)
{
    const uint64_t until_ns = gyre_now_ns() + LINE_PATIENCE_NS;
    size_t n_done = 0;
    while (n_done < n_pipes && gyre_now_ns() < until_ns && !gyre_fault_is_raised(&self->fault)) {
        bool has_moved = false;
        n_done = 0;
        for (size_t i = 0; i < n_pipes; i++) {
            if (pipes[i].end.n_moved >= n)
                n_done++;
            else
                has_moved =
                    (pipes[i].is_send ? line_send_slot(&pipes[i]) : line_receive_slot(&pipes[i])) ||
                    has_moved;
        }
        if (!has_moved)
            sched_yield();
    }
    CHECK_MSG(n_done == n_pipes, "rank %d: %zu of %zu ends are done; %s", self->rank, n_done,
              n_pipes, gyre_fault_is_raised(&self->fault) ? self->fault.cause : "no fault");
}

size_t line_all_pipes(const struct rig_rank *self, const struct gyre_connector *connectors,
                      struct line_pipe *pipes)
{
    const struct gyre_fifo_spec *spec = &self->options->spec;
    size_t n = 0;
    for (int peer = 0; peer < self->options->n_ranks; peer++)
        for (uint32_t end = 0; peer != self->rank && end < 2 * spec->n_fifos; end++)
            if (connectors[gyre_connector_index(spec, (uint32_t)peer, end / 2, end % 2)].inbox !=
                NULL)
                pipes[n++] =
                    line_pipe_of(spec, connectors, self->rank, peer, end / 2, end % 2 != 0);
    return n;
}

struct line_pipe line_first_pipe(const struct rig_rank *self,
                                 const struct gyre_connector *connectors)
{
    return line_pipe_of(&self->options->spec, connectors, self->rank, 1 - self->rank, 0,
                        self->rank == 0);
}

void line_run(const struct gyre_fifo_spec *spec, int n_ranks, bool use_processes,
              void (*body)(struct gyre_transport *transport, struct gyre_connector *connectors,
                           int rank, void *context))
{
    rig_run(&(struct rig_options){.ops = &gyre_transport_socket,
                                  .spec = *spec,
                                  .n_ranks = n_ranks,
                                  .use_processes = use_processes,
                                  .n_slots = 50,
                                  .ifname = "=lo",
                                  .body = body});
}
