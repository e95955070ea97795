/* SPDX-License-Identifier: Apache-2.0
 *
 * Executors that move slots of LL over the socket transport, played with the host executor's own
 * functions for lines. What a slot holds follows from its number, so the receiver knows it.
 */
#ifndef GYRE_TESTS_LINE_RIG_H
#define GYRE_TESTS_LINE_RIG_H

#include "kernels/host/host_exec.h"
#include "tests/transport/transport_rig.h"

enum { LINE_FIFOS = 4, LINE_DEPTH = 4, LINE_MOST_BYTES = 8192, LINE_MOST_PIPES = 64 };

#define LINE_PATIENCE_NS 40000000000ULL /* sanitizers on a busy machine */

/* The FIFOs of most tests. */
extern const struct gyre_fifo_spec line_spec;

/* One end of a FIFO. */
struct line_pipe {
    struct gyre_host_end end;
    int from, to;
    uint32_t fifo;
    bool is_send;
};

struct line_pipe line_pipe_of(const struct gyre_fifo_spec *spec,
                              const struct gyre_connector *connectors, int rank, int peer,
                              uint32_t fifo, bool is_send);

/** line_all_pipes - this rank's ends with all peers. @pipes: room for LINE_MOST_PIPES. Returns how
 * many there are. */
size_t line_all_pipes(const struct rig_rank *self, const struct gyre_connector *connectors,
                      struct line_pipe *pipes);

/** line_first_pipe - this rank's end of FIFO 0 from rank 0 to rank 1. */
struct line_pipe line_first_pipe(const struct rig_rank *self,
                                 const struct gyre_connector *connectors);

/** line_bytes_of - how many bytes the end's next slot has: the shortest, the longest, and others.
 */
uint32_t line_bytes_of(const struct line_pipe *pipe);

/** line_fill - the bytes of the end's next slot. */
void line_fill(const struct line_pipe *pipe, unsigned char *bytes, uint32_t n_bytes);

/** line_advance - the end has moved a slot. */
void line_advance(struct gyre_host_end *end);

/** line_has_room - has a sending end credit for its next slot? */
bool line_has_room(const struct gyre_host_end *end);

/** line_send_slot, line_receive_slot - move the end's next slot. False: that is not possible now. A
 * slot with other bytes than were sent is a failure of the test. */
bool line_send_slot(struct line_pipe *pipe);
bool line_receive_slot(struct line_pipe *pipe);

/** line_take_slot - as line_receive_slot, without giving credit. */
bool line_take_slot(struct line_pipe *pipe);

/** line_return_slots - give credit for all slots that a receiving end has taken. */
void line_return_slots(const struct line_pipe *pipe);

/** line_pass - move slots through all these ends until each has moved n of them. */
void line_pass(const struct rig_rank *self, struct line_pipe *pipes, size_t n_pipes, uint64_t n);

/** line_run - run the body on so many ranks that the socket transport connects. */
void line_run(const struct gyre_fifo_spec *spec, int n_ranks, bool use_processes,
              void (*body)(struct gyre_transport *transport, struct gyre_connector *connectors,
                           int rank, void *context));

#endif
