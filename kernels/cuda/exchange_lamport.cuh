/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges (exchange.cuh) in protocol LAMPORT, of sums: each thread has the same lines of all
 * peers, so that it reduces what it received without meeting another thread. One kernel for up to
 * PEERS peers; fewer are asked for at run time, but for 1.
 */
#ifndef GYRE_KERNELS_CUDA_EXCHANGE_LAMPORT_CUH
#define GYRE_KERNELS_CUDA_EXCHANGE_LAMPORT_CUH

#include "kernels/cuda/exchange.cuh"
#include "kernels/cuda/lamport.cuh"

/* IS_PLAIN, the shorter kernels: exactly PEERS peers, one tile, all addresses and lengths multiples
 * of 16, nothing multiplied or divided. Small calls pay for every instruction that is fetched. */
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

template <bool IS_PLAIN>
static __device__ __forceinline__ struct lamport_range
lamport_range_of(const struct gyre_cuda_work &work, const struct lamport_share &share,
                 uint32_t chunk, uint32_t tile)
{
    const uint32_t unit = lamport_unit(work), tile_bytes = work.split.tile_elems * work.elem_bytes;
    const uint32_t part = work.split.n_chunks == 1 ? 0 : chunk;
    const uint32_t n_bytes = share.chunk_bytes + (part < share.extra_chunks ? unit : 0);
    const uint32_t from = share.chunk_bytes * part + min(part, share.extra_chunks) * unit;
    if (IS_PLAIN)
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
    uint64_t turn; /* turn.cuh */
};

