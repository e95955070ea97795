/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs all programs of a network against each other at one FIFO depth. FIFOs block and each has one
 * sender and one receiver, so the order in which workers are picked decides nothing: one run
 * stands for all. A run of WITH_NEXT steps is carried out at once, when every slot that any of its
 * steps needs is there; if that never deadlocks, no order of these steps does.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_MACHINE_H
#define GYRE_ALGORITHMS_VERIFY_MACHINE_H

#include "algorithms/verify_network.h"

/* Steps of one worker that are carried out together. */
struct gyre_firing {
    uint32_t rank;
    uint32_t worker;     /* of the rank */
    uint32_t first_step; /* of the program */
    uint32_t n_steps;
    uint32_t tile;
};

struct gyre_machine_options {
    uint32_t depth;
    uint32_t n_tiles;
    gyre_status (*fire)(void *context, const struct gyre_firing *firing); /* NULL = only count */
    void *context;
};

struct gyre_machine_result {
    bool is_deadlock; /* the failure is one */
    uint64_t n_steps; /* carried out */
};

/** gyre_machine_run - run until all workers are done.
 * Errors: INVALID_ARGUMENT with the reason (a deadlock: who waits for whom; slots that are left in
 * a FIFO), what fire() returns, OUT_OF_MEMORY. */
gyre_status gyre_machine_run(const struct gyre_network *network,
                             const struct gyre_machine_options *options,
                             struct gyre_machine_result *result_out);

#endif
