/* SPDX-License-Identifier: Apache-2.0
 *
 * How the host learns which launches began and which are over, replays of graphs included. A block
 * takes a number when it begins, while its counters are on their way too. Blocks end in any order;
 * to ask which one is the last is a trip to memory and back, 0.35 us of the 3 to 8 that a short
 * call takes. So blocks of the line protocols report each its own end to the host
 * (gyre_cuda_board). While much is under way on links such reports take longer, of 64 blocks up to
 * 1.4 us: of SIMPLE's blocks the last one reports for all, those without a seat (seat.cuh) too:
 * what is reported as over does not run any more. (2 H200, 2026-11.)
 *
 * One thread of each block does all of it, the last one: the first ones have more to do.
 */
#ifndef GYRE_KERNELS_CUDA_TURN_CUH
#define GYRE_KERNELS_CUDA_TURN_CUH

#include "kernels/cuda/device/seat.cuh"

static __device__ __forceinline__ bool keeps_turn()
{
    return threadIdx.x == blockDim.x - 1;
}

/* The launch before is over. Returns works completed << GYRE_CUDA_TURN_SHIFT | blocks of this
 * launch that began earlier; 0 to other threads. */
static __device__ __forceinline__ uint64_t take_turn(const struct gyre_cuda_common &common)
{
    if (common.n_works == 0 || !keeps_turn())
        return 0;
    return atomicAdd((unsigned long long *)&common.control->turn, 1ULL);
}

static __device__ __forceinline__ uint32_t n_begun_before(uint64_t turn)
{
    return (uint32_t)turn & ((1U << GYRE_CUDA_TURN_SHIFT) - 1);
}

/* Before the block waits for a peer; more than once does no harm. */
static __device__ __forceinline__ void announce_turn(const struct gyre_cuda_common &common,
                                                     uint64_t turn)
{
    if (common.n_works != 0 && keeps_turn() && n_begun_before(turn) == 0)
        store_relaxed_sys(&common.board->begun,
                          gyre_cuda_begun_word(&common, turn >> GYRE_CUDA_TURN_SHIFT));
}

/* SIMPLE: counts a block that ends, and clears the seats if it is the last one of all. */
static __device__ __forceinline__ bool is_last_to_end(const struct gyre_cuda_common &common)
{
    const uint32_t last = common.n_blocks - 1;
    if (last > 0 && atomicInc(&common.control->n_ended, last) != last)
        return false;
    clear_seats(common);
    return true;
}

/* After the block's last wait. @number: of the block among those that work. */
static __device__ __forceinline__ void end_turn(const struct gyre_cuda_common &common,
                                                uint64_t turn, uint32_t number)
{
    const uint64_t n_completed =
        (turn >> GYRE_CUDA_TURN_SHIFT) + (common.ends_works != 0 ? common.n_works : 0);
    if (common.n_works == 0 || !keeps_turn())
        return;
    if (n_begun_before(turn) == common.n_seats - 1) { /* all have begun: the next launch's turns */
        common.control->turn = n_completed << GYRE_CUDA_TURN_SHIFT;
        if (common.n_seats < common.n_blocks)
            __threadfence(); /* for the reader in end_without_seat() */
    }
    if (common.n_reports > 1)
        store_relaxed_sys(&common.board->ended[number], n_completed);
    else if (is_last_to_end(common))
        store_relaxed_sys(&common.board->ended[0], n_completed);
}

/* Of a block that takes no turn. If it is the last one, all turns have been taken and ended. */
static __device__ __forceinline__ void end_without_seat(const struct gyre_cuda_common &common)
{
    if (!keeps_turn() || !is_last_to_end(common))
        return;
    __threadfence();
    store_relaxed_sys(&common.board->ended[0],
                      load_relaxed_sys(&common.control->turn) >> GYRE_CUDA_TURN_SHIFT);
}

#endif
