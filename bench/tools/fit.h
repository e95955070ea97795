/* SPDX-License-Identifier: Apache-2.0
 *
 * Constants of the simulator from measured times: least squares of the logarithms of predicted
 * over measured, so that a microsecond and a second count alike.
 */
#ifndef GYRE_BENCH_FIT_H
#define GYRE_BENCH_FIT_H

#include "core/plan/plan.h"

/* One measured call. */
struct bench_fit_row {
    enum gyre_collective coll;
    struct gyre_choice choice;
    uint64_t n_bytes; /* as the collective's parameter counts */
    uint32_t n_ranks; /* 0 = facts->n_ranks */
    double us;
    double predicted_us; /* by the constants that were found */
};

struct bench_fit {
    double error;    /* root of the mean square of log(predicted / measured) */
    double before;   /* the same with the constants that it started from */
    int n_constants; /* that were fitted; the others are as they were */
    int n_iterations;
};

/** bench_fit - improve @cost; constants that the rows say nothing about stay near where they are.
 * Deterministic. @facts: of the communicator that was measured; of rows with other numbers of
 * ranks, all but those. @rows: predicted_us is set. Errors: INVALID_ARGUMENT (fewer rows than
 * constants), or as gyre_simulator_open(). */
gyre_status bench_fit(const struct gyre_tuner_facts *facts, struct bench_fit_row *rows,
                      size_t n_rows, struct gyre_cost *cost, struct bench_fit *fit_out);

#endif
