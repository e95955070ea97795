/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures how accurate sums over ranks are. The inputs are random numbers of mixed magnitude,
 * which every rank can compute for all ranks. Results are compared with sums in twice the precision
 * of float64. Patterns (pattern.h) show that the right elements were added; this shows how exactly.
 */
#ifndef GYRE_KERNELS_ACCURACY_H
#define GYRE_KERNELS_ACCURACY_H

#include "core/foundation/device/device.h"

struct gyre_accuracy_inputs {
    gyre_dtype dtype;
    uint32_t n_ranks; /* ranks whose inputs are summed */
    uint32_t seed;    /* changes every value */
};

/* The error of a result y of a sum of x_i is |y - sum x_i| / sum |x_i|, without unit. It is
 * infinite if y is a NaN or infinite. */
struct gyre_accuracy_error {
    double max;
    double sum; /* over n_elems elements; the mean is sum / n_elems */
    uint64_t n_elems;
};

/** gyre_accuracy_fill - write the inputs 0 .. count - 1 of a rank. Signs, mantissas and exponents
 * are random. The exponents cover 24 powers of two, or fewer if the type has fewer between its
 * smallest normal number and the largest number of which n_ranks can be added without overflow.
 * @buffer: device memory of count elements; synchronous.
 * Errors: INVALID_ARGUMENT (not a floating-point type, no such rank). */
gyre_status gyre_accuracy_fill(struct gyre_device *device,
                               const struct gyre_accuracy_inputs *inputs, uint32_t rank,
                               uint64_t count, void *buffer);

/** gyre_accuracy_check - add the errors of `count` sums over all ranks' inputs to those in @error.
 * @buffer: device memory of count elements; synchronous. Errors: as gyre_accuracy_fill(). */
gyre_status gyre_accuracy_check(struct gyre_device *device,
                                const struct gyre_accuracy_inputs *inputs, uint64_t count,
                                const void *buffer, struct gyre_accuracy_error *error);

/** gyre_accuracy_bound - the largest error that n - 1 additions in any order may have, each rounded
 * to the type: k u / (1 - k u), where k = n - 1 and u is half the type's machine epsilon (Higham,
 * Accuracy and Stability of Numerical Algorithms, 2nd edition, section 4.2). Types narrower than
 * f32 are added in f32 first, so the bound includes f32's roundings. Infinite where k u is 1 or
 * more; 0 for types that are not floating-point. Pure. */
double gyre_accuracy_bound(gyre_dtype dtype, uint32_t n_ranks);

#endif
