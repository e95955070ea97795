/* SPDX-License-Identifier: Apache-2.0
 *
 * --accuracy: the rounding errors of gyre's sums beside those of another engine.
 */
#ifndef GYRE_BENCH_ACCURACY_H
#define GYRE_BENCH_ACCURACY_H

#include "bench/engines/compare.h"

struct bench_accuracy {
    double max;
    double mean;
};

/** bench_is_as_accurate - but for a factor by which two correct engines that add in different
 * orders differ by chance. Pure. */
bool bench_is_as_accurate(const struct bench_accuracy *gyre,
                          const struct bench_accuracy *reference);

/** bench_accuracy - rank 0 prints a line for each type, size and mode. Collective. @engine: ops
 * NULL = gyre alone. @n_failed_out: lines where gyre's error exceeds the engine's, or the bound of
 * any order of additions. Errors: UNSUPPORTED (not an all-reduce), INVALID_ARGUMENT (not a sum, or
 * not a floating-point type). */
gyre_status bench_accuracy(struct bench_rank *rank, const struct bench_engine *engine,
                           int *n_failed_out);

#endif
