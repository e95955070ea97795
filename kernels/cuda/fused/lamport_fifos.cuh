/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges in LAMPORT (fused_lamport.cuh): which bytes of the vector are a block's, and the
 * ends of its FIFOs - counters, credit and slots of all peers, as one thread sees them.
 */
#ifndef GYRE_KERNELS_CUDA_LAMPORT_FIFOS_CUH
#define GYRE_KERNELS_CUDA_LAMPORT_FIFOS_CUH

#include "kernels/cuda/fused/fused_oneshot.cuh"

static __device__ __forceinline__ uint32_t lamport_unit(const struct gyre_cuda_work &work)
{
    return work.split.unit_elems * work.elem_bytes;
}

/* A channel's part of the vector and its chunks, in bytes: as gyre_cuda_tile_range(), in 32 bits,
 * since all of it fits the slots. */
struct lamport_share {
    uint32_t skip; /* from the vector's beginning */
    uint32_t n_bytes;
    uint32_t chunk_bytes;
    uint32_t extra_chunks; /* that have a unit more */
};

struct lamport_range {
    uint32_t skip; /* from the vector's beginning */
    uint32_t n_bytes;
};

static __device__ __forceinline__ struct lamport_share
lamport_share_make(const struct gyre_cuda_work &work)
{
    const uint32_t unit = lamport_unit(work), channel = blockIdx.x;
    const uint32_t longer = channel < work.split.extra_channels ? 1 : 0;
    const uint32_t all_bytes = (uint32_t)work.split.count * work.elem_bytes;
    const uint32_t units = (uint32_t)work.split.share_units;
    struct lamport_share own;
    own.skip = (units * channel + min(channel, work.split.extra_channels)) * unit;
    own.skip = min(own.skip, all_bytes);
    own.n_bytes = min((units + longer) * unit, all_bytes - own.skip);
    own.chunk_bytes = (uint32_t)work.split.chunk_share_units[longer] * unit;
    own.extra_chunks = work.split.n_chunks == 1 ? 0 : work.split.extra_chunks[longer];
    /* Now, while the launch before may still run; the compiler would do it where it is used. */
    asm volatile("" : "+r"(own.skip), "+r"(own.n_bytes), "+r"(own.chunk_bytes));
    return own;
}

template <bool EXACT_FIT>
static __device__ __forceinline__ struct lamport_range
lamport_range_of(const struct gyre_cuda_work &work, const struct lamport_share &share,
                 uint32_t chunk, uint32_t tile)
{
    const uint32_t unit = lamport_unit(work), tile_bytes = work.split.tile_elems * work.elem_bytes;
    const uint32_t part = work.split.n_chunks == 1 ? 0 : chunk;
    const uint32_t n_bytes = share.chunk_bytes + (part < share.extra_chunks ? unit : 0);
    const uint32_t from = share.chunk_bytes * part + min(part, share.extra_chunks) * unit;
    if (EXACT_FIT)
        return {share.skip + from, n_bytes};
    const uint32_t end = min(from + n_bytes, share.n_bytes);
    const uint32_t first = min(min(from, share.n_bytes) + tile * tile_bytes, end);
    return {share.skip + first, min(end - first, tile_bytes)};
}

/* A thread's ends, of all peers: slots before this launch, in 32 bits, which slots and credit take.
 */
template <int PEERS> struct lamport_ends {
    uint32_t sent[PEERS];
    uint32_t received[PEERS];
    uint32_t head[PEERS]; /* credit: the last value seen */
    uint64_t own_sent;    /* thread k: of peer k, whole */
    uint64_t own_received;
    uint64_t sequence; /* launch_sequence.cuh */
};

template <int PEERS, bool EXACT_FIT>
static __device__ __forceinline__ bool has_peer(const struct gyre_cuda_exchange &exchange, int k)
{
    return EXACT_FIT || k == 0 || (uint32_t)k < exchange.n_peers;
}

/* Words that grow; how far they are modulo 2^32 is enough. */
static __device__ __forceinline__ const uint32_t *low_half(const uint64_t *word)
{
    return (const uint32_t *)word;
}

static __device__ __forceinline__ const uint64_t *
lamport_head(const struct gyre_cuda_exchange &exchange, int k)
{
    return (const uint64_t *)((const unsigned char *)exchange.peers[k].head +
                              (size_t)blockIdx.x * exchange.credit_stride);
}

