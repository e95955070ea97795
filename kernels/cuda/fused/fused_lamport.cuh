/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges (exchange.cuh) in protocol LAMPORT, of sums: each thread has the same lines of all
 * peers, so that it reduces what it received without meeting another thread. One kernel for up to
 * PEERS peers; fewer are asked for at run time, but for 1. EXACT_FIT, the shorter kernels: exactly
 * PEERS peers, one tile, all addresses and lengths multiples of 16, nothing multiplied or divided.
 * Small calls pay for every instruction that is fetched.
 */
#ifndef GYRE_KERNELS_CUDA_FUSED_LAMPORT_CUH
#define GYRE_KERNELS_CUDA_FUSED_LAMPORT_CUH

#include "kernels/cuda/device/bulk.cuh"
#include "kernels/cuda/protocol/lamport.cuh"
#include "kernels/cuda/fused/lamport_fifos.cuh"

template <int DTYPE, bool EXACT_FIT>
static __device__ __forceinline__ ulonglong2 lamport_load(const struct gyre_cuda_work &work,
                                                          const unsigned char *from,
                                                          uint32_t n_valid)
{
    if (EXACT_FIT)
        return lamport_format::finish(*(const ulonglong2 *)from);
    const ulonglong2 value = lamport_format::load(from, n_valid);
    return work.premultiply == 0
               ? value
               : lamport_format::finish(scale_input<DTYPE, GYRE_SUM, LINE_BYTES>(work, value));
}

template <bool EXACT_FIT>
static __device__ __forceinline__ void lamport_store(unsigned char *to, ulonglong2 value,
                                                     uint32_t n_valid)
{
    if (EXACT_FIT)
        *(ulonglong2 *)to = value;
    else
        lamport_format::store(to, value, n_valid);
}

/* Line `at` of each peer of `mask`, whose slots begin at `from`. Returns false when aborted. */
template <int PEERS, bool EXACT_FIT>
static __device__ __forceinline__ bool lamport_receive(const struct gyre_cuda_args_exchange &args,
                                                       unsigned char *const *from, uint32_t at,
                                                       uint32_t mask, ulonglong2 *values)
{
    uint32_t n_polls = 0;
#pragma unroll
    for (int k = 0; k < PEERS && has_peer<PEERS, EXACT_FIT>(args.exchange, k); k++)
        if ((mask >> k & 1) != 0)
            values[k] = load_line(from[k] + at);
    while (true) {
        uint32_t missing = 0;
#pragma unroll
        for (int k = 0; k < PEERS && has_peer<PEERS, EXACT_FIT>(args.exchange, k); k++)
            if ((mask >> k & 1) != 0 && !lamport_format::has_arrived(values[k], 0))
                missing |= 1U << k;
        if (missing == 0)
            break;
        if (++n_polls % ABORT_POLLS == 0 && must_stop_now(args.common, n_polls))
            return false;
#pragma unroll
        for (int k = 0; k < PEERS; k++)
            if ((missing >> k & 1) != 0)
                values[k] = load_line(from[k] + at);
    }
#pragma unroll
    for (int k = 0; k < PEERS && has_peer<PEERS, EXACT_FIT>(args.exchange, k); k++)
        values[k] = lamport_format::data(values[k]);
    return true;
}

/* After what was received has gone on. */
template <int PEERS, bool EXACT_FIT>
static __device__ __forceinline__ void lamport_clear(const struct gyre_cuda_args_exchange &args,
                                                     unsigned char *const *from, uint32_t at,
                                                     uint32_t mask)
{
#pragma unroll
    for (int k = 0; k < PEERS && has_peer<PEERS, EXACT_FIT>(args.exchange, k); k++)
        if ((mask >> k & 1) != 0)
            clear_line(from[k] + at);
}

