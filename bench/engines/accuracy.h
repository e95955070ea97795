/* SPDX-License-Identifier: Apache-2.0
 *
 * --accuracy: the rounding errors of gyre's sums beside those of another engine.
 */
#ifndef GYRE_BENCH_ACCURACY_H
#define GYRE_BENCH_ACCURACY_H

#include "bench/engines/compare.h"

/* Errors over all results of one line. As in kernels/accuracy.h, the largest over the ranks. */
struct bench_accuracy {
    double max;
    double mean;
};

/** bench_is_as_accurate - is gyre's error no larger than the other engine's? The largest and the
 * mean error may each exceed the other engine's by a factor, because two correct engines that add
 * in different orders differ by chance. Pure. */
bool bench_is_as_accurate(const struct bench_accuracy *gyre,
                          const struct bench_accuracy *reference);

/** bench_accuracy - sum random inputs with gyre and with the engine, and print a line for each
 * type, size and mode. Rank 0 prints. Collective.
 * @engine: ops NULL = gyre alone.
 * @n_failed_out: number of lines where gyre's error is larger than the engine's, or larger than the
 * bound that holds for any order of additions.
 * Errors: UNSUPPORTED (not an all-reduce), INVALID_ARGUMENT (not a sum, or not a floating-point
 * type). */
gyre_status bench_accuracy(struct bench_rank *rank, const struct bench_engine *engine,
                           int *n_failed_out);

#endif
