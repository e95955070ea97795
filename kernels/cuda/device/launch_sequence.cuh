/* SPDX-License-Identifier: Apache-2.0
 *
 * The launch sequence: how the host learns which launches have begun and ended, replays of graphs
 * included. In line protocols each block reports its own end (struct gyre_cuda_mailbox), because
 * finding the last block takes a round trip to memory. In SIMPLE the last block reports for all,
 * those that block_placement.cuh sent away too, because reports are slow while links are busy.
 *
 * A block's last thread does all of this, because the first threads have more to do.
 */
#ifndef GYRE_KERNELS_CUDA_LAUNCH_SEQUENCE_CUH
#define GYRE_KERNELS_CUDA_LAUNCH_SEQUENCE_CUH

#include "kernels/cuda/device/block_placement.cuh"
#include "kernels/cuda/device/record.cuh"

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
