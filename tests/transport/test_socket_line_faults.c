/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots of LL over the socket transport when a peer dies, leaves, or breaks the protocol.
 */
#include "core/foundation/base/util.h"
#include "tests/support/check.h"
#include "tests/transport/line_rig.h"
#include "transport/socket/socket.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

static bool waits_for_fault(const struct gyre_fault *fault)
{
    const uint64_t until_ns = gyre_now_ns() + LINE_PATIENCE_NS;
    while (!gyre_fault_is_raised(fault) && gyre_now_ns() < until_ns)
        sched_yield();
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
        const uint64_t until_ns = gyre_now_ns() + LINE_PATIENCE_NS;
        while (!line_send_slot(&pipe) && !gyre_fault_is_raised(&self->fault) &&
               gyre_now_ns() < until_ns)
            sched_yield();
    }
    CHECK(rank == 1 || waits_for_fault(&self->fault));
    CHECK_MSG(rank == 1 || (strstr(self->fault.cause, "rank 1") != NULL &&
                            strstr(self->fault.cause, "it left") != NULL),
              "%s", self->fault.cause);
    rig_barrier(self);
}

TEST_CASE("sending to a rank that left is a fault")
{
    line_run(&line_spec, 2, false, leave);
}

/* Headers of one batch, and what the receiver says to them. */
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

/* Rank 1 sends nothing of its own, so its descriptor is free for frames of ours. */
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

TEST_CASE("depths that leave no room for announcements are refused")
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
    config.spec.depth = GYRE_FIRST_LINE_INFO + 1;
    CHECK(gyre_transport_socket.open(&config, &transport, &blob, &blob_bytes) ==
          GYRE_ERROR_INVALID_ARGUMENT);
    CHECK_MSG(strstr(gyre_cause(), "and these have 5") != NULL, "%s", gyre_cause());
    gyre_fault_fini(&fault);
}
