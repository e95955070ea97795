/* SPDX-License-Identifier: Apache-2.0
 *
 * A send, a receive, or both at once, in LL and LL128. All threads of a block serve one "peer",
 * whose sending end may lead to another rank than its receiving end comes from. The block sends all
 * tiles before it waits for the first line, so two ranks that send to each other do not wait for
 * each other. Recorded launches are interpreted, so these kernels are lean only.
 */
#ifndef GYRE_KERNELS_CUDA_FUSED_MESSAGE_CUH
#define GYRE_KERNELS_CUDA_FUSED_MESSAGE_CUH

#include "kernels/cuda/fused/fused_lines.cuh"

/* A send that comes before this rank's receive gives the credit that the receive would give when it
 * begins: of everything that earlier launches received. Earlier launches of collectives may have
 * kept the credit of all slots. Without it two ranks that both send first would wait for each
 * other. The blocks share the channels of the receive, which may be more or fewer than theirs. */
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

/* Gives back the slots of the first tiles before the launch ends, as the interpreter does. The next
 * launch gives back those of the last tile. A barrier comes before: all threads have read and
 * cleared their lines. */
template <int PROTO>
static __device__ __forceinline__ void give_back(const struct gyre_cuda_args_fused &args,
                                                 const struct peer_fifos &end, uint32_t n_tiles)
{
    unsigned char *posted = (unsigned char *)args.fused.peers[0].posted;
    if (end.lane != 0)
        return;
    if (PROTO != GYRE_PROTO_LL)
        fence_acq_rel_sys(); /* the zeros come before the peer's next lines (sync.cuh) */
    store_relaxed_sys((uint64_t *)(posted + (size_t)blockIdx.x * args.fused.credit_stride),
                      end.received + n_tiles);
}

template <int PROTO>
static __device__ __forceinline__ void run_message(const struct gyre_cuda_args_fused &args,
                                                   const struct peer_fifos &end)
{
    const uint32_t n_tiles = args.work.split.n_tiles;
    const bool sends = has_sending_end<true>(args.fused);
    const bool receives = has_receiving_end<true>(args.fused);
    bool is_stopped = false;
    for (uint32_t tile = 0; sends && tile < n_tiles; tile++)
        scatter_chunk<PROTO, DTYPE_NONE, GYRE_SUM, GYRE_CUDA_UNROLL>(args, end, tile);
    announce_sent(args.common, end.sequence); /* this block has not waited for peers so far */
    for (uint32_t tile = 0; receives && tile < n_tiles; tile++) {
        is_stopped = is_stopped || !gather_chunk<PROTO, GYRE_CUDA_UNROLL>(args, end, tile);
        if (tile + 1 == n_tiles)
            break;
        if (__syncthreads_or(is_stopped) != 0)
            return;
        give_back<PROTO>(args, end, tile + 1);
    }
    for (uint32_t tile = 0; PROTO == GYRE_PROTO_LL && sends && !is_stopped && tile < n_tiles;
         tile++)
        clean_slots(args, end, tile);
}

template <int PROTO>
static __global__ void __launch_bounds__(GYRE_CUDA_FUSED_THREADS, 1)
    exchange_message(const __grid_constant__ struct gyre_cuda_args_fused args)
{
    const uint32_t n_slots = args.work.split.n_tiles;
    struct peer_fifos end;
    const bool is_aborted = peer_fifos_open(args, &end);
    give_credit_ahead(args);
    bool is_stopped = is_aborted || !peer_fifos_await<true>(args, end, n_slots);
    /* LL128 needs converged warps. */
    is_stopped = __any_sync(0xffffffffU, is_stopped) != 0;
    if (is_stopped)
        announce_launch(args.common, end.sequence);
    else
        run_message<PROTO>(args, end);
    peer_fifos_close<true>(args, end, n_slots);
}

#endif
