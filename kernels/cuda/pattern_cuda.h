/* SPDX-License-Identifier: Apache-2.0
 *
 * Valid as C++ and as CUDA.
 */
#ifndef GYRE_KERNELS_CUDA_PATTERN_CUDA_H
#define GYRE_KERNELS_CUDA_PATTERN_CUDA_H

#include "kernels/pattern_values.h"

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

/* [checks][log2 of the bytes of an element] */
extern "C" const void *const gyre_cuda_kernels_pattern[2][4];

#endif
