/* SPDX-License-Identifier: Apache-2.0
 *
 * Block placement: SIMPLE's blocks run on chosen multiprocessors. CUDA puts a launch's first blocks
 * on few clusters (GPCs), whose multiprocessors share what the cluster can send, so the slowest
 * cluster decides. Multiprocessors 0 to n - 1 are spread evenly over all clusters. Therefore a
 * launch has one block for every multiprocessor, and those on the first n work.
 *
 * CUDA does not promise where a block runs. A block without a free place of its own waits a moment
 * and leaves, unless enough blocks have left. The remaining blocks take the places that are left.
 * No block waits for a block that has not begun.
 */
#ifndef GYRE_KERNELS_CUDA_BLOCK_PLACEMENT_CUH
#define GYRE_KERNELS_CUDA_BLOCK_PLACEMENT_CUH

#include "kernels/cuda/device/sync.cuh"

#define NO_PLACEMENT      UINT32_MAX
#define PLACEMENT_WAIT_NS 5000

static __device__ __forceinline__ bool claim_placement(struct gyre_cuda_places *places,
                                                       uint32_t place)
{
    const uint32_t bit = 1U << place % 32;
    if ((atomicOr(&places->taken[place / 32], bit) & bit) != 0)
        return false;
    atomicAdd(&places->n_taken, 1U);
    return true;
}

/* One thread of the block calls this. */
static __device__ __noinline__ uint32_t find_placement(struct gyre_cuda_places *places,
                                                       uint32_t n_places, uint32_t n_blocks)
{
    const uint32_t own = multiprocessor();
    if (own < n_places && claim_placement(places, own))
        return own;
    /* If this block left at once, the GPU would start another surplus block here. All blocks wait
     * from the same time on, because they start in many waves on a busy GPU. */
    const uint64_t now_ns = global_ns();
    const uint64_t first_ns = atomicCAS((unsigned long long *)&places->begin_ns, 0ULL, now_ns);
    const uint64_t begin_ns = first_ns == 0 ? now_ns : first_ns;
    while (load_relaxed_sys(&places->n_taken) < n_places &&
           global_ns() - begin_ns < PLACEMENT_WAIT_NS)
        ;
    if (atomicAdd(&places->n_leaving, 1U) < n_blocks - n_places)
        return NO_PLACEMENT;
    uint32_t place = 0;
    while (!claim_placement(places, place % n_places))
        place++;
    return place % n_places;
}

/* All threads, after await_last_launch(). */
static __device__ __forceinline__ uint32_t place_block(const struct gyre_cuda_common &common)
{
    __shared__ uint32_t place;
    if (common.n_places == common.n_blocks)
        return blockIdx.x;
    if (threadIdx.x == 0)
        place = find_placement(&common.control->places, common.n_places, common.n_blocks);
    __syncthreads();
    return place;
}

/* By the last block of a launch. */
static __device__ __forceinline__ void clear_placements(const struct gyre_cuda_common &common)
{
    struct gyre_cuda_places *places = &common.control->places;
    if (common.n_places == common.n_blocks)
        return;
    for (uint32_t i = 0; i < GYRE_CUDA_MAX_BLOCKS / 32; i++)
        places->taken[i] = 0;
    places->n_taken = places->n_leaving = 0;
    places->begin_ns = 0;
}

#endif
