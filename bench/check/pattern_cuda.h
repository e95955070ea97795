/* SPDX-License-Identifier: Apache-2.0
 *
 * Valid as C11, as C++ and as CUDA.
 */
#ifndef GYRE_BENCH_CHECK_PATTERN_CUDA_H
#define GYRE_BENCH_CHECK_PATTERN_CUDA_H

#include "bench/check/pattern_values.h"

struct pattern_range {
    struct gyre_pattern pattern;
    uint32_t rank; /* GYRE_PATTERN_REDUCED: the reduction */
    uint64_t first;
    uint64_t count;
};

/* Device memory, zeroed but for first_wrong. */
struct pattern_result {
    unsigned long long n_wrong;
    unsigned long long first_wrong; /* from `first`; the largest number = none */
};

struct gyre_cuda_args_pattern {
    struct pattern_range range;
    void *buffer;
    struct pattern_result *result; /* NULL: fill */
};

#ifdef __cplusplus
extern "C" {
#endif

/* [checks][log2 of the bytes of an element] */
extern const void *const gyre_cuda_kernels_pattern[2][4];

gyre_status gyre_pattern_fill_cuda(struct gyre_device *device, const struct gyre_pattern *pattern,
                                   uint32_t rank, uint64_t first, uint64_t count, void *buffer);
gyre_status gyre_pattern_check_cuda(struct gyre_device *device, const struct gyre_pattern *pattern,
                                    uint32_t rank, uint64_t first, uint64_t count,
                                    const void *buffer, struct gyre_pattern_errors *errors_out);

#ifdef __cplusplus
}
#endif

#endif
