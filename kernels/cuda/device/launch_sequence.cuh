/* SPDX-License-Identifier: Apache-2.0
 *
 * The launch sequence: how the host learns which launches have begun and which have ended, replays
 * of graphs included. A block takes its number in the sequence while it loads its counters. To find
 * out which block is the last takes a round trip to memory, so each block of the line protocols
 * reports its own end to the host (struct gyre_cuda_mailbox). When links are busy, such reports are
 * slow: in SIMPLE the last block reports for all blocks, also for those that block_placement.cuh
 * sent away.
 *
 * The last thread of each block does all of this, because the first threads have more to do.
 */
#ifndef GYRE_KERNELS_CUDA_LAUNCH_SEQUENCE_CUH
#define GYRE_KERNELS_CUDA_LAUNCH_SEQUENCE_CUH

#include "kernels/cuda/device/block_placement.cuh"
#include "kernels/cuda/device/record.cuh"

static __device__ __forceinline__ bool reports_progress()
{
    return threadIdx.x == blockDim.x - 1;
}

/* After await_last_launch(). Returns, in the block's last thread, the number of completed
 * works << GYRE_CUDA_SEQUENCE_SHIFT | the number of blocks of this launch that began earlier.
 * Returns 0 in all other threads. */
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

/* Tells the host that this launch has begun, before the block waits for a peer; a second call does
 * no harm. */
static __device__ __forceinline__ void announce_launch(const struct gyre_cuda_common &common,
                                                       uint64_t sequence)
{
    if (common.n_works != 0 && reports_progress() && n_begun_before(sequence) == 0)
        store_relaxed_sys(&common.mailbox->begun,
                          gyre_cuda_begun_word(&common, sequence >> GYRE_CUDA_SEQUENCE_SHIFT));
}

/* As announce_launch(), in a block that sends before it waits. A recorded launch marks that
 * moment. */
static __device__ __forceinline__ void announce_sent(const struct gyre_cuda_common &common,
                                                     uint64_t sequence)
{
    if (is_recorded(common) && common.n_works != 0 && reports_progress())
        record_mark(common.recording.recorder, GYRE_CUDA_MARK_SENT);
    announce_launch(common, sequence);
}

/* SIMPLE. The last block of the launch also clears the placements. */
static __device__ __forceinline__ bool is_last_to_end(const struct gyre_cuda_common &common)
{
    const uint32_t last = common.n_blocks - 1;
    if (last > 0 && atomicInc(&common.control->n_ended, last) != last)
        return false;
    clear_placements(common);
    return true;
}

/* After the block's last wait. @number: among the blocks that work. @facts: what a recorded launch
 * says of the block's work. */
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
    if (n_begun_before(sequence) ==
        common.n_places - 1) { /* all blocks have begun: set the word for the next launch */
        common.control->sequence = n_completed << GYRE_CUDA_SEQUENCE_SHIFT;
        if (common.n_places < common.n_blocks)
            __threadfence(); /* for the reader in end_unplaced_block() */
    }
    if (common.n_reports > 1)
        store_relaxed_sys(&common.mailbox->ended[number], n_completed);
    else if (is_last_to_end(common))
        store_relaxed_sys(&common.mailbox->ended[0], n_completed);
}

/* A block without a place calls this before it leaves. If it is the last block of the launch, all
 * other blocks have begun and ended. */
static __device__ __forceinline__ void end_unplaced_block(const struct gyre_cuda_common &common)
{
    if (!reports_progress() || !is_last_to_end(common))
        return;
    __threadfence();
    store_relaxed_sys(&common.mailbox->ended[0],
                      load_relaxed_sys(&common.control->sequence) >> GYRE_CUDA_SEQUENCE_SHIFT);
}

#endif