template <int PEERS, bool IS_PLAIN>
static __device__ __forceinline__ bool has_peer(const struct gyre_cuda_exchange &exchange, int k)
{
    return IS_PLAIN || k == 0 || (uint32_t)k < exchange.n_peers;
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
template <int PEERS, bool IS_PLAIN>
static __device__ __forceinline__ bool lamport_open(const struct gyre_cuda_args_exchange &args,
                                                    struct lamport_ends<PEERS> *ends)
{
    const struct gyre_cuda_exchange &exchange = args.exchange;
    const uint64_t *counters = args.common.counters + blockIdx.x * args.work.channel_stride;
    await_last_launch();
    ends->turn = take_turn(args.common);
    const uint32_t is_aborted = load_relaxed_sys(&args.common.control->is_aborted);
#pragma unroll
    for (int k = 0; k < PEERS && has_peer<PEERS, IS_PLAIN>(exchange, k); k++) {
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
static __device__ __noinline__ bool lamport_must_stop(const struct gyre_cuda_common &common,
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
                                                       uint64_t turn, int k, uint32_t last_slot)
{
    uint32_t n_polls = 0;
    announce_turn(args.common, turn);
    while (!lamport_has_room(args.exchange,
                             load_relaxed_sys(low_half(lamport_head(args.exchange, k))), last_slot))
        if (must_stop(args.common, n_polls))
            return false;
    return true;
}

/* As exchange_await(). */
template <int PEERS, bool IS_PLAIN>
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
    for (int k = 0; k < PEERS && has_peer<PEERS, IS_PLAIN>(exchange, k); k++)
        has_room &= lamport_has_room(exchange, ends.head[k], ends.sent[k] + n_slots - 1);
    if (has_room)
        return true;
#pragma unroll 1
    for (int k = 0; k < (int)exchange.n_peers; k++) {
        const uint32_t sent = *low_half(
            &args.common
                 .counters[exchange.peers[k].send_end + blockIdx.x * args.work.channel_stride]);
        if (!lamport_await_room(args, ends.turn, k, sent + n_slots - 1))
            return false;
    }
    return true;
}

/* As exchange_close(). */
template <int PEERS, bool IS_PLAIN>
static __device__ __forceinline__ void lamport_close(const struct gyre_cuda_args_exchange &args,
                                                     const struct lamport_ends<PEERS> &ends,
                                                     uint32_t n_slots)
{
    uint64_t *counters = args.common.counters + blockIdx.x * args.work.channel_stride;
    __syncthreads();
    if (threadIdx.x == 0)
        invite_next_launch();
    if (threadIdx.x < args.exchange.n_peers) {
        counters[args.exchange.peers[threadIdx.x].send_end] = ends.own_sent + n_slots;
        counters[args.exchange.peers[threadIdx.x].recv_end] = ends.own_received + n_slots;
    }
    end_turn(args.common, ends.turn, blockIdx.x);
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

template <int DTYPE, bool IS_PLAIN>
static __device__ __forceinline__ ulonglong2 lamport_load(const struct gyre_cuda_work &work,
                                                          const unsigned char *from,
                                                          uint32_t n_valid)
{
    if (IS_PLAIN)
        return lamport_form::finish(*(const ulonglong2 *)from);
    const ulonglong2 value = lamport_form::load(from, n_valid);
    return work.premultiply == 0
               ? value
               : lamport_form::finish(exchange_scale<DTYPE, GYRE_SUM, OWN_LINE_BYTES>(work, value));
}

template <bool IS_PLAIN>
static __device__ __forceinline__ void lamport_store(unsigned char *to, ulonglong2 value,
                                                     uint32_t n_valid)
{
    if (IS_PLAIN)
        *(ulonglong2 *)to = value;
    else
        lamport_form::store(to, value, n_valid);
}

/* Line `at` of each peer of `mask`, whose slots begin at `from`. Returns false when aborted. */
template <int PEERS, bool IS_PLAIN>
static __device__ __forceinline__ bool lamport_receive(const struct gyre_cuda_args_exchange &args,
                                                       unsigned char *const *from, uint32_t at,
                                                       uint32_t mask, ulonglong2 *values)
{
    uint32_t n_polls = 0;
#pragma unroll
    for (int k = 0; k < PEERS && has_peer<PEERS, IS_PLAIN>(args.exchange, k); k++)
        if ((mask >> k & 1) != 0)
            values[k] = load_line(from[k] + at);
    while (true) {
        uint32_t missing = 0;
#pragma unroll
        for (int k = 0; k < PEERS && has_peer<PEERS, IS_PLAIN>(args.exchange, k); k++)
            if ((mask >> k & 1) != 0 && !lamport_form::is_there(values[k], 0))
                missing |= 1U << k;
        if (missing == 0)
            break;
        if (++n_polls % ABORT_POLLS == 0 && lamport_must_stop(args.common, n_polls))
            return false;
#pragma unroll
        for (int k = 0; k < PEERS; k++)
            if ((missing >> k & 1) != 0)
                values[k] = load_line(from[k] + at);
    }
#pragma unroll
    for (int k = 0; k < PEERS && has_peer<PEERS, IS_PLAIN>(args.exchange, k); k++)
        values[k] = lamport_form::data(values[k]);
    return true;
}

/* After what was received has gone on. */
template <int PEERS, bool IS_PLAIN>
static __device__ __forceinline__ void lamport_empty(const struct gyre_cuda_args_exchange &args,
                                                     unsigned char *const *from, uint32_t at,
                                                     uint32_t mask)
{
#pragma unroll
    for (int k = 0; k < PEERS && has_peer<PEERS, IS_PLAIN>(args.exchange, k); k++)
        if ((mask >> k & 1) != 0)
            empty_line(from[k] + at);
}

/* In the program's order, as exchange_reduce(); values in registers. */
template <int DTYPE, int PEERS, bool IS_PLAIN>
static __device__ __forceinline__ ulonglong2 lamport_reduce(
    const struct gyre_cuda_args_exchange &args, ulonglong2 own, const ulonglong2 *received)
{
    if constexpr (PEERS == 1) {
        return exchange_reduce_pair<DTYPE, GYRE_SUM, OWN_LINE_BYTES>(args, own, received[0]);
    } else {
        /* Peers stand from the next rank on: the i-th in the program's order is the j-th here. */
        const uint32_t place = args.exchange.own_place;
        const uint32_t n_peers = IS_PLAIN ? PEERS : args.exchange.n_peers;
        reducer<DTYPE, GYRE_SUM, OWN_LINE_BYTES> result;
        pack<OWN_LINE_BYTES> words;
#pragma unroll
        for (uint32_t i = 0; i <= PEERS; i++) {
            const uint32_t j = i < place ? i + n_peers - place : i - 1 - place;
            ulonglong2 value = own;
            if (i > n_peers)
                break;
#pragma unroll
            for (uint32_t k = 0; k < PEERS; k++)
                if (i != place && k == j)
                    value = received[k];
            memcpy(&words, &value, OWN_LINE_BYTES);
            if (i == 0)
                result.begin(words, false, 0);
            else
                result.add(words, false, 0);
        }
        words = result.end(IS_PLAIN ? 1 : args.work.divisor);
        memcpy(&own, &words, OWN_LINE_BYTES);
        return own;
    }
}

/* A launch in this protocol, as one thread sees it. */
template <int DTYPE, int PEERS, int KIND, bool IS_PLAIN> struct lamport_run {
    static const bool gathers = KIND == GYRE_CUDA_LAMPORT_GATHERS;
    static const uint32_t n_uses = gathers ? 2 : 1;

    const struct gyre_cuda_args_exchange &args;
    const struct gyre_cuda_exchange &exchange;
    const struct lamport_share share;
    struct lamport_ends<PEERS> ends;
    ulonglong2 first[PEERS]; /* of tile 0: the first line of each peer's chunk of IN, */
    ulonglong2 first_own;    /* and of the own one: loaded while credit is */

    __device__ __forceinline__ lamport_run(const struct gyre_cuda_args_exchange &a)
        : args(a), exchange(a.exchange), share(lamport_share_make(a.work))
    {
    }

    __device__ __forceinline__ bool has(int k) const
    {
        return has_peer<PEERS, IS_PLAIN>(exchange, k);
    }

    __device__ __forceinline__ struct lamport_range range_of(uint32_t chunk, uint32_t tile) const
    {
        return lamport_range_of<IS_PLAIN>(args.work, share, chunk, tile);
    }

    __device__ __forceinline__ void find_ranges(uint32_t tile, struct lamport_range *ranges) const
    {
#pragma unroll
        for (int k = 0; k < PEERS && has(k); k++)
            ranges[k] = range_of(exchange.peers[k].chunk, tile);
    }

    __device__ __forceinline__ ulonglong2 load(uint64_t offset, const struct lamport_range &range,
                                               uint32_t at) const
    {
        return lamport_load<DTYPE, IS_PLAIN>(args.work, args.work.in + offset + range.skip + at,
                                             range.n_bytes - at);
    }

    /* Line `at` of every peer's chunk of IN. */
    __device__ __forceinline__ void load_inputs(const struct lamport_range *ranges, uint32_t at,
                                                ulonglong2 *values) const
    {
#pragma unroll
        for (int k = 0; k < PEERS && has(k); k++)
            if (k > 0 && KIND == GYRE_CUDA_LAMPORT_SAME)
                values[k] = values[0];
            else if (at < ranges[k].n_bytes)
                values[k] = load(exchange.peers[k].in_offset, ranges[k], at);
    }

    /* Returns false if the communicator was aborted before, or while credit was awaited. */
    __device__ __forceinline__ bool open(uint32_t n_slots)
    {
        struct lamport_range ranges[PEERS];
        find_ranges(0, ranges);
        const struct lamport_range own = range_of(exchange.own_chunk, 0);
        const uint32_t at = threadIdx.x * OWN_LINE_BYTES;
        const bool is_aborted = lamport_open<PEERS, IS_PLAIN>(args, &ends);
        load_inputs(ranges, at, first);
        if (KIND == GYRE_CUDA_LAMPORT_SAME)
            first_own = first[0];
        else if (at < own.n_bytes)
            first_own = load(exchange.own_offset, own, at);
        return !is_aborted && lamport_await<PEERS, IS_PLAIN>(args, ends, n_slots);
    }

    /* All peers' chunks of IN to their slots. */
    __device__ __forceinline__ void scatter(uint32_t tile) const
    {
        struct lamport_range ranges[PEERS];
        unsigned char *to[PEERS];
        ulonglong2 values[PEERS];
        uint32_t most_bytes = 0;
        find_ranges(tile, ranges);
#pragma unroll
        for (int k = 0; k < PEERS && has(k); k++) {
            to[k] = lamport_slot(args, exchange.peers[k].to, ends.sent[k] + tile * n_uses);
            most_bytes = max(most_bytes, ranges[k].n_bytes);
            values[k] = first[k];
        }
        uint32_t at = threadIdx.x * OWN_LINE_BYTES;
        if (tile != 0)
            load_inputs(ranges, at, values);
#pragma unroll 1
        while (at < most_bytes) {
#pragma unroll
            for (int k = 0; k < PEERS && has(k); k++)
                if (at < ranges[k].n_bytes)
                    lamport_form::send(to[k] + at, 0, values[k], 0);
            at += blockDim.x * OWN_LINE_BYTES;
            load_inputs(ranges, at, values);
        }
    }

    /* The own chunk: reduced, to OUT and, if the program gathers, to all peers. Returns false when
     * aborted. */
    __device__ __forceinline__ bool finish(uint32_t tile) const
    {
        const struct lamport_range range = range_of(exchange.own_chunk, tile);
        unsigned char *out = args.work.out + exchange.own_out_offset + range.skip;
        unsigned char *from[PEERS], *to[PEERS];
#pragma unroll
        for (int k = 0; k < PEERS && has(k); k++) {
            from[k] = lamport_slot(args, exchange.peers[k].from, ends.received[k] + tile * n_uses);
            if (gathers)
                to[k] = lamport_slot(args, exchange.peers[k].to, ends.sent[k] + tile * n_uses + 1);
        }
        ulonglong2 own = first_own;
#pragma unroll 1
        for (uint32_t at = threadIdx.x * OWN_LINE_BYTES; at < range.n_bytes;
             at += blockDim.x * OWN_LINE_BYTES) {
            ulonglong2 received[PEERS];
            if (tile != 0 || at >= blockDim.x * OWN_LINE_BYTES)
                own = load(exchange.own_offset, range, at);
            if (!lamport_receive<PEERS, IS_PLAIN>(args, from, at, ~0U, received))
                return false;
            if (tile == 0) /* all peers' blocks have begun */
                exchange_invite(at);
            ulonglong2 result = lamport_reduce<DTYPE, PEERS, IS_PLAIN>(args, own, received);
            if (gathers) {
                result = lamport_form::finish(result);
#pragma unroll
                for (int k = 0; k < PEERS && has(k); k++)
                    lamport_form::send(to[k] + at, 0, result, 0);
            }
            lamport_store<IS_PLAIN>(out + at, result, range.n_bytes - at);
            lamport_empty<PEERS, IS_PLAIN>(args, from, at, ~0U);
        }
        return true;
    }

    /* What the peers finished, to OUT. Returns false when aborted. */
    __device__ __forceinline__ bool gather(uint32_t tile) const
    {
        struct lamport_range ranges[PEERS];
        unsigned char *from[PEERS], *out[PEERS];
        uint32_t most_bytes = 0;
        find_ranges(tile, ranges);
#pragma unroll
        for (int k = 0; k < PEERS && has(k); k++) {
            from[k] =
                lamport_slot(args, exchange.peers[k].from, ends.received[k] + tile * n_uses + 1);
            out[k] = args.work.out + exchange.peers[k].out_offset + ranges[k].skip;
            most_bytes = max(most_bytes, ranges[k].n_bytes);
        }
#pragma unroll 1
        for (uint32_t at = threadIdx.x * OWN_LINE_BYTES; at < most_bytes;
             at += blockDim.x * OWN_LINE_BYTES) {
            ulonglong2 received[PEERS];
            uint32_t mask = 0;
#pragma unroll
            for (int k = 0; k < PEERS && has(k); k++)
                mask |= at < ranges[k].n_bytes ? 1U << k : 0;
            if (!lamport_receive<PEERS, IS_PLAIN>(args, from, at, mask, received))
                return false;
#pragma unroll
            for (int k = 0; k < PEERS && has(k); k++)
                if ((mask >> k & 1) != 0)
                    lamport_store<IS_PLAIN>(out[k] + at, received[k], ranges[k].n_bytes - at);
            lamport_empty<PEERS, IS_PLAIN>(args, from, at, mask);
        }
        return true;
    }

    /* Phase by phase, each of all tiles, as run_exchange(). */
    __device__ __forceinline__ void run()
    {
        const uint32_t n_tiles = IS_PLAIN ? 1 : args.work.split.n_tiles;
        bool goes_on = open(n_uses * n_tiles);
#pragma unroll 1
        for (uint32_t tile = 0; tile < n_tiles && goes_on; tile++)
            scatter(tile);
        announce_turn(args.common, ends.turn);
#pragma unroll 1
        for (uint32_t tile = 0; tile < n_tiles && goes_on; tile++)
            goes_on = finish(tile);
#pragma unroll 1
        for (uint32_t tile = 0; gathers && tile < n_tiles && goes_on; tile++)
            goes_on = gather(tile);
        lamport_close<PEERS, IS_PLAIN>(args, ends, n_uses * n_tiles);
    }
};

template <int DTYPE, int PEERS, int KIND, bool IS_PLAIN>
__global__ void __launch_bounds__(GYRE_CUDA_LAMPORT_THREADS(PEERS), 1)
    exchange_lamport(const __grid_constant__ struct gyre_cuda_args_exchange args)
{
    lamport_run<DTYPE, PEERS, KIND, IS_PLAIN> launch(args);
    launch.run();
}

#endif
