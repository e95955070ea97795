/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/watch.h"

#include "kernels/cuda/device/sync.cuh"

#define LONGEST_NS 10000000000ULL

static __global__ void watch(const uint64_t *data, uint64_t n_words, const uint64_t *flag,
                             uint64_t n_rounds, struct watch_report *report)
{
    __shared__ bool is_there;
    for (uint64_t round = 1; round <= n_rounds; round++) {
        if (threadIdx.x == 0) {
            const uint64_t begin_ns = global_ns();
            do
                is_there = load_acquire_sys(flag) == round;
            while (!is_there && global_ns() - begin_ns < LONGEST_NS);
        }
        __syncthreads();
        if (!is_there)
            return;
        for (uint64_t i = threadIdx.x; i < n_words; i += blockDim.x)
            if (load_relaxed_sys(&data[i]) != round)
                atomicAdd_system((unsigned long long *)&report->n_wrong, 1ULL);
        __syncthreads();
        if (threadIdx.x == 0) {
            fence_acq_rel_sys();
            store_relaxed_sys(&report->n_seen, round);
        }
    }
}

extern "C" cudaError_t watch_start(const uint64_t *data, uint64_t n_words, const uint64_t *flag,
                                   uint64_t n_rounds, struct watch_report *report,
                                   cudaStream_t stream)
{
    void *arguments[] = {&data, &n_words, &flag, &n_rounds, &report};
    return cudaLaunchKernel((const void *)&watch, dim3(1), dim3(256), arguments, 0, stream);
}
