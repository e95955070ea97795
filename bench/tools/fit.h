/* SPDX-License-Identifier: Apache-2.0
 *
 * Fits the constants of the simulator to measured times. It minimises the squares of the
 * logarithms of predicted / measured, so that short and long calls count alike.
 */
#ifndef GYRE_BENCH_FIT_H
#define GYRE_BENCH_FIT_H

#include "core/engine/plan/plan.h"

/* One measured call. */
struct bench_fit_row {
    enum gyre_collective coll;
    struct gyre_choice choice;
    uint64_t n_bytes; /* of the count that the collective's function takes */
    uint32_t n_ranks; /* 0 = facts->n_ranks */
    double us;
    double predicted_us; /* by the fitted constants */
};

struct bench_fit {
    double error;    /* root mean square of log(predicted / measured) */
    double before;   /* the same error with the constants before the fit */
    int n_constants; /* number of fitted constants; the others keep their values */
    int n_iterations;
};

/** bench_fit - improve the constants in @cost. Constants on which no row depends stay near their
 * values. Deterministic.
 * @facts: of the communicator that was measured; a row with its own number of ranks overrides that
 * one fact. @rows: predicted_us is filled in.
 * Errors: INVALID_ARGUMENT (fewer rows than constants), or as gyre_simulator_open(). */
gyre_status bench_fit(const struct gyre_tuner_facts *facts, struct bench_fit_row *rows,
                      size_t n_rows, struct gyre_cost *cost, struct bench_fit *fit_out);

#endif
