/* SPDX-License-Identifier: Apache-2.0
 *
 * Inputs and expected results for benches and tests. The values are so small that every reduction
 * of them is exact in its type, in any order. Results can therefore be compared bit by bit.
 */
#ifndef GYRE_KERNELS_PATTERN_H
#define GYRE_KERNELS_PATTERN_H

#include "core/foundation/device/device.h"

struct gyre_pattern {
    gyre_dtype dtype;
    gyre_op op;       /* SUM..AVG: how the values will be reduced; SUM for copies */
    uint32_t n_ranks; /* ranks that contribute */
    uint32_t seed;    /* changes every value; use another one for every call */
};

/* The mismatches that were found, counted in elements. */
struct gyre_pattern_errors {
    uint64_t n_wrong;
    uint64_t first_wrong; /* element index, if n_wrong > 0 */
    uint64_t expected;    /* bits */
    uint64_t got;         /* bits */
};

/** gyre_pattern_fill - write rank's input elements first .. first + count - 1 of the pattern.
 * @buffer: device memory of count elements; synchronous. */
gyre_status gyre_pattern_fill(struct gyre_device *device, const struct gyre_pattern *pattern,
                              uint32_t rank, uint64_t first, uint64_t count, void *buffer);

/** gyre_pattern_check_copy - does the buffer hold rank's input elements first .. first+count-1? */
gyre_status gyre_pattern_check_copy(struct gyre_device *device, const struct gyre_pattern *pattern,
                                    uint32_t rank, uint64_t first, uint64_t count,
                                    const void *buffer, struct gyre_pattern_errors *errors_out);

/** gyre_pattern_check_reduced - does the buffer hold the reduction over all n_ranks? */
gyre_status gyre_pattern_check_reduced(struct gyre_device *device,
                                       const struct gyre_pattern *pattern, uint64_t first,
                                       uint64_t count, const void *buffer,
                                       struct gyre_pattern_errors *errors_out);

#endif
