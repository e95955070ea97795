/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges as one macro-step: programs in which a rank sends chunks of IN to its peers, reduces
 * what they sent and its own chunk in the program's order, and may send the result to all and
 * receive theirs; in as few tiles as the FIFOs take without new credit. It moves the same slots and
 * gives the same bits as the steps would (a peer may well run them one by one), but everything that
 * the steps would look up stands in the kernel's parameters, and a thread waits for nothing but its
 * own lines.
 *
 * Here the one-shot in protocol LL for up to three peers, whose code is short, since small messages
 * pay for every instruction that is fetched; exchange_lines.cuh has the others.
 */
#ifndef GYRE_KERNELS_CUDA_EXCHANGE_CUH
#define GYRE_KERNELS_CUDA_EXCHANGE_CUH

#include "kernels/cuda/ll.cuh"

/* Slots of each connection in a tile. */
static __device__ __forceinline__ uint32_t exchange_uses(const struct gyre_cuda_exchange &exchange)
{
    return (uint32_t)exchange.reduces + exchange.gathers;
}

/* One thread's view of the peers; registers, since every loop over it is unrolled. */
template <int N> struct exchange_ends {
    unsigned char *to[N];
    const unsigned char *from[N];
    uint64_t sent[N]; /* slots before this one */
    uint64_t received[N];
    uint64_t head[N];
};

template <int N>
static __device__ __forceinline__ void exchange_open(const struct gyre_cuda_args_exchange &args,
                                                     struct exchange_ends<N> *ends)
{
    const struct gyre_cuda_exchange &exchange = args.exchange;
    const uint32_t channel = blockIdx.x;
#pragma unroll
    for (int p = 0; p < N; p++) {
        if (p >= exchange.n_peers)
            break;
        const struct gyre_cuda_peer &peer = exchange.peers[p];
        ends->sent[p] = args.common.counters[peer.send_end + channel * args.work.channel_stride];
        ends->received[p] =
            args.common.counters[peer.recv_end + channel * args.work.channel_stride];
        ends->head[p] = load_relaxed_sys((const uint64_t *)((const unsigned char *)peer.head +
                                                            channel * exchange.credit_stride));
    }
}

/* Waits until a sending end may have so many slots sent. @head: the credit word's last value.
 * Returns false when aborted. (A function of values: an array of heads that a loop waits on would
 * go to local memory, 0.5 us in a one-shot of 4.) */
static __device__ __forceinline__ bool await_room(const struct gyre_cuda_args_exchange &args,
                                                  const unsigned char *word, uint64_t head,
                                                  uint64_t n_sent)
{
    uint32_t n_polls = 0;
    while ((int64_t)(head + args.exchange.depth - n_sent) < 0) {
        if (must_stop(args.common, n_polls))
            return false;
        head = load_relaxed_sys((const uint64_t *)word);
    }
    return true;
}

/* Where this call's slots are; credit of the calls before goes back to all peers, then room for
 * this one is awaited of each: they may be waiting for that credit. Returns false when aborted. */
template <int N>
static __device__ __forceinline__ bool exchange_resolve(const struct gyre_cuda_args_exchange &args,
                                                        struct exchange_ends<N> *ends)
{
    const struct gyre_cuda_exchange &exchange = args.exchange;
    const uint32_t channel = blockIdx.x;
    const size_t skip = (size_t)channel * exchange.slots_stride;
#pragma unroll
    for (int p = 0; p < N; p++) {
        if (p >= exchange.n_peers)
            break;
        const struct gyre_cuda_peer &peer = exchange.peers[p];
        const uint32_t mask = exchange.depth - 1;
        ends->to[p] =
            peer.to + skip + ((uint32_t)ends->sent[p] & mask) * (size_t)args.common.slot_bytes;
        ends->from[p] = peer.from + skip +
                        ((uint32_t)ends->received[p] & mask) * (size_t)args.common.slot_bytes;
        if (threadIdx.x == 0)
            store_relaxed_sys(
                (uint64_t *)((unsigned char *)peer.posted + channel * exchange.credit_stride),
                ends->received[p]);
    }
#pragma unroll
    for (int p = 0; p < N; p++)
        if (p < exchange.n_peers && !await_room(args,
                                                (const unsigned char *)exchange.peers[p].head +
                                                    channel * exchange.credit_stride,
                                                ends->head[p], ends->sent[p] + 1))
            return false;
    return true;
}

static __device__ __noinline__ void exchange_clean(unsigned char *slot, uint32_t n_lines,
                                                   uint32_t n_all, uint64_t flag)
{
    for (uint32_t at = n_lines + threadIdx.x; at < n_all; at += blockDim.x)
        ll_store(slot, at, 0, flag);
}

template <int DTYPE, int OP>
static __device__ __forceinline__ uint64_t exchange_load(const struct gyre_cuda_work &work,
                                                         const unsigned char *from,
                                                         uint32_t n_valid)
{
    uint64_t value = load_8(from, n_valid);
    if (work.premultiply != 0) {
        reducer<DTYPE, OP, LL_DATA_BYTES> scaled;
        pack<LL_DATA_BYTES> words;
        memcpy(&words, &value, LL_DATA_BYTES);
        scaled.begin(words, true, work.scalar);
        words = scaled.end(1);
        memcpy(&value, &words, LL_DATA_BYTES);
    }
    return value;
}