/* A launch in this protocol, as one thread sees it. */
template <int DTYPE, int PEERS, int KIND, bool EXACT_FIT> struct lamport_run {
    static const bool gathers = KIND == GYRE_CUDA_LAMPORT_GATHERS;
    static const uint32_t n_uses = gathers ? 2 : 1;
    /* Two-shots empty what they have reduced in bulk, while the second half is on its way. What is
     * emptied last is faster by the threads' own stores: a launch would wait for the bulk ones. */
    static const bool in_bulk = gathers && HAS_BULK_STORES;

    const struct gyre_cuda_args_exchange &args;
    const struct gyre_cuda_exchange &exchange;
    const struct lamport_share share;
    const struct bulk_zeros *zeros;
    struct lamport_ends<PEERS> ends;
    ulonglong2 first[PEERS]; /* of tile 0: the first line of each peer's chunk of IN, */
    ulonglong2 first_own;    /* and of the own one: loaded while credit is */

    __device__ __forceinline__ lamport_run(const struct gyre_cuda_args_exchange &a,
                                           const struct bulk_zeros *z)
        : args(a), exchange(a.exchange), share(lamport_share_make(a.work)), zeros(z)
    {
    }

    __device__ __forceinline__ bool has(int k) const
    {
        return has_peer<PEERS, EXACT_FIT>(exchange, k);
    }

    __device__ __forceinline__ struct lamport_range range_of(uint32_t chunk, uint32_t tile) const
    {
        return lamport_range_of<EXACT_FIT>(args.work, share, chunk, tile);
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
        return lamport_load<DTYPE, EXACT_FIT>(args.work, args.work.in + offset + range.skip + at,
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
        const uint32_t at = threadIdx.x * LINE_BYTES;
        const bool is_aborted = lamport_open<PEERS, EXACT_FIT>(args, &ends);
        load_inputs(ranges, at, first);
        if (KIND == GYRE_CUDA_LAMPORT_SAME)
            first_own = first[0];
        else if (at < own.n_bytes)
            first_own = load(exchange.own_offset, own, at);
        return !is_aborted && lamport_await<PEERS, EXACT_FIT>(args, ends, n_slots);
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
        uint32_t at = threadIdx.x * LINE_BYTES;
        if (tile != 0)
            load_inputs(ranges, at, values);
#pragma unroll 1
        while (at < most_bytes) {
#pragma unroll
            for (int k = 0; k < PEERS && has(k); k++)
                if (at < ranges[k].n_bytes)
                    lamport_format::send(to[k] + at, 0, values[k], 0);
            at += blockDim.x * LINE_BYTES;
            load_inputs(ranges, at, values);
        }
    }

    /* Line `at` of the own chunk, whose value is `own`: reduced, to OUT and, if the program
     * gathers, to all peers. Returns false when aborted. */
    __device__ __forceinline__ bool finish_line(const struct lamport_range &range, uint32_t tile,
                                                uint32_t at, ulonglong2 own,
                                                unsigned char *const *from,
                                                unsigned char *const *to) const
    {
        unsigned char *out = args.work.out + exchange.own_out_offset + range.skip;
        ulonglong2 received[PEERS];
        if (!lamport_receive<PEERS, EXACT_FIT>(args, from, at, ~0U, received))
            return false;
        if (tile == 0) /* all peers' blocks have begun */
            allow_dependent_after_wait(at);
        ulonglong2 result = reduce_rotated<DTYPE, PEERS, EXACT_FIT>(args, own, received);
        if (gathers || DTYPE == GYRE_FLOAT64) /* of the others no NaN has such bits */
            result = lamport_format::finish(result);
        if (gathers) {
#pragma unroll
            for (int k = 0; k < PEERS && has(k); k++)
                lamport_format::send(to[k] + at, 0, result, 0);
        }
        lamport_store<EXACT_FIT>(out + at, result, range.n_bytes - at);
        if (!in_bulk)
            lamport_clear<PEERS, EXACT_FIT>(args, from, at, ~0U);
        return true;
    }

    /* A warp's lines, after all its lanes have read them; `at` is its first one. */
    __device__ __forceinline__ void clear_in_bulk(const struct lamport_range &range, uint32_t at,
                                                  unsigned char *const *from) const
    {
        if (threadIdx.x % 32 != 0)
            return;
        const uint32_t n_lines = (range.n_bytes - at + LINE_BYTES - 1) / LINE_BYTES;
        const uint32_t n_bytes = min(n_lines * LINE_BYTES, BULK_BYTES);
#pragma unroll
        for (int k = 0; k < PEERS && has(k); k++)
            bulk_clear(zeros, from[k] + at, n_bytes);
    }

    /* The own chunk. Returns false when aborted. */
    __device__ __forceinline__ bool finish(uint32_t tile) const
    {
        const struct lamport_range range = range_of(exchange.own_chunk, tile);
        const uint32_t lane_skip = in_bulk ? threadIdx.x % 32 * LINE_BYTES : 0;
        unsigned char *from[PEERS], *to[PEERS];
#pragma unroll
        for (int k = 0; k < PEERS && has(k); k++) {
            from[k] = lamport_slot(args, exchange.peers[k].from, ends.received[k] + tile * n_uses);
            if (gathers)
                to[k] = lamport_slot(args, exchange.peers[k].to, ends.sent[k] + tile * n_uses + 1);
        }
        ulonglong2 own = first_own;
#pragma unroll 1
        for (uint32_t at = threadIdx.x * LINE_BYTES; at - lane_skip < range.n_bytes;
             at += blockDim.x * LINE_BYTES) {
            const bool is_own = !in_bulk || at < range.n_bytes;
            if (is_own && (tile != 0 || at >= blockDim.x * LINE_BYTES))
                own = load(exchange.own_offset, range, at);
            const bool goes_on = !is_own || finish_line(range, tile, at, own, from, to);
            if (in_bulk ? __all_sync(0xffffffffU, goes_on) == 0 : !goes_on)
                return false;
            if (in_bulk)
                clear_in_bulk(range, at - lane_skip, from);
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
        for (uint32_t at = threadIdx.x * LINE_BYTES; at < most_bytes;
             at += blockDim.x * LINE_BYTES) {
            ulonglong2 received[PEERS];
            uint32_t mask = 0;
#pragma unroll
            for (int k = 0; k < PEERS && has(k); k++)
                mask |= at < ranges[k].n_bytes ? 1U << k : 0;
            if (!lamport_receive<PEERS, EXACT_FIT>(args, from, at, mask, received))
                return false;
#pragma unroll
            for (int k = 0; k < PEERS && has(k); k++)
                if ((mask >> k & 1) != 0)
                    lamport_store<EXACT_FIT>(out[k] + at, received[k], ranges[k].n_bytes - at);
            lamport_clear<PEERS, EXACT_FIT>(args, from, at, mask);
        }
        return true;
    }

    /* Phase by phase, each of all tiles, as run_phases(). */
    __device__ __forceinline__ void run()
    {
        const uint32_t n_tiles = EXACT_FIT ? 1 : args.work.split.n_tiles;
        bool goes_on = open(n_uses * n_tiles);
        if (in_bulk) /* finish() takes whole warps */
            goes_on = __all_sync(0xffffffffU, goes_on) != 0;
#pragma unroll 1
        for (uint32_t tile = 0; tile < n_tiles && goes_on; tile++)
            scatter(tile);
        announce_launch(args.common, ends.sequence);
#pragma unroll 1
        for (uint32_t tile = 0; tile < n_tiles && goes_on; tile++)
            goes_on = finish(tile);
#pragma unroll 1
        for (uint32_t tile = 0; gathers && tile < n_tiles && goes_on; tile++)
            goes_on = gather(tile);
        if (in_bulk)
            bulk_await();
        lamport_close<PEERS, EXACT_FIT>(args, ends, n_uses * n_tiles);
    }
};

template <int DTYPE, int PEERS, int KIND, bool EXACT_FIT>
__global__ void __launch_bounds__(GYRE_CUDA_LAMPORT_THREADS(PEERS), 1)
    exchange_lamport(const __grid_constant__ struct gyre_cuda_args_exchange args)
{
    using run = lamport_run<DTYPE, PEERS, KIND, EXACT_FIT>;
    __shared__ struct bulk_zeros zeros;
    if (run::in_bulk) { /* while the launch before may still run */
        bulk_prepare(&zeros);
        __syncthreads();
    }
    run launch(args, &zeros);
    launch.run();
}

#endif
