/* SPDX-License-Identifier: Apache-2.0
 *
 * One-sided calls on the host, among threads of one process. A rank writes into another rank's
 * window and then counts up a signal there; the other rank waits on its stream until enough signals
 * have come. The counters of all ranks lie on one board, which the communicators and the tasks on
 * their streams hold together.
 */
#ifndef GYRE_COMM_SIGNALS_H
#define GYRE_COMM_SIGNALS_H

#include "core/base/status.h"

struct gyre_comm;
struct gyre_signals;

/* One rank's part. */
struct gyre_signal_end {
    struct gyre_signals *board; /* NULL until the communicator's first window; this rank sets it
                                 * under the registry's lock */
    uint64_t *n_awaited;        /* by sending rank * GYRE_N_SIGNALS + signal: so far by this rank's
                                 * waits; one user: the caller's thread */
};

/** gyre_signals_offer - make the board, on rank 0 at its first window. Other ranks take it from
 * there. @has_board_out: 1 if this rank has a board now, else 0, as on GPUs. Errors: OUT_OF_MEMORY.
 */
gyre_status gyre_signals_offer(struct gyre_comm *comm, uint64_t *has_board_out);

/** gyre_signals_take - hold the board of rank 0, a thread of this process. @has_board: as rank 0
 * says. Errors: REMOTE (rank 0 has ended its communicator since then), OUT_OF_MEMORY. */
gyre_status gyre_signals_take(struct gyre_comm *comm, uint64_t has_board);

/** gyre_signals_is_idle - are all puts, signals and waits of this rank done? */
bool gyre_signals_is_idle(const struct gyre_comm *comm);

/** gyre_signals_fini - tasks of this rank that are still queued end with an error when their turn
 * comes; they do not use the communicator any more. */
void gyre_signals_fini(struct gyre_comm *comm);

#endif
