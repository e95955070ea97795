/* SPDX-License-Identifier: Apache-2.0
 *
 * The two sides of FIFOs. A launch reads a side's counter when it opens the side, and writes it
 * when it closes the side. Registers and shared memory decide what a kernel can keep, hence three
 * layouts:
 *
 *   struct fifo         SIMPLE: one end in registers (fused kernels, sync kernel)
 *   struct peer_fifos   LL, LL128: both ends with the one peer that a thread serves (fused kernels)
 *   struct all_fifos    LAMPORT: both ends with every peer in each thread (fused kernels). 64-bit
 *                       counters would need twice the registers
 *
 * The interpreter's (struct connection in block.cuh) lies in shared memory.
 */
#ifndef GYRE_KERNELS_CUDA_FIFO_CUH
#define GYRE_KERNELS_CUDA_FIFO_CUH

#include "kernels/cuda/device/launch_sequence.cuh"

/* Tells the host which peer sent a slot of another call, then waits for the abort. */
static __device__ __noinline__ void report_mismatch(const struct gyre_cuda_common &common,
                                                    uint32_t index)
{
    uint32_t n_polls = 0;
    uint64_t *mismatch = &common.mailbox->mismatch;
    if (load_relaxed_sys(mismatch) == 0)
        store_relaxed_sys(mismatch, (uint64_t)(index / common.ends_per_rank) + 1);
    while (!must_stop(common, n_polls))
        ;
}

static __device__ __forceinline__ struct record_facts
fused_facts(const struct gyre_cuda_args_fused &args, uint32_t channel)
{
    return {args.work.traced, args.work.split.n_tiles, 2U * args.fused.n_peers, channel};
}

/* @word: only grows. */
static __device__ __forceinline__ bool fifo_await_word(const struct gyre_cuda_common &common,
                                                       const uint64_t *word, uint64_t least)
{
    uint32_t n_polls = 0;
    uint64_t value;
    while ((int64_t)((value = load_acquire_sys(word)) - least) < 0)
        if (must_stop_at(common, n_polls, word, value))
            return false;
    return true;
}

/* A sender has the peer's inbox and this rank's credit, a receiver has this rank's inbox and the
 * peer's credit. */
struct fifo {
    struct gyre_inbox *inbox;
    struct gyre_credit *credit;
    uint64_t number;
    uint32_t index;
};

/* Receiver: the stream's earlier work on OUT is over, so the peer may store placed data there. */
static __device__ __forceinline__ void fifo_announce_entry(const struct fifo &end)
{
    store_relaxed_sys(&end.credit->head[GYRE_HEAD_ENTERED], end.number + 1);
}

/* Sender. */
static __device__ __forceinline__ bool fifo_await_entry(const struct gyre_cuda_common &common,
                                                        const struct fifo &end)
{
    return fifo_await_word(common, &end.credit->head[GYRE_HEAD_ENTERED], end.number + 1);
}

/* Sender. */
static __device__ __forceinline__ bool fifo_await_room(const struct gyre_cuda_common &common,
                                                       const struct fifo &end, uint32_t n_slots,
                                                       uint32_t depth)
{
    return fifo_await_word(common, &end.credit->head[GYRE_PROTO_SIMPLE],
                           end.number + n_slots - depth);
}

/* Receiver: slot end.number + n_before. The caller then asks fifo_is_of_call(). */
static __device__ __forceinline__ bool fifo_await_slot(const struct gyre_cuda_common &common,
                                                       const struct fifo &end, uint32_t n_before)
{
    return fifo_await_word(common, &end.inbox->tail[GYRE_PROTO_SIMPLE], end.number + n_before + 1);
}

/* Receiver. If not, reports the mismatch. @ring_slot: index in the ring. */
static __device__ __forceinline__ bool fifo_is_of_call(const struct gyre_cuda_common &common,
                                                       const struct fifo &end, uint64_t ring_slot,
                                                       uint64_t slot_info)
{
    if (load_relaxed_sys(&end.inbox->slot_info[ring_slot]) == slot_info)
        return true;
    report_mismatch(common, end.index);
    return false;
}

/* Sender. fence_acq_rel_sys() and fifo_publish() come after. */
static __device__ __forceinline__ void fifo_describe(const struct fifo &end, uint64_t ring_slot,
                                                     uint64_t slot_info)
{
    store_relaxed_sys(&end.inbox->slot_info[ring_slot], slot_info);
}

/* Sender: from slot end.number on. A fence comes before. */
static __device__ __forceinline__ void fifo_publish(const struct fifo &end, uint64_t n_slots)
{
    store_relaxed_sys(&end.inbox->tail[GYRE_PROTO_SIMPLE], end.number + n_slots);
}

/* Receiver: from slot end.number on. */
static __device__ __forceinline__ void fifo_return(const struct fifo &end, uint32_t n_slots)
{
    store_relaxed_sys(&end.credit->head[GYRE_PROTO_SIMPLE], end.number + n_slots);
}

static __device__ __forceinline__ void fifo_close(const struct gyre_cuda_common &common,
                                                  const struct fifo &end, uint32_t n_slots)
{
    common.counters[end.index] = end.number + n_slots;
}

