/* SPDX-License-Identifier: Apache-2.0
 *
 * SIMPLE for fused kernels: one thread serves both FIFOs with one peer. Its words are those of the
 * program's steps (device/fifo.cuh), so a peer may run the steps.
 */
#ifndef GYRE_KERNELS_CUDA_SIMPLE_CUH
#define GYRE_KERNELS_CUDA_SIMPLE_CUH

#include "kernels/cuda/device/fifo.cuh"

#define SERVICE_THREADS GYRE_CUDA_SERVICE_THREADS

/* With two `struct fifo` the compiler allots registers worse. */
struct simple_peer {
    struct gyre_inbox *inbox_there;
    struct gyre_inbox *inbox_here;
    struct gyre_credit *credit_there;
    struct gyre_credit *credit_here;
    uint64_t sent; /* slots before this launch */
    uint64_t received;
    uint64_t head;       /* credit: the last value seen */
    uint32_t send_index; /* connectors */
    uint32_t recv_index;
};

static __device__ __forceinline__ struct fifo send_end(const struct simple_peer &peer)
{
    return {peer.inbox_there, peer.credit_here, peer.sent, peer.send_index};
}

static __device__ __forceinline__ struct fifo recv_end(const struct simple_peer &peer)
{
    return {peer.inbox_here, peer.credit_there, peer.received, peer.recv_index};
}

static __device__ __forceinline__ struct simple_peer
simple_peer_find(const struct gyre_cuda_args_fused &args, uint32_t channel, uint32_t k)
{
    const struct gyre_cuda_fused &fused = args.fused;
    const struct gyre_cuda_peer &peer = fused.peers[k];
    const size_t inbox_skip = (size_t)channel * fused.slots_stride;
    const size_t credit_skip = (size_t)channel * fused.credit_stride;
    const uint32_t skip = channel * args.work.channel_stride;
    return {(struct gyre_inbox *)(peer.to + inbox_skip),
            (struct gyre_inbox *)(uintptr_t)(peer.from + inbox_skip),
            (struct gyre_credit *)((unsigned char *)peer.posted + credit_skip),
            (struct gyre_credit *)(uintptr_t)((const unsigned char *)peer.head + credit_skip),
            0,
            0,
            0,
            peer.send_end + skip,
            peer.recv_end + skip};
}

/* Loads are in flight together. After await_last_launch(). */
static __device__ __forceinline__ void simple_peer_open(const struct gyre_cuda_args_fused &args,
                                                        struct simple_peer *peer)
{
    peer->sent = args.common.counters[peer->send_index];
    peer->received = args.common.counters[peer->recv_index];
    peer->head = load_acquire_sys(&peer->credit_here->head[GYRE_PROTO_SIMPLE]);
}

static __device__ __forceinline__ bool simple_await_room(const struct gyre_cuda_args_fused &args,
                                                         const struct simple_peer &peer,
                                                         uint32_t n_slots)
{
    const uint64_t least = peer.sent + n_slots - args.fused.depth;
    return (int64_t)(peer.head - least) >= 0 ||
           fifo_await_word(args.common, &peer.credit_here->head[GYRE_PROTO_SIMPLE], least);
}

/* `n_before` slots after the launch's first one. */
static __device__ __forceinline__ bool simple_await_slot(const struct gyre_cuda_args_fused &args,
                                                         const struct simple_peer &peer,
                                                         uint32_t n_before, uint32_t n_bytes)
{
    return fifo_await_slot(args.common, recv_end(peer), n_before) &&
           fifo_is_of_call(args.common, recv_end(peer),
                           (peer.received + n_before) & (args.fused.depth - 1),
                           gyre_slot_info(n_bytes, args.work.signature));
}

static __device__ __forceinline__ void simple_describe(const struct gyre_cuda_args_fused &args,
                                                       const struct simple_peer &peer,
                                                       uint32_t n_before, uint32_t n_bytes)
{
    fifo_describe(send_end(peer), (peer.sent + n_before) & (args.fused.depth - 1),
                  gyre_slot_info(n_bytes, args.work.signature));
}

static __device__ __forceinline__ void simple_peer_close(const struct gyre_cuda_args_fused &args,
                                                         const struct simple_peer &peer,
                                                         uint32_t n_slots)
{
    fifo_close(args.common, send_end(peer), n_slots);
    fifo_close(args.common, recv_end(peer), n_slots);
}

/* A window's table is constant while calls use it, so await_last_launch() may come later. */
static __device__ __forceinline__ unsigned char *simple_out(const struct gyre_cuda_args_fused &args,
                                                            const struct simple_peer &peer)
{
    return (unsigned char *)args.work.bases[peer.send_index / args.common.ends_per_rank] +
           args.work.out_offset_bytes + args.fused.own_out_offset;
}

#endif
