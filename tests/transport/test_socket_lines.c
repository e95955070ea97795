/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots of LL over the socket transport arrive as they were sent.
 */
#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "core/foundation/model/line.h"
#include "tests/support/check.h"
#include "tests/transport/line_rig.h"
#include "transport/socket/socket.h"

#include <sched.h>

enum { N_SLOTS = 200 };

static void pass_all(struct gyre_transport *transport, struct gyre_connector *connectors, int rank,
                     void *context)
{
    struct rig_rank *self = context;
    struct line_pipe pipes[LINE_MOST_PIPES];
    const size_t n_pipes = line_all_pipes(self, connectors, pipes);
    CHECK(transport->ops->has_lines && transport->ops->takes_lines(transport));
    line_pass(self, pipes, n_pipes, N_SLOTS);
    CHECK_MSG(rig_traffic(self, connectors), "rank %d: %s", rank, self->fault.cause);
    line_pass(self, pipes, n_pipes, N_SLOTS + LINE_DEPTH + 1);
    rig_barrier(self);
}

TEST_CASE("lines of every length arrive")
{
    static const uint32_t sizes[] = {256, 4096, 2 * LINE_MOST_BYTES};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(sizes); i++) {
        struct gyre_fifo_spec spec = line_spec;
        spec.net_line_bytes = sizes[i];
        line_run(&spec, 3, i == 1, pass_all);
    }
}

TEST_CASE("so they do between far ranks")
{
    struct gyre_fifo_spec spec = line_spec;
    spec.far = (struct gyre_fifo_size){.n_fifos = 1, .slot_bytes = 512};
    line_run(&spec, 4, false, pass_all);
}

/* A GPU announces lines before it stores them, and stores them in any order. */
static void announce_early(struct gyre_transport *transport, struct gyre_connector *connectors,
                           int rank, void *context)
{
    struct rig_rank *self = context;
    struct line_pipe pipe = line_first_pipe(self, connectors);
    struct gyre_host_end *end = &pipe.end;
    unsigned char bytes[LINE_MOST_BYTES];
    for (int i = 0; i < 3 * LINE_DEPTH && rank == 0; i++) {
        const uint64_t until_ns = gyre_now_ns() + LINE_PATIENCE_NS;
        const uint32_t n_bytes = line_bytes_of(&pipe), n_words = 2 * gyre_ll_lines(n_bytes);
        uint64_t *words = (uint64_t *)(void *)(end->slots + (size_t)end->slot * end->slot_bytes);
        while (!line_has_room(end) && gyre_now_ns() < until_ns)
            sched_yield();
        memset(bytes, 0, sizeof(bytes));
        line_fill(&pipe, bytes, n_bytes);
        gyre_store_relaxed_u64(&end->inbox->slot_info[GYRE_FIRST_LINE_INFO + end->slot],
                               gyre_ll_announcement(end->n_moved, n_words / 2));
        for (uint32_t word = n_words; word > 0; word--) {
            uint32_t data;
            transport->ops->wake(transport);
            sched_yield();
            memcpy(&data, bytes + (size_t)(word - 1) * sizeof(data), sizeof(data));
            gyre_store_relaxed_u64(&words[word - 1],
                                   (uint64_t)gyre_ll_flag(end->n_moved) << 32 | data);
        }
        line_advance(end);
    }
    if (rank == 1)
        line_pass(self, &pipe, 1, 3 * LINE_DEPTH);
    rig_barrier(self);
}

TEST_CASE("lines may come after their announcement")
{
    line_run(&line_spec, 2, false, announce_early);
}

/* A GPU polls no line of an empty slot, so it may return the slot before it was sent. */
static void return_early(struct gyre_transport *transport, struct gyre_connector *connectors,
                         int rank, void *context)
{
    struct rig_rank *self = context;
    struct line_pipe pipe = line_first_pipe(self, connectors);
    struct gyre_host_end *end = &pipe.end;
    if (rank == 1)
        gyre_store_release_u64(&end->credit->head[GYRE_PROTO_LL], 2 * LINE_DEPTH);
    transport->ops->wake(transport);
    rig_barrier(self);
    for (int i = 0; i < 2 * LINE_DEPTH; i++) {
        const uint64_t until_ns = gyre_now_ns() + LINE_PATIENCE_NS;
        while (rank == 0 && !line_has_room(end) && gyre_now_ns() < until_ns)
            sched_yield();
        if (rank == 0)
            gyre_store_relaxed_u64(&end->inbox->slot_info[GYRE_FIRST_LINE_INFO + end->slot],
                                   gyre_ll_announcement(end->n_moved, 0));
        line_advance(end);
    }
    line_pass(self, &pipe, 1, 2 * LINE_DEPTH + N_SLOTS);
    rig_barrier(self);
}

