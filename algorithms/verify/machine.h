/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs all programs of a network together at one FIFO depth. FIFOs block and each has one sender
 * and one receiver, so the order in which workers run does not change the result, and one run
 * proves all of them. A sequence of WITH_NEXT steps is run together, when all slots that its steps
 * need are available. If that never deadlocks, no order of these steps deadlocks.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_MACHINE_H
#define GYRE_ALGORITHMS_VERIFY_MACHINE_H

#include "algorithms/verify/network.h"
#include "algorithms/verify/verify.h"

/* Steps of one worker that are run together. */
struct gyre_firing {
    uint32_t rank;
    uint32_t worker;     /* number within the rank */
    uint32_t first_step; /* index in the program */
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
    bool is_deadlock;               /* the run failed with a deadlock */
    struct gyre_verify_place place; /* the first worker that waits in a deadlock */
    uint64_t n_steps;               /* steps that were run */
};

/** gyre_machine_run - run until all workers are done.
 * Errors: INVALID_ARGUMENT with the reason (a deadlock, naming the ranks that wait for each other,
 * or slots that are left in a FIFO), what fire() returns, OUT_OF_MEMORY. */
gyre_status gyre_machine_run(const struct gyre_network *network,
                             const struct gyre_machine_options *options,
                             struct gyre_machine_result *result_out);

#endif
