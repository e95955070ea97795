/* SPDX-License-Identifier: Apache-2.0
 *
 * How far sums over ranks are from the true ones: random inputs of mixed magnitude that every rank
 * can compute for all, and results held against sums in twice the precision of float64. Patterns
 * (pattern.h) show that the right elements were added; this shows how well.
 */
#ifndef GYRE_KERNELS_ACCURACY_H
#define GYRE_KERNELS_ACCURACY_H

#include "core/device/device.h"

struct gyre_accuracy_inputs {
    gyre_dtype dtype;
    uint32_t n_ranks; /* that are summed */
    uint32_t seed;    /* changes every value */
};

/* Of results y of sums of x_i: |y - sum x_i| / sum |x_i|, without unit. Infinite where y is a NaN
 * or infinite. */
struct gyre_accuracy_error {
    double max;
    double sum; /* over n_elems elements; the mean is sum / n_elems */
    uint64_t n_elems;
};

/** gyre_accuracy_fill - write rank's inputs 0 .. count - 1: signs, mantissas and exponents at
 * random, over 24 powers of two or as many as the type has between its smallest normal number and
 * what n_ranks of them may reach without overflow.
 * @buffer: device memory of count elements; synchronous.
 * Errors: INVALID_ARGUMENT (not a floating-point type, no such rank). */
gyre_status gyre_accuracy_fill(struct gyre_device *device,
                               const struct gyre_accuracy_inputs *inputs, uint32_t rank,
                               uint64_t count, void *buffer);

/** gyre_accuracy_check - add the errors of count sums over all ranks' inputs to those in @error.
 * @buffer: device memory of count elements; synchronous. Errors: as above. */
gyre_status gyre_accuracy_check(struct gyre_device *device,
                                const struct gyre_accuracy_inputs *inputs, uint64_t count,
                                const void *buffer, struct gyre_accuracy_error *error);

/** gyre_accuracy_bound - the largest error that n - 1 additions in any order may have, each rounded
 * to the type: k u / (1 - k u), where k = n - 1 and u is half the type's machine epsilon (Higham,
 * Accuracy and Stability of Numerical Algorithms, 2nd edition, section 4.2). Types narrower than
 * f32 are added in f32 first, so its roundings come on top. Infinite where k u is 1 or more; 0 for
 * types that are not floating-point. Pure. */
double gyre_accuracy_bound(gyre_dtype dtype, uint32_t n_ranks);

#endif
