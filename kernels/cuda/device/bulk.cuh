/* SPDX-License-Identifier: Apache-2.0
 *
 * Bulk stores of zeros by the copy hardware, while threads work (PTX ISA, cp.async.bulk).
 */
#ifndef GYRE_KERNELS_CUDA_BULK_CUH
#define GYRE_KERNELS_CUDA_BULK_CUH

#include "kernels/cuda/device/ptx.cuh"

#if __CUDA_ARCH__ >= 900
#define HAS_BULK_STORES true
#else
#define HAS_BULK_STORES false
#endif

#define BULK_BYTES 512 /* 16 bytes for each lane of a warp */

/* In shared memory. */
struct __align__(16) bulk_zeros
{
    uint64_t words[BULK_BYTES / sizeof(uint64_t)];
};

/* All threads. A barrier of the block follows before the first bulk store. */
static __device__ __forceinline__ void bulk_prepare(struct bulk_zeros *zeros)
{
    if constexpr (HAS_BULK_STORES) {
        for (uint32_t i = threadIdx.x; i < BULK_BYTES / sizeof(uint64_t); i += blockDim.x)
            zeros->words[i] = 0;
        fence_proxy_async_shared();
    }
}

/* One thread. @n_bytes: a multiple of 16, at most BULK_BYTES. */
static __device__ __forceinline__ void bulk_clear(const struct bulk_zeros *zeros, void *to,
                                                  uint32_t n_bytes)
{
    bulk_store(to, zeros->words, n_bytes);
}

#endif
