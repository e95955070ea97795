/* SPDX-License-Identifier: Apache-2.0
 *
 * FIFOs block and have one sending and one receiving worker, so the order of workers does not
 * matter, and one run proves all. A WITH_NEXT sequence runs when all its slots are available: if
 * that never deadlocks, no order of its steps does.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_MACHINE_H
#define GYRE_ALGORITHMS_VERIFY_MACHINE_H

#include "algorithms/verify/verify.h"
#include "core/foundation/model/schedule.h"

struct gyre_network_fifo {
    uint32_t sender; /* worker */
    uint32_t receiver;
    uint16_t from; /* rank */
    uint16_t to;
    uint8_t lane;
};

struct gyre_verify_network {
    const struct gyre_program *const *programs;
    uint32_t n_ranks;
    uint32_t n_workers;
    uint32_t n_fifos;
    struct gyre_network_fifo *fifos;
    uint32_t *first_worker;     /* by rank; n_ranks + 1 entries */
    uint32_t *first_connection; /* likewise */
    uint32_t *fifo_of;          /* by first_connection[rank] + connection */
};

/** @programs: of one shape, by rank; must outlive the network. Errors: INVALID_ARGUMENT with the
 * reason, OUT_OF_MEMORY. */
gyre_status gyre_verify_network_open(const struct gyre_program *const *programs, int n_ranks,
                                     struct gyre_verify_network **network_out);
void gyre_verify_network_close(struct gyre_verify_network *network);

/* Steps of one worker that are run together. */
struct gyre_firing {
    uint32_t rank;
    uint32_t worker;
    uint32_t first_step;
    uint32_t n_steps;
    uint32_t tile;
};

struct gyre_machine_options {
    uint32_t depth;
    uint32_t n_tiles;
    gyre_status (*fire)(void *context, const struct gyre_firing *firing); /* NULL = only count */
    void *context;
};

#define GYRE_MACHINE_TOLD 8 /* waits of a deadlock */

struct gyre_machine_result {
    bool is_deadlock;
    struct gyre_verify_place place;                    /* first worker of a deadlock */
    uint32_t n_waits;                                  /* in the cycle, or in a chain that ends */
    struct gyre_verify_place waits[GYRE_MACHINE_TOLD]; /* the first ones */
    uint64_t n_steps;
};

/** A deadlock is told as a cycle of workers, or a chain up to a worker that is done. Errors:
 * INVALID_ARGUMENT with the reason (a deadlock, or slots left in a FIFO), what fire() returns,
 * OUT_OF_MEMORY. */
gyre_status gyre_machine_run(const struct gyre_verify_network *network,
                             const struct gyre_machine_options *options,
                             struct gyre_machine_result *result_out);

#endif
