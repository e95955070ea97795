/* SPDX-License-Identifier: Apache-2.0
 *
 * Least squares of log(predicted / measured), so that short and long calls count alike.
 */
#ifndef GYRE_BENCH_FIT_H
#define GYRE_BENCH_FIT_H

#include "core/gyre_model.h"

struct bench_fit_row {
    enum gyre_collective coll;
    struct gyre_choice choice;
    uint64_t n_bytes; /* of the function's count */
    uint32_t n_ranks; /* 0 = facts->n_ranks */
    double us;
    double predicted_us;
};

struct bench_fit {
    double error;  /* root mean square of log(predicted / measured) */
    double before; /* error before the fit */
    int n_constants;
    int n_iterations;
};

/** Improves @cost. Constants that no row needs stay near their values. Deterministic. @facts: of
 * the measured communicator, except a row's own ranks. Errors: INVALID_ARGUMENT (fewer rows than
 * constants), as gyre_simulator_open(). */
gyre_status bench_fit(const struct gyre_tuner_facts *facts, struct bench_fit_row *rows,
                      size_t n_rows, struct gyre_cost *cost, struct bench_fit *fit_out);

#endif
