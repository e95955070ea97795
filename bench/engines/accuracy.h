/* SPDX-License-Identifier: Apache-2.0
 *
 * --accuracy: rounding errors of gyre's sums beside another engine's.
 */
#ifndef GYRE_BENCH_ACCURACY_H
#define GYRE_BENCH_ACCURACY_H

#include "bench/engines/compare.h"

struct bench_accuracy {
    double max;
    double mean;
};

/** Allows for the factor by which correct engines with different orders differ by chance. Pure. */
bool bench_is_as_accurate(const struct bench_accuracy *gyre,
                          const struct bench_accuracy *reference);

/** Rank 0 prints a line for each type, size and mode. Collective. @engine: ops NULL = gyre alone.
 * @n_failed_out: lines with an error above the engine's or above the bound. Errors: UNSUPPORTED
 * (not an all-reduce), INVALID_ARGUMENT (not a sum, or not floating-point). */
gyre_status bench_accuracy(struct bench_rank *rank, const struct bench_engine *engine,
                           int *n_failed_out);

#endif
