/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hog.h"

#include "kernels/cuda/device/sync.cuh"

#define LONGEST_NS 10000000000ULL

static __global__ void hog(const volatile uint32_t *is_over, uint32_t *n_started)
{
    const uint64_t begin_ns = global_ns();
    if (threadIdx.x == 0)
        atomicAdd_system(n_started, 1U);
    while (*is_over == 0 && global_ns() - begin_ns < LONGEST_NS)
        ;
}

extern "C" cudaError_t hog_start(int n_blocks, const uint32_t *is_over, uint32_t *n_started,
                                 cudaStream_t stream)
{
    int device, n_bytes;
    void *arguments[] = {&is_over, &n_started};
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&n_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute((const void *)&hog,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes);
    if (error == cudaSuccess)
        error = cudaLaunchKernel((const void *)&hog, dim3((unsigned)n_blocks), dim3(32), arguments,
                                 (size_t)n_bytes, stream);
    return error;
}