/* Counters and credit in one trip. Returns true if the communicator was aborted before. */
template <int PEERS, bool EXACT_FIT>
static __device__ __forceinline__ bool lamport_open(const struct gyre_cuda_args_exchange &args,
                                                    struct lamport_ends<PEERS> *ends)
{
    const struct gyre_cuda_exchange &exchange = args.exchange;
    const uint64_t *counters = args.common.counters + blockIdx.x * args.work.channel_stride;
    await_last_launch();
    ends->sequence = begin_launch(args.common);
    const uint32_t is_aborted = load_relaxed_sys(&args.common.control->is_aborted);
#pragma unroll
    for (int k = 0; k < PEERS && has_peer<PEERS, EXACT_FIT>(exchange, k); k++) {
        ends->sent[k] = *low_half(&counters[exchange.peers[k].send_end]);
        ends->received[k] = *low_half(&counters[exchange.peers[k].recv_end]);
        ends->head[k] = load_relaxed_sys(low_half(lamport_head(exchange, k)));
    }
    if (threadIdx.x < exchange.n_peers) {
        ends->own_sent = counters[exchange.peers[threadIdx.x].send_end];
        ends->own_received = counters[exchange.peers[threadIdx.x].recv_end];
    }
    return is_aborted != 0;
}

/* Seldom run, so out of line: as must_stop(), when it is time to look. */
static __device__ __noinline__ bool must_stop_now(const struct gyre_cuda_common &common,
                                                  uint32_t n_polls)
{
    n_polls--;
    return must_stop(common, n_polls);
}

/* Is there room for a slot of that number in a FIFO whose credit is `head`? */
static __device__ __forceinline__ bool lamport_has_room(const struct gyre_cuda_exchange &exchange,
                                                        uint32_t head, uint32_t number)
{
    return (int32_t)(head + exchange.depth - number) > 0;
}

static __device__ __noinline__ bool lamport_await_room(const struct gyre_cuda_args_exchange &args,
                                                       uint64_t sequence, int k, uint32_t last_slot)
{
    uint32_t n_polls = 0;
    announce_launch(args.common, sequence);
    while (!lamport_has_room(args.exchange,
                             load_relaxed_sys(low_half(lamport_head(args.exchange, k))), last_slot))
        if (must_stop(args.common, n_polls))
            return false;
    return true;
}

/* As exchange_await(). */
template <int PEERS, bool EXACT_FIT>
static __device__ __forceinline__ bool lamport_await(const struct gyre_cuda_args_exchange &args,
                                                     const struct lamport_ends<PEERS> &ends,
                                                     uint32_t n_slots)
{
    const struct gyre_cuda_exchange &exchange = args.exchange;
    bool has_room = true;
    if (threadIdx.x < exchange.n_peers)
        store_relaxed_sys((uint64_t *)((unsigned char *)exchange.peers[threadIdx.x].posted +
                                       (size_t)blockIdx.x * exchange.credit_stride),
                          ends.own_received);
#pragma unroll
    for (int k = 0; k < PEERS && has_peer<PEERS, EXACT_FIT>(exchange, k); k++)
        has_room &= lamport_has_room(exchange, ends.head[k], ends.sent[k] + n_slots - 1);
    if (has_room)
        return true;
#pragma unroll 1
    for (int k = 0; k < (int)exchange.n_peers; k++) {
        const uint32_t sent = *low_half(
            &args.common
                 .counters[exchange.peers[k].send_end + blockIdx.x * args.work.channel_stride]);
        if (!lamport_await_room(args, ends.sequence, k, sent + n_slots - 1))
            return false;
    }
    return true;
}

/* As exchange_close(). */
template <int PEERS, bool EXACT_FIT>
static __device__ __forceinline__ void lamport_close(const struct gyre_cuda_args_exchange &args,
                                                     const struct lamport_ends<PEERS> &ends,
                                                     uint32_t n_slots)
{
    uint64_t *counters = args.common.counters + blockIdx.x * args.work.channel_stride;
    __syncthreads();
    if (threadIdx.x == 0)
        allow_dependent_launch();
    if (threadIdx.x < args.exchange.n_peers) {
        counters[args.exchange.peers[threadIdx.x].send_end] = ends.own_sent + n_slots;
        counters[args.exchange.peers[threadIdx.x].recv_end] = ends.own_received + n_slots;
    }
    end_launch(args.common, ends.sequence, blockIdx.x);
}

/* The slot of that number of the FIFOs whose slots of channel 0 begin at `slots`. */
static __device__ __forceinline__ unsigned char *
lamport_slot(const struct gyre_cuda_args_exchange &args, const unsigned char *slots,
             uint32_t number)
{
    const struct gyre_cuda_exchange &exchange = args.exchange;
    return (unsigned char *)(uintptr_t)slots + (size_t)blockIdx.x * exchange.slots_stride +
           (number & (exchange.depth - 1)) * args.common.slot_bytes;
}

#endif
