/* SPDX-License-Identifier: Apache-2.0
 *
 * The ends of a block's FIFOs as macro-steps in protocol SIMPLE see them (fused_placed.cuh,
 * fused_twoshot.cuh): one thread for each peer, the words that the steps would post and await.
 */
#ifndef GYRE_KERNELS_CUDA_SIMPLE_FIFOS_CUH
#define GYRE_KERNELS_CUDA_SIMPLE_FIFOS_CUH

#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/fused/fused_oneshot.cuh"

/* The words of a peer, in this block's channel, and how far its ends are. */
struct simple_peer {
    struct gyre_inbox *inbox_there;
    const struct gyre_inbox *inbox_here;
    struct gyre_credit *credit_there;
    const struct gyre_credit *credit_here;
    uint64_t sent; /* slots before this launch */
    uint64_t received;
    uint64_t head;       /* credit: the last value seen */
    uint32_t send_index; /* connectors */
    uint32_t recv_index;
};

static __device__ __forceinline__ struct simple_peer
simple_peer_find(const struct gyre_cuda_args_exchange &args, uint32_t channel, uint32_t k)
{
    const struct gyre_cuda_exchange &exchange = args.exchange;
    const struct gyre_cuda_peer &peer = exchange.peers[k];
    const size_t inbox_skip = (size_t)channel * exchange.slots_stride;
    const size_t credit_skip = (size_t)channel * exchange.credit_stride;
    const uint32_t skip = channel * args.work.channel_stride;
    return {(struct gyre_inbox *)(peer.to + inbox_skip),
            (const struct gyre_inbox *)(peer.from + inbox_skip),
            (struct gyre_credit *)((unsigned char *)peer.posted + credit_skip),
            (const struct gyre_credit *)((const unsigned char *)peer.head + credit_skip),
            0,
            0,
            0,
            peer.send_end + skip,
            peer.recv_end + skip};
}

/* The launch before is over: counters and credit in one trip. */
static __device__ __forceinline__ void simple_peer_count(const struct gyre_cuda_args_exchange &args,
                                                         struct simple_peer *peer)
{
    peer->sent = args.common.counters[peer->send_index];
    peer->received = args.common.counters[peer->recv_index];
    peer->head = load_acquire_sys(&peer->credit_here->head[GYRE_PROTO_SIMPLE]);
}

/* Returns false when aborted. */
static __device__ __forceinline__ bool simple_await(const struct gyre_cuda_args_exchange &args,
                                                    const uint64_t *word, uint64_t least)
{
    uint32_t n_polls = 0;
    while ((int64_t)(load_acquire_sys(word) - least) < 0)
        if (must_stop(args.common, n_polls))
            return false;
    return true;
}

/* What this rank did to its OUT before is over. */
static __device__ __forceinline__ void simple_enter(const struct simple_peer &peer)
{
    store_relaxed_sys(&peer.credit_there->head[GYRE_HEAD_ENTERED], peer.received + 1);
}

/* The peer has entered this call. Returns false when aborted. */
static __device__ __forceinline__ bool
simple_await_entry(const struct gyre_cuda_args_exchange &args, const struct simple_peer &peer)
{
    return simple_await(args, &peer.credit_here->head[GYRE_HEAD_ENTERED], peer.sent + 1);
}

/* It has room for that many slots of this launch. Likewise. */
static __device__ __forceinline__ bool simple_await_room(const struct gyre_cuda_args_exchange &args,
                                                         const struct simple_peer &peer,
                                                         uint32_t n_slots)
{
    const uint64_t least = peer.sent + n_slots - args.exchange.depth;
    return (int64_t)(peer.head - least) >= 0 ||
           simple_await(args, &peer.credit_here->head[GYRE_PROTO_SIMPLE], least);
}

/* Its slot that comes so many after the launch's first one is there, and as this call wants it.
 * Likewise. */
static __device__ __forceinline__ bool simple_await_slot(const struct gyre_cuda_args_exchange &args,
                                                         const struct simple_peer &peer,
                                                         uint32_t n_before, uint32_t n_bytes)
{
    const uint64_t number = peer.received + n_before;
    if (!simple_await(args, &peer.inbox_here->tail[GYRE_PROTO_SIMPLE], number + 1))
        return false;
    if (load_relaxed_sys(&peer.inbox_here->slot_info[number & (args.exchange.depth - 1)]) ==
        gyre_slot_info(n_bytes, args.work.signature))
        return true;
    report_mismatch(args.common, peer.recv_index);
    return false;
}

/* The peer's OUT: where the block of this rank begins. A window's table does not change while calls
 * use it. */
static __device__ __forceinline__ unsigned char *
simple_out(const struct gyre_cuda_args_exchange &args, const struct simple_peer &peer)
{
    return (unsigned char *)args.work.bases[peer.send_index / args.common.ends_per_rank] +
           args.work.out_offset_bytes + args.exchange.own_out_offset;
}

/* So many slots of this launch may be filled again. */
static __device__ __forceinline__ void simple_give_back(const struct simple_peer &peer,
                                                        uint32_t n_slots)
{
    store_relaxed_sys(&peer.credit_there->head[GYRE_PROTO_SIMPLE], peer.received + n_slots);
}

static __device__ __forceinline__ void simple_close(const struct gyre_cuda_args_exchange &args,
                                                    const struct simple_peer &peer,
                                                    uint32_t n_slots)
{
    args.common.counters[peer.send_index] = peer.sent + n_slots;
    args.common.counters[peer.recv_index] = peer.received + n_slots;
}

#endif