/* With the peer that the thread's group serves. */
struct peer_fifos {
    uint64_t sent; /* slots before this launch */
    uint64_t received;
    uint64_t head; /* credit: the last value seen */
    uint64_t sequence;
    uint32_t group;
    uint32_t lane; /* in the group */
    uint32_t n_lanes;
};

/* With two rows of blocks, the first sends and the second receives. */
template <bool IS_MESSAGE>
static __device__ __forceinline__ bool has_sending_end(const struct gyre_cuda_fused &fused)
{
    return !IS_MESSAGE || (fused.scatters != 0 && blockIdx.y == 0);
}

template <bool IS_MESSAGE>
static __device__ __forceinline__ bool has_receiving_end(const struct gyre_cuda_fused &fused)
{
    return !IS_MESSAGE || (fused.gathers != 0 && blockIdx.y + 1 == gridDim.y);
}

/* Whom the thread serves. The launch before may still run. */
template <bool IS_MESSAGE>
static __device__ __forceinline__ struct peer_fifos
peer_fifos_begin(const struct gyre_cuda_fused &fused)
{
    struct peer_fifos end;
    end.n_lanes = fused.threads_per_peer;
    end.group = 0;
    end.lane = threadIdx.x;
    while (!IS_MESSAGE && end.lane >= end.n_lanes) { /* faster than a division */
        end.lane -= end.n_lanes;
        end.group++;
    }
    return end;
}

/* Counters and credit are loaded together. True: aborted before. */
static __device__ __forceinline__ bool peer_fifos_open(const struct gyre_cuda_args_fused &args,
                                                       struct peer_fifos *end)
{
    const struct gyre_cuda_fused &fused = args.fused;
    const uint32_t skip = blockIdx.x * args.work.channel_stride;
    const struct gyre_cuda_peer &peer = fused.peers[end->group];
    await_last_launch();
    end->sequence = begin_launch(args.common);
    const uint32_t is_aborted = load_relaxed_sys(&args.common.control->is_aborted);
    end->sent = args.common.counters[peer.send_end + skip];
    end->received = args.common.counters[peer.recv_end + skip];
    end->head = load_relaxed_sys(
        (const uint64_t *)((const unsigned char *)peer.head + blockIdx.x * fused.credit_stride));
    return is_aborted != 0;
}

/* Also gives the credit of earlier launches to the peer, which may be waiting for it. */
template <bool IS_MESSAGE>
static __device__ __forceinline__ bool peer_fifos_await(const struct gyre_cuda_args_fused &args,
                                                        const struct peer_fifos &end,
                                                        uint32_t n_slots)
{
    const struct gyre_cuda_fused &fused = args.fused;
    const struct gyre_cuda_peer &peer = fused.peers[end.group];
    const size_t skip = (size_t)blockIdx.x * fused.credit_stride;
    const uint64_t *word = (const uint64_t *)((const unsigned char *)peer.head + skip);
    uint64_t head = end.head;
    uint32_t n_polls = 0;
    if (end.lane == 0 && has_receiving_end<IS_MESSAGE>(fused))
        store_relaxed_sys((uint64_t *)((unsigned char *)peer.posted + skip), end.received);
    if (!has_sending_end<IS_MESSAGE>(fused))
        return true;
    while ((int64_t)(head + fused.depth - (end.sent + n_slots)) < 0) {
        if (n_polls == 0)
            announce_launch(args.common, end.sequence);
        if (must_stop(args.common, n_polls))
            return false;
        head = load_relaxed_sys(word);
    }
    return true;
}

template <bool IS_MESSAGE>
static __device__ __forceinline__ void peer_fifos_close(const struct gyre_cuda_args_fused &args,
                                                        const struct peer_fifos &end,
                                                        uint32_t n_slots)
{
    const struct gyre_cuda_peer &peer = args.fused.peers[end.group];
    const uint32_t skip = blockIdx.x * args.work.channel_stride;
    if (is_recorded(args.common) && end.lane == 0)
        record_peer(args.common.recording.recorder, end.group, peer.send_end + skip, end.sent,
                    peer.recv_end + skip, end.received);
    __syncthreads();
    if (threadIdx.x == 0)
        allow_dependent_launch();
    if (end.lane == 0 && has_sending_end<IS_MESSAGE>(args.fused))
        args.common.counters[peer.send_end + skip] = end.sent + n_slots;
    if (end.lane == 0 && has_receiving_end<IS_MESSAGE>(args.fused))
        args.common.counters[peer.recv_end + skip] = end.received + n_slots;
    end_launch(args.common, end.sequence,
               IS_MESSAGE ? blockIdx.x + blockIdx.y * gridDim.x : blockIdx.x,
               fused_facts(args, blockIdx.x));
}

/* Slots before this launch. 32 bits are enough to find a slot and to compare with credit. */
template <int PEERS> struct all_fifos {
    uint32_t sent[PEERS];
    uint32_t received[PEERS];
    uint32_t head[PEERS]; /* credit: the last value seen */
    uint64_t own_sent;    /* thread k: the whole counter of peer k */
    uint64_t own_received;
    uint64_t sequence;
};