/* In the program's order: `place` peers, the own value, the other peers. */
template <int DTYPE, int OP, int N>
static __device__ __forceinline__ uint64_t
exchange_reduce(const struct gyre_cuda_args_exchange &args, uint64_t own, const uint64_t *received)
{
    const uint32_t place = args.exchange.own_place;
    reducer<DTYPE, OP, LL_DATA_BYTES> result;
    pack<LL_DATA_BYTES> words;
    uint64_t value;
#pragma unroll
    for (int i = 0; i <= N; i++) {
        if (i > args.exchange.n_peers)
            break;
        value = i == (int)place  ? own
                : i < (int)place ? received[i < N ? i : 0]
                                 : received[i > 0 ? i - 1 : 0];
        memcpy(&words, &value, LL_DATA_BYTES);
        if (i == 0)
            result.begin(words, false, 0);
        else
            result.add(words, false, 0);
    }
    words = result.end(args.work.divisor);
    memcpy(&value, &words, LL_DATA_BYTES);
    return value;
}

/* All lines of this thread. */
template <int DTYPE, int OP, int N>
static __device__ __forceinline__ void exchange_run(const struct gyre_cuda_args_exchange &args)
{
    const struct gyre_cuda_exchange &exchange = args.exchange;
    const struct gyre_cuda_work &work = args.work;
    struct exchange_ends<N> ends;
    exchange_open<N>(args, &ends);
    const struct gyre_cuda_share share = gyre_cuda_share_make(&work.split, blockIdx.x);
    const struct gyre_range range = gyre_cuda_tile_range(&share, 0, 0);
    const uint32_t n_bytes = (uint32_t)range.n_elems * work.elem_bytes;
    const uint32_t n_lines = (n_bytes + LL_DATA_BYTES - 1) / LL_DATA_BYTES;
    const unsigned char *in = work.in + range.first_elem * work.elem_bytes;
    unsigned char *out = work.out + range.first_elem * work.elem_bytes;
    uint32_t at = threadIdx.x;
    uint64_t own = 0;
    if (at < n_lines) /* on its way while credit is looked at */
        own = exchange_load<DTYPE, OP>(work, in + exchange.own_offset + at * LL_DATA_BYTES,
                                       n_bytes - at * LL_DATA_BYTES);
    if (!exchange_resolve<N>(args, &ends))
        return;
    while (at < n_lines) {
        const uint32_t skip = at * LL_DATA_BYTES, n_valid = n_bytes - skip;
        uint64_t received[N];
#pragma unroll
        for (int p = 0; p < N; p++) {
            if (p >= exchange.n_peers)
                break;
            const uint64_t offset = exchange.peers[p].in_offset;
            ll_store(ends.to[p], at,
                     offset == exchange.own_offset
                         ? own
                         : exchange_load<DTYPE, OP>(work, in + offset + skip, n_valid),
                     gyre_cuda_ll_flag(ends.sent[p]));
        }
        ulonglong2 halves[N];
#pragma unroll
        for (int p = 0; p < N; p++)
            if (p < exchange.n_peers)
                halves[p] = load_line(ends.from[p] + (size_t)at * LL_LINE_BYTES);
#pragma unroll
        for (int p = 0; p < N; p++) {
            if (p >= exchange.n_peers)
                break;
            uint32_t n_polls = 0;
            while (!ll_is_there(halves[p], gyre_cuda_ll_flag(ends.received[p]))) {
                if (must_stop(args.common, n_polls))
                    return;
                halves[p] = load_line(ends.from[p] + (size_t)at * LL_LINE_BYTES);
            }
            received[p] = ll_data(halves[p]);
        }
        store_8(out + skip, exchange_reduce<DTYPE, OP, N>(args, own, received), n_valid);
        at += blockDim.x;
        if (at < n_lines)
            own = exchange_load<DTYPE, OP>(work, in + exchange.own_offset + at * LL_DATA_BYTES,
                                           n_bytes - at * LL_DATA_BYTES);
    }
#pragma unroll
    for (int p = 0; p < N; p++)
        if (p < exchange.n_peers && gyre_cuda_ll_cleans(ends.sent[p], exchange.depth))
            exchange_clean(ends.to[p], n_lines, args.common.slot_bytes / LL_LINE_BYTES,
                           gyre_cuda_ll_flag(ends.sent[p]));
}

/* Counters, after all threads have read them; then what says that a launch is over. */
static __device__ __forceinline__ void exchange_close(const struct gyre_cuda_args_exchange &args)
{
    const struct gyre_cuda_exchange &exchange = args.exchange;
    __syncthreads();
    const uint32_t i = threadIdx.x;
    if (i < 2 * exchange.n_peers) {
        const struct gyre_cuda_peer &peer = exchange.peers[i / 2];
        args.common.counters[(i % 2 != 0 ? peer.send_end : peer.recv_end) +
                             blockIdx.x * args.work.channel_stride] +=
            exchange_uses(exchange) * args.work.split.n_tiles;
    }
    if (i == 0)
        finish_launch(args.common);
}

template <int DTYPE, int OP, int N>
__global__ void __launch_bounds__(512, 1)
    exchange_ll(const __grid_constant__ struct gyre_cuda_args_exchange args)
{
    if (blockIdx.x == 0 && threadIdx.x == blockDim.x - 1)
        start_launch(args.common);
    if (load_relaxed_sys(&args.common.control->is_aborted) == 0)
        exchange_run<DTYPE, OP, N>(args);
    exchange_close(args);
}

#endif
