/* SPDX-License-Identifier: Apache-2.0
 *
 * The programs of all ranks of a shape together, for the verifier. Every worker of every rank has a
 * number, and every FIFO has a number, one sending worker and one receiving worker.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_NETWORK_H
#define GYRE_ALGORITHMS_VERIFY_NETWORK_H

#include "core/foundation/model/schedule.h"

struct gyre_network_fifo {
    uint32_t sender; /* worker */
    uint32_t receiver;
    uint16_t from; /* rank */
    uint16_t to;
    uint8_t lane;
};

struct gyre_network {
    const struct gyre_program *const *programs;
    uint32_t n_ranks;
    uint32_t n_workers;
    uint32_t n_fifos;
    struct gyre_network_fifo *fifos;
    uint32_t *first_worker;     /* by rank; n_ranks + 1 entries */
    uint32_t *first_connection; /* by rank; n_ranks + 1 entries */
    uint32_t *fifo_of;          /* by first_connection[rank] + connection */
};

/** gyre_network_open - check that the programs belong together, and number workers and FIFOs. The
 * programs must be of one shape and stand by rank, and every sending end must have a receiving end.
 * @programs: must outlive the network.
 * Errors: INVALID_ARGUMENT with the reason, OUT_OF_MEMORY. */
gyre_status gyre_network_open(const struct gyre_program *const *programs, int n_ranks,
                              struct gyre_network **network_out);
void gyre_network_close(struct gyre_network *network);

#endif
