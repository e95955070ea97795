/* SPDX-License-Identifier: Apache-2.0
 *
 * The launch sequence: how the host learns which launches have begun and ended, replays of graphs
 * included. In line protocols each block reports its own end (struct gyre_cuda_mailbox), because
 * finding the last block takes a round trip to memory. In SIMPLE the last block reports for all,
 * those that place_block() sent away too, because reports are slow while links are busy.
 *
 * A block's last thread does all of this, because the first threads have more to do.
 */
#ifndef GYRE_KERNELS_CUDA_LAUNCH_SEQUENCE_CUH
#define GYRE_KERNELS_CUDA_LAUNCH_SEQUENCE_CUH

#include "kernels/cuda/device/record.cuh"
#include "kernels/cuda/device/sync.cuh"

/* Block placement: SIMPLE's blocks run on chosen multiprocessors. CUDA puts a launch's first blocks
 * on few clusters (GPCs), whose multiprocessors share what the cluster can send, so the slowest
 * cluster decides. Multiprocessors 0 to n - 1 are spread evenly over all clusters. Therefore a
 * launch has one block for every multiprocessor, and those on the first n work.
 *
 * CUDA does not promise where a block runs. A block without a free place of its own waits a moment
 * and leaves, unless enough blocks have left. The remaining blocks take the places that are left.
 * No block waits for a block that has not begun. */
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

static __device__ __forceinline__ bool reports_progress()
{
    return threadIdx.x == blockDim.x - 1;
}

/* After await_last_launch(). In the block's last thread: completed works <<
 * GYRE_CUDA_SEQUENCE_SHIFT | blocks that began earlier. In all others: 0. */
static __device__ __forceinline__ uint64_t begin_launch(const struct gyre_cuda_common &common)
{
    if (common.n_works == 0 || !reports_progress())
        return 0;
    const uint64_t sequence = atomicAdd((unsigned long long *)&common.control->sequence, 1ULL);
    if (is_recorded(common))
        record_begin(common.recording, sequence >> GYRE_CUDA_SEQUENCE_SHIFT);
    return sequence;
}

static __device__ __forceinline__ uint32_t n_begun_before(uint64_t sequence)
{
    return (uint32_t)sequence & ((1U << GYRE_CUDA_SEQUENCE_SHIFT) - 1);
}

/* Before the block waits for a peer. A second call does no harm. */
static __device__ __forceinline__ void announce_launch(const struct gyre_cuda_common &common,
                                                       uint64_t sequence)
{
    if (common.n_works != 0 && reports_progress() && n_begun_before(sequence) == 0)
        store_relaxed_sys(&common.mailbox->begun,
                          gyre_cuda_begun_word(&common, sequence >> GYRE_CUDA_SEQUENCE_SHIFT));
}

/* In a block that sends before it waits. */
static __device__ __forceinline__ void announce_sent(const struct gyre_cuda_common &common,
                                                     uint64_t sequence)
{
    if (is_recorded(common) && common.n_works != 0 && reports_progress())
        record_mark(common.recording.recorder, GYRE_CUDA_MARK_SENT);
    announce_launch(common, sequence);
}

/* Only SIMPLE calls this. */
static __device__ __forceinline__ bool is_last_to_end(const struct gyre_cuda_common &common)
{
    const uint32_t last = common.n_blocks - 1;
    if (last > 0 && atomicInc(&common.control->n_ended, last) != last)
        return false;
    clear_placements(common);
    return true;
}

/* After the block's last wait. @number: among the blocks that work. */
static __device__ __forceinline__ void end_launch(const struct gyre_cuda_common &common,
                                                  uint64_t sequence, uint32_t number,
                                                  const struct record_facts &facts)
{
    const uint64_t n_completed =
        (sequence >> GYRE_CUDA_SEQUENCE_SHIFT) + (common.ends_works != 0 ? common.n_works : 0);
    if (common.n_works == 0 || !reports_progress())
        return;
    if (is_recorded(common))
        record_end(common.recording, facts);
    if (n_begun_before(sequence) == common.n_places - 1) { /* all blocks have begun */
        common.control->sequence = n_completed << GYRE_CUDA_SEQUENCE_SHIFT;
        if (common.n_places < common.n_blocks)
            __threadfence(); /* for the reader in end_unplaced_block() */
    }
    if (common.n_reports > 1)
        store_relaxed_sys(&common.mailbox->ended[number], n_completed);
    else if (is_last_to_end(common))
        store_relaxed_sys(&common.mailbox->ended[0], n_completed);
}

/* If this block is the last of the launch, all other blocks have begun and ended. */
static __device__ __forceinline__ void end_unplaced_block(const struct gyre_cuda_common &common)
{
    if (!reports_progress() || !is_last_to_end(common))
        return;
    __threadfence();
    store_relaxed_sys(&common.mailbox->ended[0],
                      load_relaxed_sys(&common.control->sequence) >> GYRE_CUDA_SEQUENCE_SHIFT);
}

#endif