TEST_CASE("slots may be returned before they are sent")
{
    line_run(&line_spec, 2, false, return_early);
}

/* A GPU gives the credit of a launch's last tile when its next launch begins, so it may take all
 * slots of a FIFO without giving credit. The credit that it gave before is less than half a FIFO.
 */
static void keep_credit(struct gyre_transport *transport, struct gyre_connector *connectors,
                        int rank, void *context)
{
    enum { N_LAUNCHES = 40 };
    struct rig_rank *self = context;
    struct line_pipe pipe = line_first_pipe(self, connectors);
    (void)transport;
    for (int i = 0; i < N_LAUNCHES && rank == 1 && test_n_failures == 0; i++) {
        const uint64_t until_ns = gyre_now_ns() + LINE_PATIENCE_NS;
        line_pass(self, &pipe, 1, pipe.end.n_moved + 1);
        for (int n_taken = 0; n_taken < LINE_DEPTH && gyre_now_ns() < until_ns;)
            if (line_take_slot(&pipe))
                n_taken++;
            else
                sched_yield();
        line_return_slots(&pipe);
    }
    line_pass(self, &pipe, 1, N_LAUNCHES * (LINE_DEPTH + 1));
    rig_barrier(self);
}

TEST_CASE("a receiver may keep the credit of a whole FIFO")
{
    line_run(&line_spec, 2, false, keep_credit);
}

/* The ends of FIFO 0 have moved many slots before. */
#define LATE_NUMBER ((1ULL << 30) - 2)

static void make_late(struct gyre_transport *transport, struct line_pipe *pipe)
{
    struct socket_transport *socket = (struct socket_transport *)transport;
    struct socket_fifo *fifo = &socket->peers[0].fifos[LINE_FIFOS];
    gyre_proxy_pause(socket->threads[0].proxy);
    fifo->n_batched = fifo->n_sent = fifo->n_credited = LATE_NUMBER;
    fifo->n_announced = fifo->n_arrived = fifo->n_returned = LATE_NUMBER;
    gyre_store_release_u64(&fifo->send.credit->head[GYRE_PROTO_LL], LATE_NUMBER);
    gyre_store_release_u64(&fifo->recv.credit->head[GYRE_PROTO_LL], LATE_NUMBER);
    gyre_proxy_resume(socket->threads[0].proxy);
    pipe->end.n_moved = LATE_NUMBER;
    pipe->end.slot = LATE_NUMBER % LINE_DEPTH;
}

static void pass_late(struct gyre_transport *transport, struct gyre_connector *connectors, int rank,
                      void *context)
{
    enum { N_WORDS = 1024 / 8 };
    struct rig_rank *self = context;
    struct line_pipe pipe = line_first_pipe(self, connectors);
    make_late(transport, &pipe);
    rig_barrier(self);
    /* One after the other, so that each slot is looked at before the next one takes its place. */
    for (int i = 0; i < 2 + 2 * LINE_DEPTH && test_n_failures == 0; i++) {
        const uint64_t number = pipe.end.n_moved, until_ns = gyre_now_ns() + LINE_PATIENCE_NS;
        const uint64_t *words =
            (const uint64_t *)(const void *)(pipe.end.slots + number % LINE_DEPTH * 1024);
        const bool is_cleaned = number >= 1ULL << 30 && number < (1ULL << 30) + LINE_DEPTH;
        line_pass(self, &pipe, 1, number + 1);
        while (is_cleaned && gyre_now_ns() < until_ns &&
               gyre_load_acquire_u64(&words[N_WORDS - 1]) >> 32 != gyre_ll_flag(number))
            sched_yield();
        CHECK_MSG(!is_cleaned ||
                      gyre_load_acquire_u64(&words[N_WORDS - 1]) >> 32 == gyre_ll_flag(number),
                  "rank %d, slot %llu", rank, (unsigned long long)number);
        rig_barrier(self);
    }
}

TEST_CASE("once in 2^30 slots both ends clean a slot")
{
    line_run(&line_spec, 2, false, pass_late);
}
