/* SPDX-License-Identifier: Apache-2.0
 *
 * --accuracy: the error of sums, gyre's beside the compared engine's.
 */
#ifndef GYRE_BENCH_ACCURACY_H
#define GYRE_BENCH_ACCURACY_H

#include "bench/engines/compare.h"

/* Over all results of a line; as in kernels/accuracy.h, the worst over the ranks. */
struct bench_accuracy {
    double max;
    double mean;
};

/** bench_is_as_accurate - is gyre's error no worse than the reference's? Max and mean each by a
 * factor of their own, because two right engines that add in different orders differ by chance.
 * Pure. */
bool bench_is_as_accurate(const struct bench_accuracy *gyre,
                          const struct bench_accuracy *reference);

/** bench_accuracy - random inputs through gyre and the reference (ops NULL = none), a line a type,
 * size and mode; rank 0 prints. Collective.
 * @n_failed_out: lines where gyre is worse than the reference, or than any order of additions may
 * be. Errors: UNSUPPORTED (not an all-reduce), INVALID_ARGUMENT (not a sum, not a floating-point
 * type). */
gyre_status bench_accuracy(struct bench_rank *rank, const struct bench_engine *reference,
                           int *n_failed_out);

#endif
