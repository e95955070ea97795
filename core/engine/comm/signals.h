/* SPDX-License-Identifier: Apache-2.0
 *
 * One-sided calls. A rank writes into another rank's window and then counts up a signal there; the
 * other rank waits on its stream until enough signals have come. Each rank has counters of its own
 * (kernels/executor.h). They are made and shared with the communicator's first window, as if they
 * were a window, too.
 */
#ifndef GYRE_COMM_SIGNALS_H
#define GYRE_COMM_SIGNALS_H

#include "transport/transport.h"

struct gyre_comm;

/* One rank's part. All zero until the communicator's first window. */
struct gyre_signals {
    uint64_t **counters; /* by rank: its counters, as addresses of this rank; NULL = not mapped */
    struct gyre_share_mapping *mappings; /* by rank; own rank: all zero */
    bool is_exported;                    /* other processes map this rank's counters */
};

/** gyre_signals_export - make this rank's counters, unless they exist, and describe them for the
 * other ranks. @to_processes: some rank is another process. Errors: OUT_OF_MEMORY, DEVICE,
 * UNSUPPORTED with the reason. */
gyre_status gyre_signals_export(struct gyre_comm *comm, bool to_processes,
                                struct gyre_share_handle *handle_out);

/** gyre_signals_import - map another rank's counters, unless they are mapped. Errors: as
 * gyre_share_import(); REMOTE: the rank has ended its communicator since then. */
gyre_status gyre_signals_import(struct gyre_comm *comm, int rank,
                                const struct gyre_share_handle *handle);

/** gyre_signals_fini - give back all counters. The executor is closed. */
void gyre_signals_fini(struct gyre_comm *comm);

#endif
