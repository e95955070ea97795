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

#endif
