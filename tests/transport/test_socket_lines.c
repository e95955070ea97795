/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"
#include "tests/transport/line_pipe.h"
#include "tests/transport/transport_rig.h"
#include "transport/socket/socket.h"

#include <sched.h>
#include <signal.h>

enum { LINE_FIFOS = 4, LINE_DEPTH = 4, LINE_MOST_PIPES = 64 };

#define LINE_PATIENCE_NS 40000000000ULL /* sanitizers on a busy machine */

static const struct gyre_fifo_spec line_spec = {
    .n_fifos = LINE_FIFOS, .depth = LINE_DEPTH, .slot_bytes = {65536}, .net_line_bytes = 1024};

static void line_pass(const struct rig_rank *self, struct line_pipe *pipes, size_t n_pipes,
                      uint64_t n)
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

static struct line_pipe line_first_pipe(const struct rig_rank *self,
                                        const struct gyre_connector *connectors)
{
    return line_pipe_of(&self->options->spec, connectors, self->rank, 1 - self->rank, 0,
                        self->rank == 0);
}

static void line_run(const struct gyre_fifo_spec *spec, int n_ranks, bool use_processes,
                     void (*body)(struct gyre_transport *transport,
                                  struct gyre_connector *connectors, int rank, void *context))
{
    rig_run(&(struct rig_options){.ops = &gyre_transport_socket,
                                  .spec = *spec,
                                  .n_ranks = n_ranks,
                                  .use_processes = use_processes,
                                  .n_slots = 50,
                                  .ifname = "=lo",
                                  .body = body});
}

enum { N_SLOTS = 200 };

