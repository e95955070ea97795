/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel that does nothing. Its parameters are as long as those of gyre's kernels for short
 * calls.
 */
#include "bench/limits/empty_launch.h"

#include "core/device/cuda_error.h"

struct parameters {
    char bytes[BENCH_PARAMETER_BYTES];
};

static __global__ void empty(const __grid_constant__ struct parameters) {}

extern "C" gyre_status bench_launch_empty(gyre_stream stream)
{
    struct parameters parameters = {};
    void *params[] = {&parameters};
    GYRE_CUDA_TRY(
        cudaLaunchKernel((const void *)empty, dim3(1), dim3(32), params, 0, (cudaStream_t)stream));
    return GYRE_SUCCESS;
}
