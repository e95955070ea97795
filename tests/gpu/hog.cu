/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hog.h"

#include "kernels/cuda/device/sync.cuh"

#define LONGEST_NS 250000000000ULL

static __global__ void hog(const __grid_constant__ struct hog_args args)
{
    const uint64_t begin_ns = global_ns();
    if (threadIdx.x == 0)
        atomicAdd_system(args.n_started, 1U);
    while (*args.is_over == 0 && global_ns() - begin_ns < LONGEST_NS)
        ;
}

extern "C" const void *const hog_kernel = (const void *)&hog;

extern "C" cudaError_t hog_start(int n_blocks, const uint32_t *is_over, uint32_t *n_started,
                                 cudaStream_t stream)
{
    int device, n_bytes;
    struct hog_args args = {is_over, n_started};
    void *arguments[] = {&args};
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&n_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error == cudaSuccess)
        error =
            cudaFuncSetAttribute(hog_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes);
    if (error == cudaSuccess)
        error = cudaLaunchKernel(hog_kernel, dim3((unsigned)n_blocks), dim3(32), arguments,
                                 (size_t)n_bytes, stream);
    return error;
}
