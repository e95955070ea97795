/* SPDX-License-Identifier: Apache-2.0
 *
 * The one-shot all-gather into windows as one macro-step: every block stores its part of IN into
 * the OUT of all ranks. In protocol SIMPLE, with the words that the steps would post and await (a
 * peer may well run those), but in one kernel without service warps: a thread serves a peer.
 */
#ifndef GYRE_KERNELS_CUDA_EXCHANGE_PLACED_CUH
#define GYRE_KERNELS_CUDA_EXCHANGE_PLACED_CUH

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/exchange.cuh"
#include "kernels/cuda/move.cuh"

#define PLACED_UNROLL 4

/* The words of a peer, in this block's channel, and how far its ends are. */
struct placed_peer {
    struct gyre_inbox *inbox_there;
    const struct gyre_inbox *inbox_here;
    struct gyre_credit *credit_there;
    const struct gyre_credit *credit_here;
    uint64_t sent; /* slots before this launch */
    uint64_t received;
    uint32_t send_index; /* connectors */
    uint32_t recv_index;
};

static __device__ __forceinline__ struct placed_peer
placed_peer_find(const struct gyre_cuda_args_exchange &args, uint32_t k)
{
    const struct gyre_cuda_exchange &exchange = args.exchange;
    const struct gyre_cuda_peer &peer = exchange.peers[k];
    const size_t inbox_skip = (size_t)blockIdx.x * exchange.slots_stride;
    const size_t credit_skip = (size_t)blockIdx.x * exchange.credit_stride;
    const uint32_t skip = blockIdx.x * args.work.channel_stride;
    return {(struct gyre_inbox *)(peer.to + inbox_skip),
            (const struct gyre_inbox *)(peer.from + inbox_skip),
            (struct gyre_credit *)((unsigned char *)peer.posted + credit_skip),
            (const struct gyre_credit *)((const unsigned char *)peer.head + credit_skip),
            0,
            0,
            peer.send_end + skip,
            peer.recv_end + skip};
}

/* The peer is in this call, and has room for its slots. Returns false when aborted. */
static __device__ __forceinline__ bool
placed_await_entry(const struct gyre_cuda_args_exchange &args, const struct placed_peer &peer,
                   uint32_t n_slots)
{
    const uint64_t *head = peer.credit_here->head;
    const uint64_t least = peer.sent + n_slots - args.exchange.depth;
    uint32_t n_polls = 0;
    while ((int64_t)(load_acquire_sys(&head[GYRE_HEAD_ENTERED]) - (peer.sent + 1)) < 0 ||
           (int64_t)(load_acquire_sys(&head[GYRE_PROTO_SIMPLE]) - least) < 0)
        if (must_stop(args.common, n_polls))
            return false;
    return true;
}

static __device__ __forceinline__ uint32_t placed_tile_bytes(const struct gyre_cuda_work &work,
                                                             uint32_t n_bytes, uint32_t tile)
{
    const uint32_t tile_bytes = work.split.tile_elems * work.elem_bytes;
    return min(n_bytes - min(n_bytes, tile * tile_bytes), tile_bytes);
}

/* After a barrier, as SIMPLE publishes (sync.cuh): fence, then tail, over what all the block's
 * threads stored. */
static __device__ __forceinline__ void placed_publish(const struct gyre_cuda_args_exchange &args,
                                                      const struct placed_peer &peer,
                                                      uint32_t n_bytes)
{
    const uint32_t n_slots = args.work.split.n_tiles;
    for (uint32_t tile = 0; tile < n_slots; tile++)
        store_relaxed_sys(
            &peer.inbox_there->slot_info[(peer.sent + tile) & (args.exchange.depth - 1)],
            gyre_slot_info(placed_tile_bytes(args.work, n_bytes, tile), args.work.signature));
    fence_acq_rel_sys();
    store_relaxed_sys(&peer.inbox_there->tail[GYRE_PROTO_SIMPLE], peer.sent + n_slots);
}

