/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions of the inputs are exact in any order, so results are compared bit by bit.
 */
#ifndef GYRE_BENCH_CHECK_PATTERN_H
#define GYRE_BENCH_CHECK_PATTERN_H

#include "core/foundation/device/device.h"

struct gyre_pattern {
    gyre_dtype dtype;
    gyre_op op; /* SUM for copies */
    uint32_t n_ranks;
    uint32_t seed; /* changes with every call */
};

struct gyre_pattern_errors {
    uint64_t n_wrong;
    uint64_t first_wrong; /* if n_wrong > 0 */
    uint64_t expected;    /* bits */
    uint64_t got;         /* bits */
};

/** gyre_pattern_fill - elements first .. first + count - 1. @buffer: device memory; synchronous. */
gyre_status gyre_pattern_fill(struct gyre_device *device, const struct gyre_pattern *pattern,
                              uint32_t rank, uint64_t first, uint64_t count, void *buffer);

gyre_status gyre_pattern_check_copy(struct gyre_device *device, const struct gyre_pattern *pattern,
                                    uint32_t rank, uint64_t first, uint64_t count,
                                    const void *buffer, struct gyre_pattern_errors *errors_out);

gyre_status gyre_pattern_check_reduced(struct gyre_device *device,
                                       const struct gyre_pattern *pattern, uint64_t first,
                                       uint64_t count, const void *buffer,
                                       struct gyre_pattern_errors *errors_out);

/* Sums over ranks, against sums in twice float64's precision. Every rank can compute the inputs of
 * all ranks. */

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