static void pass_all(struct gyre_transport *transport, struct gyre_connector *connectors, int rank,
                     void *context)
{
    struct rig_rank *self = context;
    struct line_pipe pipes[LINE_MOST_PIPES];
    const struct gyre_fifo_spec *spec = &self->options->spec;
    size_t n_pipes = 0;
    for (int peer = 0; peer < self->options->n_ranks; peer++)
        for (uint32_t end = 0; peer != self->rank && end < 2 * spec->n_fifos; end++)
            if (connectors[gyre_connector_index(spec, (uint32_t)peer, end / 2, end % 2)].inbox !=
                NULL)
                pipes[n_pipes++] =
                    line_pipe_of(spec, connectors, self->rank, peer, end / 2, end % 2 != 0);
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

/* A GPU stores announced lines late, in any order. */
static void announce_early(struct gyre_transport *transport, struct gyre_connector *connectors,
                           int rank, void *context)
{
    struct rig_rank *self = context;
    struct line_pipe pipe = line_first_pipe(self, connectors);
    struct gyre_host_end *end = &pipe.end;
    unsigned char bytes[LINE_MOST_BYTES];
    for (int i = 0; i < 3 * LINE_DEPTH && rank == 0; i++) {
        const uint32_t n_bytes = line_bytes_of(&pipe), n_words = 2 * gyre_ll_lines(n_bytes);
        uint64_t *words = (uint64_t *)(void *)(end->slots + (size_t)end->slot * end->slot_bytes);
        TEST_YIELD_UNTIL(line_has_room(end));
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

TEST_RUNS("lines may come after their announcement", line_run(&line_spec, 2, false, announce_early))

/* A GPU may return an empty slot before it was sent. */
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
        TEST_YIELD_UNTIL(rank != 0 || line_has_room(end));
        if (rank == 0)
            gyre_store_relaxed_u64(&end->inbox->slot_info[GYRE_FIRST_LINE_INFO + end->slot],
                                   gyre_ll_announcement(end->n_moved, 0));
        line_advance(end);
    }
    line_pass(self, &pipe, 1, 2 * LINE_DEPTH + N_SLOTS);
    rig_barrier(self);
}

TEST_RUNS("slots may be returned before they are sent",
          line_run(&line_spec, 2, false, return_early))

/* A GPU gives the credit of a launch's last tile with its next launch, so it may take all slots of
 * a FIFO without giving credit, after less than half a FIFO. */
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

TEST_RUNS("a receiver may keep the credit of a whole FIFO",
          line_run(&line_spec, 2, false, keep_credit))

static void pass_late(struct gyre_transport *transport, struct gyre_connector *connectors, int rank,
                      void *context)
{
    struct rig_rank *self = context;
    struct line_pipe pipe = line_first_pipe(self, connectors);
    (void)rank;
    struct socket_transport *socket = (struct socket_transport *)transport;
    struct socket_fifo *fifo = &socket->peers[0].fifos[LINE_FIFOS];
    gyre_proxy_pause(socket->threads[0].proxy);
    fifo->n_batched = fifo->n_sent = fifo->n_credited = LINE_LATE_NUMBER;
    fifo->n_announced = fifo->n_arrived = fifo->n_returned = LINE_LATE_NUMBER;
    gyre_store_release_u64(&fifo->send.credit->head[GYRE_PROTO_LL], LINE_LATE_NUMBER);
    gyre_store_release_u64(&fifo->recv.credit->head[GYRE_PROTO_LL], LINE_LATE_NUMBER);
    gyre_proxy_resume(socket->threads[0].proxy);
    pipe.end.n_moved = LINE_LATE_NUMBER;
    pipe.end.slot = LINE_LATE_NUMBER % LINE_DEPTH;
    rig_barrier(self);
    /* Each slot is looked at before its place is used again. */
    for (int i = 0; i < 2 + 2 * LINE_DEPTH && test_n_failures == 0; i++) {
        const uint64_t number = pipe.end.n_moved;
        line_pass(self, &pipe, 1, number + 1);
        line_check_cleaned(&pipe, number);
        rig_barrier(self);
    }
}

TEST_RUNS("once in 2^30 slots both ends clean a slot", line_run(&line_spec, 2, false, pass_late))

static bool waits_for_fault(const struct gyre_fault *fault)
{
    TEST_YIELD_UNTIL(gyre_fault_is_raised(fault));
    return gyre_fault_is_raised(fault);
}

static void leave(struct gyre_transport *transport, struct gyre_connector *connectors, int rank,
                  void *context)
{
    struct rig_rank *self = context;
    struct line_pipe pipe = line_first_pipe(self, connectors);
    if (rank == 1) {
        self->is_closed = true;
        transport->ops->close(transport);
    }
    rig_barrier(self);
    for (int i = 0; rank == 0 && i < LINE_DEPTH + 1; i++) { /* credit is for LINE_DEPTH of them */
        TEST_YIELD_UNTIL(line_send_slot(&pipe) || gyre_fault_is_raised(&self->fault));
    }
    CHECK(rank == 1 || waits_for_fault(&self->fault));
    CHECK_MSG(rank == 1 || (strstr(self->fault.cause, "rank 1") != NULL &&
                            strstr(self->fault.cause, "it left") != NULL),
              "%s", self->fault.cause);
    rig_barrier(self);
}

TEST_RUNS("sending to a rank that left is a fault", line_run(&line_spec, 2, false, leave))

struct breach {
    const char *words;
    struct socket_header headers[LINE_DEPTH + 2]; /* to the first of kind 0 */
};

static const struct breach breaches[] = {
    {"larger than a slot", {{.kind = SOCKET_FRAME_DATA, .fifo = LINE_FIFOS, .value = 65}}},
    {"credit for slots that were not sent",
     {{.kind = SOCKET_FRAME_CREDIT, .fifo = LINE_FIFOS, .value = 1}}},
    {"no such FIFO", {{.kind = SOCKET_FRAME_DATA, .fifo = 2 * LINE_FIFOS, .value = 1}}},
    {"there was no credit for it",
     {{.kind = SOCKET_FRAME_DATA, .fifo = LINE_FIFOS, .n_following = 4},
      {.kind = SOCKET_FRAME_DATA, .fifo = LINE_FIFOS, .n_following = 3},
      {.kind = SOCKET_FRAME_DATA, .fifo = LINE_FIFOS, .n_following = 2},
      {.kind = SOCKET_FRAME_DATA, .fifo = LINE_FIFOS, .n_following = 1},
      {.kind = SOCKET_FRAME_DATA, .fifo = LINE_FIFOS}}},
    {"more lines than a batch has",
     {{.kind = SOCKET_FRAME_DATA, .fifo = LINE_FIFOS, .n_following = 4, .value = 64},
      {.kind = SOCKET_FRAME_DATA, .fifo = LINE_FIFOS, .n_following = 3, .value = 64},
      {.kind = SOCKET_FRAME_DATA, .fifo = LINE_FIFOS + 1, .n_following = 2, .value = 64},
      {.kind = SOCKET_FRAME_DATA, .fifo = LINE_FIFOS + 1, .n_following = 1, .value = 64},
      {.kind = SOCKET_FRAME_DATA, .fifo = LINE_FIFOS + 2, .value = 1}}},
};

static const struct breach *breach; /* of this run */

static void break_protocol(struct gyre_transport *transport, struct gyre_connector *connectors,
                           int rank, void *context)
{
    struct rig_rank *self = context;
    const struct socket_transport *socket = (struct socket_transport *)transport;
    size_t n_bytes = 0;
    (void)connectors;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(breach->headers) && breach->headers[i].kind != 0; i++)
        n_bytes += sizeof(breach->headers[i]);
    rig_barrier(self);
    if (rank == 1)
        CHECK(send(socket->peers[0].links[0].fd, breach->headers, n_bytes, MSG_NOSIGNAL) ==
              (ssize_t)n_bytes);
    else
        CHECK(waits_for_fault(&self->fault));
    CHECK_MSG(rank == 1 || strstr(self->fault.cause, breach->words) != NULL, "%s instead of %s",
              self->fault.cause, breach->words);
    rig_barrier(self);
}

TEST_CASE("frames of lines that break the protocol are refused")
{
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(breaches); i++) {
        breach = &breaches[i];
        line_run(&line_spec, 2, false, break_protocol);
    }
}

TEST_CASE("depths above the most are refused")
{
    struct gyre_params params;
    struct gyre_peer_info info;
    struct gyre_fault fault;
    struct gyre_transport *transport = NULL;
    void *blob = NULL;
    size_t blob_bytes = 0;
    rig_params(&params, "=lo");
    CHECK_OK(gyre_peer_info_fill(&params, rig_device(), 0, &info));
    struct gyre_transport_config config = {.device = rig_device(),
                                           .params = &params,
                                           .n_ranks = 1,
                                           .infos = &info,
                                           .spec = line_spec,
                                           .fault = &fault};
    gyre_fault_init(&fault);
    config.spec.depth = GYRE_MAX_DEPTH + 1;
    CHECK(gyre_transport_socket.open(&config, &transport, &blob, &blob_bytes) ==
          GYRE_ERROR_INVALID_ARGUMENT);
    CHECK_HAS(gyre_cause(), "FIFOs of 9 slots, at most 8");
    gyre_fault_fini(&fault);
}
