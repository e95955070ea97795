/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_KERNELS_PATTERN_OPS_H
#define GYRE_KERNELS_PATTERN_OPS_H

#include "kernels/pattern.h"

/* In place of a rank. */
#define GYRE_PATTERN_REDUCED UINT32_MAX

struct gyre_pattern_ops {
    /* Synchronous. */
    gyre_status (*fill)(struct gyre_device *device, const struct gyre_pattern *pattern,
                        uint32_t rank, uint64_t first, uint64_t count, void *buffer);
    /* Fills all of *errors_out. */
    gyre_status (*check)(struct gyre_device *device, const struct gyre_pattern *pattern,
                         uint32_t rank, uint64_t first, uint64_t count, const void *buffer,
                         struct gyre_pattern_errors *errors_out);
};

extern const struct gyre_pattern_ops gyre_pattern_host;
#ifdef GYRE_WITH_CUDA
extern const struct gyre_pattern_ops gyre_pattern_cuda;
#endif

#endif
