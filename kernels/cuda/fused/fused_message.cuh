/* SPDX-License-Identifier: Apache-2.0
 *
 * A send, a receive, or one of each at once, in LL and LL128. All moving threads serve one "peer",
 * which may send to another rank than it receives from.
 *
 * With one row of blocks, each block sends all tiles before it waits for the first line, so two
 * ranks that send to each other do not wait for each other. FIFOs hold all tiles of a launch that
 * does both.
 *
 * With two rows, the first sends while the second receives.
 *
 * With several tiles, one more warp gives credit for taken tiles, because the fence before credit
 * would hold up warps that move data.
 */
#ifdef GYRE_KERNEL_ROW /* kernels/cuda/host/kernel_rows.c */
#define IN_ROWS(pattern, number, unroll)                                                           \
    GYRE_KERNEL_ROW(.name = "ll128 copy",                                                          \
                    .when = {.proto = GYRE_PROTO_LL128,                                            \
                             .patterns = BIT(pattern),                                             \
                             .needs = GYRE_KERNEL_STAGED | GYRE_KERNEL_UNMOVED |                   \
                                      GYRE_KERNEL_TWO_ROWS | GYRE_KERNEL_HAS_BARRIERS,             \
                             .arithmetic = BIT(GYRE_FUSED_COPY),                                   \
                             .most_peers = 1,                                                      \
                             .least_tiles = 2,                                                     \
                             .most_tiles = ANY_NUMBER},                                            \
                    .copies = true, .first = INSTANCE(copy_kernels, in_rows[number]), .n_rows = 2, \
                    .most_unroll = unroll, .tile_threads = 32,                                     \
                    .most_threads = GYRE_CUDA_ROW_THREADS)
#define MESSAGE(text, protocol)                                                           \
    GYRE_KERNEL_ROW(.name = text,                                                         \
                    .when = {.proto = protocol,                                           \
                             .patterns = BIT(GYRE_FUSED_SEND) | BIT(GYRE_FUSED_RECEIVE) | \
                                         BIT(GYRE_FUSED_SEND_RECEIVE),                    \
                             .needs = GYRE_KERNEL_STAGED | GYRE_KERNEL_UNMOVED |          \
                                      GYRE_KERNEL_HAS_SLOTS | GYRE_KERNEL_HAS_BARRIERS,   \
                             .arithmetic = BIT(GYRE_FUSED_COPY),                          \
                             .most_peers = GYRE_CUDA_MAX_PEERS,                           \
                             .most_tiles = ANY_NUMBER},                                   \
                    .copies = true, .first = INSTANCE(copy_kernels, message[protocol]),   \
                    .most_unroll = GYRE_CUDA_UNROLL, .tile_threads = 32)
IN_ROWS(GYRE_FUSED_SEND_RECEIVE, 0, GYRE_CUDA_UNROLL)
IN_ROWS(GYRE_FUSED_ALL_TO_ALL, 1, GYRE_CUDA_LONG_UNROLL)
MESSAGE("ll copy", GYRE_PROTO_LL)
MESSAGE("ll128 copy", GYRE_PROTO_LL128)
#undef IN_ROWS
#undef MESSAGE
#else
#ifndef GYRE_KERNELS_CUDA_FUSED_MESSAGE_CUH
#define GYRE_KERNELS_CUDA_FUSED_MESSAGE_CUH

#include "kernels/cuda/fused/fused_lines.cuh"

/* A send before this rank's receive gives the receive's credit: of everything that earlier launches
 * received, because collectives may have kept the credit of all slots. Otherwise two ranks that
 * both send first would wait for each other. The blocks share the receive's channels, which may be
 * more or fewer than theirs. */
static __device__ __forceinline__ void give_credit_ahead(const struct gyre_cuda_args_fused &args)
{
    const struct gyre_cuda_fused &fused = args.fused;
    const struct gyre_cuda_peer &peer = fused.peers[0];
    for (uint32_t c = blockIdx.x + threadIdx.x * gridDim.x; c < fused.n_channels_behind;
         c += gridDim.x * blockDim.x)
        store_relaxed_sys(
            (uint64_t *)((unsigned char *)peer.posted + (size_t)c * fused.credit_stride),
            args.common.counters[peer.recv_end + c * args.work.channel_stride]);
}

/* KEEPS: the rows take turns with tiles of the own chunk, or the link would wait for one row. */
template <int PROTO, bool KEEPS>
static __device__ __forceinline__ void keep_tile(const struct gyre_cuda_args_fused &args,
                                                 const struct peer_fifos &end, uint32_t tile)
{
    uint32_t n_reductions = 0;
    if (KEEPS && tile % 2 == blockIdx.y)
        (void)finish_chunk<PROTO, DTYPE_NONE, GYRE_SUM, GYRE_CUDA_UNROLL, true>(
            args, end, tile, 0, false, &n_reductions);
}

/* The launch has waited for room for its first tiles when it began. */
static __device__ __forceinline__ bool await_room(const struct gyre_cuda_args_fused &args,
                                                  const struct peer_fifos &end, uint32_t tile)
{
    const struct gyre_cuda_fused &fused = args.fused;
    const uint64_t *head = (const uint64_t *)((const unsigned char *)fused.peers[0].head +
                                              (size_t)blockIdx.x * fused.credit_stride);
    const uint64_t wanted = end.sent + tile + 1 - fused.depth;
    uint32_t n_polls = 0;
    if (tile < fused.depth)
        return true;
    while ((int64_t)(load_relaxed_sys(head) - wanted) < 0)
        if (must_stop(args.common, n_polls))
            return false;
    return true;
}

