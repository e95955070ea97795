/* SPDX-License-Identifier: Apache-2.0
 *
 * The fused one-shot all-gather into windows: every block stores its part of IN into the OUT of all
 * ranks. Its words are those of the program's SIMPLE steps, so a peer may run the steps. There are
 * no service warps: one thread serves one peer.
 */
#ifdef GYRE_KERNEL_ROW /* kernels/cuda/host/kernel_rows.c */
GYRE_KERNEL_ROW(.name = "simple all-gather",
                .when = {.proto = GYRE_PROTO_SIMPLE,
                         .patterns = BIT(GYRE_FUSED_ALL_GATHER),
                         .needs = GYRE_KERNEL_ALIGNED | GYRE_KERNEL_UNSCALED | GYRE_KERNEL_PLACED |
                                  GYRE_KERNEL_UNMOVED | GYRE_KERNEL_HAS_SLOTS,
                         .arithmetic = BIT(GYRE_FUSED_COPY),
                         .most_peers = GYRE_CUDA_MAX_PEERS,
                         .most_tiles = ANY_NUMBER},
                .copies = true, .first = INSTANCE(copy_kernels, placed))
#else
#ifndef GYRE_KERNELS_CUDA_FUSED_PLACED_CUH
#define GYRE_KERNELS_CUDA_FUSED_PLACED_CUH

#include "kernels/cuda/device/move.cuh"
#include "kernels/cuda/fused/fused_oneshot.cuh"
#include "kernels/cuda/protocol/simple.cuh"

#define PLACED_UNROLL 4

static __device__ __forceinline__ uint32_t placed_tile_bytes(const struct gyre_cuda_work &work,
                                                             uint32_t n_bytes, uint32_t tile)
{
    const uint32_t tile_bytes = work.split.tile_elems * work.elem_bytes;
    return min(n_bytes - min(n_bytes, tile * tile_bytes), tile_bytes);
}

/* A barrier of the block comes before (sync.cuh, "SIMPLE"). */
static __device__ __forceinline__ void placed_publish(const struct gyre_cuda_args_fused &args,
                                                      const struct simple_peer &peer,
                                                      uint32_t n_bytes)
{
    const uint32_t n_slots = args.work.split.n_tiles;
    for (uint32_t tile = 0; tile < n_slots; tile++)
        simple_describe(args, peer, tile, placed_tile_bytes(args.work, n_bytes, tile));
    fence_acq_rel_sys();
    fifo_publish(send_end(peer), n_slots);
}

/* Head needs no fence, because only slot_info was read, and the comparison has used it. */
static __device__ __forceinline__ void placed_take(const struct gyre_cuda_args_fused &args,
                                                   const struct simple_peer &peer, uint32_t n_bytes)
{
    const uint32_t n_slots = args.work.split.n_tiles;
    for (uint32_t tile = 0; tile < n_slots; tile++)
        if (!simple_await_slot(args, peer, tile, placed_tile_bytes(args.work, n_bytes, tile)))
            return;
    fifo_return(recv_end(peer), n_slots);
}

static __device__ __forceinline__ void
placed_copy(const unsigned char *in, unsigned char *const *outs, uint32_t n_outs, uint32_t n_bytes)
{
    const uint32_t stride = blockDim.x * 16;
    for (uint32_t at = threadIdx.x * 16; at < n_bytes; at += PLACED_UNROLL * stride) {
        pack<16> packs[PLACED_UNROLL];
#pragma unroll
        for (int i = 0; i < PLACED_UNROLL; i++)
            if (at + i * stride < n_bytes)
                packs[i] = load<16>(in + at + i * stride);
        for (uint32_t o = 0; o < n_outs; o++)
#pragma unroll
            for (int i = 0; i < PLACED_UNROLL; i++)
                if (at + i * stride < n_bytes)
                    store<16>(outs[o] + at + i * stride, packs[i]);
    }
}

static __global__ void __launch_bounds__(GYRE_CUDA_FUSED_THREADS, 1)
    fused_placed(const __grid_constant__ struct gyre_cuda_args_fused args)
{
    __shared__ unsigned char *outs[GYRE_CUDA_MAX_PEERS + 1];
    const struct gyre_cuda_fused &fused = args.fused;
    const struct gyre_cuda_work &work = args.work;
    const struct gyre_cuda_share share = gyre_cuda_share_make(&work.split, blockIdx.x);
    const uint64_t skip_bytes = share.begin * work.elem_bytes;
    const uint32_t n_bytes = (uint32_t)(share.end - share.begin) * work.elem_bytes;
    const unsigned char *in = work.in + fused.own_offset + skip_bytes;
    unsigned char *own_out = work.out + fused.own_out_offset + skip_bytes;
    const uint32_t k = threadIdx.x, n_slots = work.split.n_tiles;
    const bool serves = k < fused.n_peers, is_in_place = in == own_out;
    struct simple_peer peer = {};
    if (serves) {
        peer = simple_peer_find(args, blockIdx.x, k);
        outs[k] = simple_out(args, peer) + skip_bytes;
    }
    if (k == 0)
        outs[fused.n_peers] = own_out;
    await_last_launch();
    const uint64_t sequence = begin_launch(args.common);
    bool is_stopped = load_relaxed_sys(&args.common.control->is_aborted) != 0;
    if (serves) {
        simple_peer_open(args, &peer);
        fifo_announce_entry(recv_end(peer));
    }
    announce_launch(args.common, sequence);
    if (serves && !is_stopped)
        is_stopped = !fifo_await_entry(args.common, send_end(peer)) ||
                     !simple_await_room(args, peer, n_slots);
    is_stopped = __syncthreads_or(is_stopped) != 0;
    if (!is_stopped)
        placed_copy(in, outs, fused.n_peers + (is_in_place ? 0 : 1), n_bytes);
    __syncthreads();
    if (serves && !is_stopped) {
        placed_publish(args, peer, n_bytes);
        mark_launch(args.common, GYRE_CUDA_MARK_SENT);
        placed_take(args, peer, n_bytes);
        mark_launch(args.common, GYRE_CUDA_MARK_ARRIVED);
    }
    if (is_recorded(args.common) && serves)
        record_peer(args.common.recording.recorder, k, peer.send_index, peer.sent, peer.recv_index,
                    peer.received);
    __syncthreads();
    if (k == 0)
        allow_dependent_launch();
    if (serves)
        simple_peer_close(args, peer, n_slots);
    end_launch(args.common, sequence, blockIdx.x, fused_facts(args, blockIdx.x));
}

#endif
#endif
