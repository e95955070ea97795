/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel that does nothing. Its parameters are as long as those of gyre's kernels for short
 * calls.
 */
#include "bench/limits/empty_launch.h"

#include "core/foundation/device/cuda_error.h"

static __global__ void empty(const __grid_constant__ struct bench_empty_args) {}

extern "C" const void *const bench_empty_kernel = (const void *)&empty;

extern "C" gyre_status bench_launch_empty(gyre_stream stream)
{
    struct bench_empty_args args = {};
    void *params[] = {&args};
    GYRE_CUDA_TRY(
        cudaLaunchKernel(bench_empty_kernel, dim3(1), dim3(32), params, 0, (cudaStream_t)stream));
    return GYRE_SUCCESS;
}