/* What the peer stored here is complete; its slots are given back. Of those only slot_info was
 * read, and compared: head needs no fence. */
static __device__ __forceinline__ void placed_take(const struct gyre_cuda_args_exchange &args,
                                                   const struct placed_peer &peer, uint32_t n_bytes)
{
    const uint32_t n_slots = args.work.split.n_tiles;
    for (uint32_t tile = 0; tile < n_slots; tile++) {
        uint32_t n_polls = 0;
        while ((int64_t)(load_acquire_sys(&peer.inbox_here->tail[GYRE_PROTO_SIMPLE]) -
                         (peer.received + tile + 1)) < 0)
            if (must_stop(args.common, n_polls))
                return;
        const uint32_t slot = (uint32_t)(peer.received + tile) & (args.exchange.depth - 1);
        if (load_relaxed_sys(&peer.inbox_here->slot_info[slot]) !=
            gyre_slot_info(placed_tile_bytes(args.work, n_bytes, tile), args.work.signature)) {
            report_mismatch(args.common, peer.recv_index);
            return;
        }
    }
    store_relaxed_sys(&peer.credit_there->head[GYRE_PROTO_SIMPLE], peer.received + n_slots);
}

/* The block's part of IN into `n_outs` places, all of them at once. */
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

static __global__ void __launch_bounds__(GYRE_CUDA_EXCHANGE_THREADS, 1)
    exchange_placed(const __grid_constant__ struct gyre_cuda_args_exchange args)
{
    __shared__ unsigned char *outs[GYRE_CUDA_MAX_PEERS + 1];
    const struct gyre_cuda_exchange &exchange = args.exchange;
    const struct gyre_cuda_work &work = args.work;
    const struct line_range range = exchange_range(work, 0, 0);
    const struct gyre_cuda_share share = gyre_cuda_share_make(&work.split, blockIdx.x);
    const uint32_t n_bytes = (uint32_t)(share.end - share.begin) * work.elem_bytes;
    const unsigned char *in = work.in + exchange.own_offset + range.skip_bytes;
    unsigned char *own_out = work.out + exchange.own_out_offset + range.skip_bytes;
    const uint32_t k = threadIdx.x, n_slots = work.split.n_tiles;
    const bool serves = k < exchange.n_peers, is_in_place = in == own_out;
    struct placed_peer peer = {};
    if (serves) {
        peer = placed_peer_find(args, k);
        /* A window's table does not change while calls use it. */
        outs[k] = (unsigned char *)work.bases[peer.send_index / args.common.ends_per_rank] +
                  work.out_offset_bytes + (own_out - work.out);
    }
    if (k == 0)
        outs[exchange.n_peers] = own_out;
    await_last_launch();
    const uint64_t turn = take_turn(args.common);
    bool is_stopped = load_relaxed_sys(&args.common.control->is_aborted) != 0;
    if (serves) {
        peer.received = args.common.counters[peer.recv_index];
        /* What this rank did to its OUT before is over. */
        store_relaxed_sys(&peer.credit_there->head[GYRE_HEAD_ENTERED], peer.received + 1);
        peer.sent = args.common.counters[peer.send_index];
    }
    announce_turn(args.common, turn);
    if (serves && !is_stopped)
        is_stopped = !placed_await_entry(args, peer, n_slots);
    is_stopped = __syncthreads_or(is_stopped) != 0;
    if (!is_stopped)
        placed_copy(in, outs, exchange.n_peers + (is_in_place ? 0 : 1), n_bytes);
    __syncthreads();
    if (serves && !is_stopped) {
        placed_publish(args, peer, n_bytes);
        placed_take(args, peer, n_bytes);
    }
    __syncthreads();
    if (k == 0)
        invite_next_launch();
    if (serves) {
        args.common.counters[peer.send_index] = peer.sent + n_slots;
        args.common.counters[peer.recv_index] = peer.received + n_slots;
    }
    end_turn(args.common, turn, blockIdx.x);
}

#endif