template <int PEERS, bool EXACT_FIT>
static __device__ __forceinline__ bool has_peer(const struct gyre_cuda_fused &fused, int k)
{
    return EXACT_FIT || k == 0 || (uint32_t)k < fused.n_peers;
}

/* Counters only grow, so differences modulo 2^32 are enough. */
static __device__ __forceinline__ const uint32_t *low_half(const uint64_t *word)
{
    return (const uint32_t *)word;
}

static __device__ __forceinline__ const uint64_t *
all_fifos_head(const struct gyre_cuda_fused &fused, int k)
{
    return (const uint64_t *)((const unsigned char *)fused.peers[k].head +
                              (size_t)blockIdx.x * fused.credit_stride);
}

template <int PEERS, bool EXACT_FIT>
static __device__ __forceinline__ bool all_fifos_open(const struct gyre_cuda_args_fused &args,
                                                      struct all_fifos<PEERS> *ends)
{
    const struct gyre_cuda_fused &fused = args.fused;
    const uint64_t *counters = args.common.counters + blockIdx.x * args.work.channel_stride;
    await_last_launch();
    ends->sequence = begin_launch(args.common);
    const uint32_t is_aborted = load_relaxed_sys(&args.common.control->is_aborted);
#pragma unroll
    for (int k = 0; k < PEERS && has_peer<PEERS, EXACT_FIT>(fused, k); k++) {
        ends->sent[k] = *low_half(&counters[fused.peers[k].send_end]);
        ends->received[k] = *low_half(&counters[fused.peers[k].recv_end]);
        ends->head[k] = load_relaxed_sys(low_half(all_fifos_head(fused, k)));
    }
    if (threadIdx.x < fused.n_peers) {
        ends->own_sent = counters[fused.peers[threadIdx.x].send_end];
        ends->own_received = counters[fused.peers[threadIdx.x].recv_end];
    }
    return is_aborted != 0;
}

/* The caller counts polls itself. Out of line, because it seldom runs. */
static __device__ __noinline__ bool must_stop_now(const struct gyre_cuda_common &common,
                                                  uint32_t n_polls)
{
    n_polls--;
    return must_stop(common, n_polls);
}

static __device__ __forceinline__ bool all_fifos_have_room(const struct gyre_cuda_fused &fused,
                                                           uint32_t head, uint32_t number)
{
    return (int32_t)(head + fused.depth - number) > 0;
}

static __device__ __noinline__ bool all_fifos_await_room(const struct gyre_cuda_args_fused &args,
                                                         uint64_t sequence, int k,
                                                         uint32_t last_slot)
{
    uint32_t n_polls = 0;
    announce_launch(args.common, sequence);
    while (!all_fifos_have_room(
        args.fused, load_relaxed_sys(low_half(all_fifos_head(args.fused, k))), last_slot))
        if (must_stop(args.common, n_polls))
            return false;
    return true;
}

template <int PEERS, bool EXACT_FIT>
static __device__ __forceinline__ bool all_fifos_await(const struct gyre_cuda_args_fused &args,
                                                       const struct all_fifos<PEERS> &ends,
                                                       uint32_t n_slots)
{
    const struct gyre_cuda_fused &fused = args.fused;
    bool has_room = true;
    if (threadIdx.x < fused.n_peers)
        store_relaxed_sys((uint64_t *)((unsigned char *)fused.peers[threadIdx.x].posted +
                                       (size_t)blockIdx.x * fused.credit_stride),
                          ends.own_received);
#pragma unroll
    for (int k = 0; k < PEERS && has_peer<PEERS, EXACT_FIT>(fused, k); k++)
        has_room &= all_fifos_have_room(fused, ends.head[k], ends.sent[k] + n_slots - 1);
    if (has_room)
        return true;
#pragma unroll 1
    for (int k = 0; k < (int)fused.n_peers; k++) {
        const uint32_t sent = *low_half(
            &args.common.counters[fused.peers[k].send_end + blockIdx.x * args.work.channel_stride]);
        if (!all_fifos_await_room(args, ends.sequence, k, sent + n_slots - 1))
            return false;
    }
    return true;
}

/* Records neither FIFOs nor marks, because the tests for that slow down small calls. */
template <int PEERS, bool EXACT_FIT>
static __device__ __forceinline__ void all_fifos_close(const struct gyre_cuda_args_fused &args,
                                                       const struct all_fifos<PEERS> &ends,
                                                       uint32_t n_slots)
{
    uint64_t *counters = args.common.counters + blockIdx.x * args.work.channel_stride;
    __syncthreads();
    if (threadIdx.x == 0)
        allow_dependent_launch();
    if (threadIdx.x < args.fused.n_peers) {
        counters[args.fused.peers[threadIdx.x].send_end] = ends.own_sent + n_slots;
        counters[args.fused.peers[threadIdx.x].recv_end] = ends.own_received + n_slots;
    }
    end_launch(args.common, ends.sequence, blockIdx.x,
               {args.work.traced, args.work.split.n_tiles, 0, blockIdx.x});
}

#endif
