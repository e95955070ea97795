/* SPDX-License-Identifier: Apache-2.0
 *
 * Its parameters are as long as those of gyre's kernels for short calls.
 */
#include "bench/limits/empty_launch.h"

#include "core/foundation/device/cuda_error.h"

extern "C" {
#include "core/foundation/base/util.h"
}

static __global__ void empty(const __grid_constant__ struct bench_empty_args) {}

extern "C" const void *const bench_empty_kernel = (const void *)&empty;

static gyre_status launch_empty(cudaStream_t stream)
{
    struct bench_empty_args args = {};
    void *params[] = {&args};
    GYRE_CUDA_TRY(cudaLaunchKernel(bench_empty_kernel, dim3(1), dim3(32), params, 0, stream));
    return GYRE_SUCCESS;
}

#define N_WARMUP 10 /* the first launch also loads the kernel */

extern "C" gyre_status bench_time_launches(int ordinal, gyre_stream stream, int n_launches,
                                           double *us_out)
{
    const cudaStream_t own = (cudaStream_t)stream;
    gyre_status status = GYRE_SUCCESS;
    int previous;
    uint64_t start_ns = 0;
    GYRE_TRY(gyre_cuda_enter(ordinal, &previous));
    for (int i = 0; i < N_WARMUP; i++)
        GYRE_TRY_GOTO(status, launch_empty(own), leave);
    GYRE_CUDA_TRY_GOTO(status, cudaStreamSynchronize(own), leave);
    start_ns = gyre_now_ns();
    for (int i = 0; i < n_launches; i++)
        GYRE_TRY_GOTO(status, launch_empty(own), leave);
    *us_out = (double)(gyre_now_ns() - start_ns) / 1e3 / n_launches;
    GYRE_CUDA_TRY_GOTO(status, cudaStreamSynchronize(own), leave);
leave:
    gyre_cuda_leave(ordinal, previous);
    return status;
}
