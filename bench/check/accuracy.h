/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the accuracy of sums over ranks against sums in twice float64's precision. Every rank
 * can compute the inputs of all ranks.
 */
#ifndef GYRE_BENCH_CHECK_ACCURACY_H
#define GYRE_BENCH_CHECK_ACCURACY_H

#include "core/foundation/device/device.h"

struct gyre_accuracy_inputs {
    gyre_dtype dtype;
    uint32_t n_ranks;
    uint32_t seed;
};

/* Of a result y: |y - sum x_i| / sum |x_i|; infinite if y is not finite. */
struct gyre_accuracy_error {
    double max;
    double sum;
    uint64_t n_elems;
};

/** gyre_accuracy_fill - random normal numbers over at most 24 powers of two, whose sums are finite.
 * @buffer: device memory; synchronous. Errors: INVALID_ARGUMENT (dtype, rank). */
gyre_status gyre_accuracy_fill(struct gyre_device *device,
                               const struct gyre_accuracy_inputs *inputs, uint32_t rank,
                               uint64_t count, void *buffer);

gyre_status gyre_accuracy_check(struct gyre_device *device,
                                const struct gyre_accuracy_inputs *inputs, uint64_t count,
                                const void *buffer, struct gyre_accuracy_error *error);

/** gyre_accuracy_bound - the largest error of n - 1 additions in any order: k u / (1 - k u), k = n
 * - 1, u half the machine epsilon (Higham, Accuracy and Stability of Numerical Algorithms, 2nd
 * edition, section 4.2). Includes f32's roundings for narrower types. Infinite where k u >= 1; 0
 * for integers. Pure. */
double gyre_accuracy_bound(gyre_dtype dtype, uint32_t n_ranks);

#endif