template <int PROTO, bool KEEPS>
static __device__ __forceinline__ void
send_tiles(const struct gyre_cuda_args_fused &args, const struct peer_fifos &end,
           const struct first_rounds<PROTO, GYRE_CUDA_UNROLL> &first)
{
    send_first<PROTO, GYRE_CUDA_UNROLL>(args, end, first); /* the launch has waited for room */
    for (uint32_t tile = 0; tile < args.work.split.n_tiles; tile++) {
        /* LL128 needs converged warps. */
        if (__any_sync(0xffffffffU, !await_room(args, end, tile)) != 0)
            return;
        scatter_chunk<PROTO, DTYPE_NONE, GYRE_SUM, GYRE_CUDA_UNROLL>(
            args, end, tile, tile == 0 ? GYRE_CUDA_UNROLL : 0);
        if (PROTO == GYRE_PROTO_LL)
            clean_slots(args, end, tile);
        keep_tile<PROTO, KEEPS>(args, end, tile);
    }
}

/* The moving warps arrive, and the last warp waits there. No warp is more tiles ahead of it than a
 * FIFO holds, because it would lack credit. So no barrier is used again before it is complete. */
static __device__ __forceinline__ int barrier_of(const struct gyre_cuda_args_fused &args,
                                                 uint32_t tile)
{
    return 1 + (int)(tile & (args.fused.depth - 1));
}

template <int PROTO, bool KEEPS>
static __device__ __forceinline__ void take_tiles(const struct gyre_cuda_args_fused &args,
                                                  const struct peer_fifos &end)
{
    const uint32_t n_tiles = args.work.split.n_tiles;
    bool is_stopped = false;
    for (uint32_t tile = 0; tile < n_tiles; tile++) {
        keep_tile<PROTO, KEEPS>(args, end, tile);
        if (!is_stopped)
            is_stopped = !gather_chunk<PROTO, GYRE_CUDA_UNROLL>(args, end, tile);
        if (tile + 1 == n_tiles)
            return;
        /* After an abort nothing else keeps warps from getting ahead. */
        is_stopped = __any_sync(0xffffffffU, is_stopped) != 0;
        if (is_stopped)
            barrier_sync(barrier_of(args, tile), (int)blockDim.x);
        else
            barrier_arrive(barrier_of(args, tile), (int)blockDim.x);
    }
}

/* By one warp. The next launch gives back the last tile. */
template <int PROTO>
static __device__ __forceinline__ void give_back_tiles(const struct gyre_cuda_args_fused &args,
                                                       const struct peer_fifos &end)
{
    uint64_t *posted = (uint64_t *)((unsigned char *)args.fused.peers[0].posted +
                                    (size_t)blockIdx.x * args.fused.credit_stride);
    for (uint32_t tile = 0; tile + 1 < args.work.split.n_tiles; tile++) {
        barrier_sync(barrier_of(args, tile), (int)blockDim.x);
        if (threadIdx.x % 32 != 0 || load_relaxed_sys(&args.common.control->is_aborted) != 0)
            continue;
        if (PROTO != GYRE_PROTO_LL)
            fence_acq_rel_sys(); /* the zeros come before the peer's next lines (sync.cuh) */
        store_relaxed_sys(posted, end.received + tile + 1);
    }
}

/* KEEPS: the own chunk goes to OUT, as in an all-to-all. */
template <int PROTO, bool KEEPS>
static __device__ __forceinline__ void run_message(const struct gyre_cuda_args_fused &args)
{
    const uint32_t n_tiles = args.work.split.n_tiles;
    struct first_rounds<PROTO, GYRE_CUDA_UNROLL> first;
    struct peer_fifos end = peer_fifos_begin<true>(args.fused);
    const bool moves = end.lane < end.n_lanes;
    const bool sends = moves && has_sending_end<true>(args.fused);
    if (sends)
        find_first<PROTO, GYRE_CUDA_UNROLL>(args, end, args.fused.peers[0].chunk, &first);
    const bool is_aborted = peer_fifos_open(args, &end);
    if (sends)
        load_first<PROTO, DTYPE_NONE, GYRE_SUM, GYRE_CUDA_UNROLL>(
            args, args.fused.peers[0].in_offset, &first);
    give_credit_ahead(args);
    bool is_stopped =
        is_aborted || !peer_fifos_await<true>(args, end, min(n_tiles, args.fused.depth));
    /* LL128 needs converged warps. With several tiles all warps wait at barriers, or none does. */
    is_stopped =
        n_tiles > 1 ? __syncthreads_or(is_stopped) != 0 : __any_sync(0xffffffffU, is_stopped) != 0;
    if (!is_stopped && sends)
        send_tiles<PROTO, KEEPS>(args, end, first);
    /* With several tiles the last warp comes here before others wait. */
    announce_sent(args.common, end.sequence);
    if (!is_stopped && has_receiving_end<true>(args.fused)) {
        if (moves)
            take_tiles<PROTO, KEEPS>(args, end);
        else
            give_back_tiles<PROTO>(args, end);
    }
    peer_fifos_close<true>(args, end, n_tiles);
}

template <int PROTO>
static __global__ void __launch_bounds__(GYRE_CUDA_FUSED_THREADS + 32, 1)
    fused_message(const __grid_constant__ struct gyre_cuda_args_fused args)
{
    run_message<PROTO, false>(args);
}

/* Two blocks fit a multiprocessor, which leaves room for another communicator's launch: calls of
 * two communicators may come in different orders on two GPUs. */
template <bool KEEPS>
static __global__ void __launch_bounds__(GYRE_CUDA_ROW_THREADS + 32, 2)
    fused_in_rows(const __grid_constant__ struct gyre_cuda_args_fused args)
{
    run_message<GYRE_PROTO_LL128, KEEPS>(args);
}

#endif
#endif
