/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused sums in LAMPORT. A thread receives the same lines from all peers, so it reduces them
 * without waiting for another thread. EXACT_FIT means exactly PEERS peers, one tile, multiples of
 * 16 bytes, and no scaling.
 */
#ifdef GYRE_KERNEL_ROW /* kernels/cuda/host/kernel_rows.c */
GYRE_KERNEL_ROW(.name = "lamport sum",
                .when = {.proto = GYRE_PROTO_LAMPORT,
                         .patterns = REDUCES_IN_LINES | BIT(GYRE_FUSED_TWO_SHOT),
                         .needs = GYRE_KERNEL_STAGED | GYRE_KERNEL_UNMOVED | GYRE_KERNEL_HAS_SLOTS,
                         .arithmetic = BIT(GYRE_FUSED_FLOAT_SUM),
                         .most_peers = GYRE_CUDA_MAX_PEERS,
                         .most_tiles = ANY_NUMBER},
                .first = INSTANCE(kernels, lamport),
                .axes = {GYRE_AXIS_PEERS, GYRE_AXIS_KIND, GYRE_AXIS_EXACT})
#else
#ifndef GYRE_KERNELS_CUDA_FUSED_LAMPORT_CUH
#define GYRE_KERNELS_CUDA_FUSED_LAMPORT_CUH

#include "kernels/cuda/fused/fused_oneshot.cuh"
#include "kernels/cuda/protocol/lamport.cuh"

/* Bulk stores of zeros by the copy hardware, while threads work (PTX ISA, cp.async.bulk). */
#if __CUDA_ARCH__ >= 900
#define HAS_BULK_STORES true
#else
#define HAS_BULK_STORES false
#endif

#define BULK_BYTES 512 /* 16 bytes for each lane of a warp */

/* In shared memory. */
struct __align__(16) bulk_zeros
{
    uint64_t words[BULK_BYTES / sizeof(uint64_t)];
};

/* All threads. A barrier of the block follows before the first bulk store. */
static __device__ __forceinline__ void bulk_prepare(struct bulk_zeros *zeros)
{
    if constexpr (HAS_BULK_STORES) {
        for (uint32_t i = threadIdx.x; i < BULK_BYTES / sizeof(uint64_t); i += blockDim.x)
            zeros->words[i] = 0;
        fence_proxy_async_shared();
    }
}

/* One thread. @n_bytes: a multiple of 16, at most BULK_BYTES. */
static __device__ __forceinline__ void bulk_clear(const struct bulk_zeros *zeros, void *to,
                                                  uint32_t n_bytes)
{
    bulk_store(to, zeros->words, n_bytes);
}

/* The bytes and slots of a block. The vector fits into the slots, so 32 bits are enough. */
static __device__ __forceinline__ uint32_t lamport_unit(const struct gyre_cuda_work &work)
{
    return work.split.unit_elems * work.elem_bytes;
}

/* As gyre_cuda_tile_range(), in 32 bits and bytes. */
struct lamport_share {
    uint32_t skip;
    uint32_t n_bytes;
    uint32_t chunk_bytes;
    uint32_t extra_chunks; /* chunks with one unit more */
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
    /* The compiler must not compute these later: the launch before may still run now. */
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

/* @slots: of channel 0. */
static __device__ __forceinline__ unsigned char *
lamport_slot(const struct gyre_cuda_args_fused &args, const unsigned char *slots, uint32_t number)
{
    const struct gyre_cuda_fused &fused = args.fused;
    return (unsigned char *)(uintptr_t)slots + (size_t)blockIdx.x * fused.slots_stride +
           (number & (fused.depth - 1)) * args.common.slot_bytes;
}

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

/* Line `at` from all peers in `mask`. */
template <int PEERS, bool EXACT_FIT>
static __device__ __forceinline__ bool lamport_receive(const struct gyre_cuda_args_fused &args,
                                                       unsigned char *const *from, uint32_t at,
                                                       uint32_t mask, ulonglong2 *values)
{
    uint32_t n_polls = 0;
#pragma unroll
    for (int k = 0; k < PEERS && has_peer<PEERS, EXACT_FIT>(args.fused, k); k++)
        if ((mask >> k & 1) != 0)
            values[k] = load_line(from[k] + at);
    while (true) {
        uint32_t missing = 0;
#pragma unroll
        for (int k = 0; k < PEERS && has_peer<PEERS, EXACT_FIT>(args.fused, k); k++)
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
    for (int k = 0; k < PEERS && has_peer<PEERS, EXACT_FIT>(args.fused, k); k++)
        values[k] = lamport_format::data(values[k]);
    return true;
}

/* The caller has sent or stored the lines' data. */
template <int PEERS, bool EXACT_FIT>
static __device__ __forceinline__ void lamport_clear(const struct gyre_cuda_args_fused &args,
                                                     unsigned char *const *from, uint32_t at,
                                                     uint32_t mask)
{
#pragma unroll
    for (int k = 0; k < PEERS && has_peer<PEERS, EXACT_FIT>(args.fused, k); k++)
        if ((mask >> k & 1) != 0)
            clear_line(from[k] + at);
}

/* One thread's state. */
template <int DTYPE, int PEERS, int KIND, bool EXACT_FIT> struct lamport_run {
    static const int dtype = DTYPE;
    static const int peers = PEERS;
    static const int kind = KIND;
    static const bool exact_fit = EXACT_FIT;
    static const bool gathers = KIND == GYRE_CUDA_LAMPORT_GATHERS;
    static const uint32_t n_uses = gathers ? 2 : 1;
    /* A two-shot clears its first half's lines with bulk stores, while the second half is under
     * way. At the launch's end they would cost time, so threads clear the second half's lines. */
    static const bool in_bulk = gathers && HAS_BULK_STORES;

    const struct gyre_cuda_args_fused *args;
    struct lamport_share share;
    const struct bulk_zeros *zeros;
    struct all_fifos<PEERS> ends;
    ulonglong2 first[PEERS]; /* tile 0: the first line of each peer's chunk of IN */
    ulonglong2 first_own;    /* and of the own chunk; loaded together with credit */
};

template <class RUN> static __device__ __forceinline__ bool lamport_has(const RUN &run, int k)
{
    return has_peer<RUN::peers, RUN::exact_fit>(run.args->fused, k);
}

template <class RUN>
static __device__ __forceinline__ struct lamport_range
lamport_range_in(const RUN &run, uint32_t chunk, uint32_t tile)
{
    return lamport_range_of<RUN::exact_fit>(run.args->work, run.share, chunk, tile);
}

template <class RUN>
static __device__ __forceinline__ void lamport_find_ranges(const RUN &run, uint32_t tile,
                                                           struct lamport_range *ranges)
{
#pragma unroll
    for (int k = 0; k < RUN::peers && lamport_has(run, k); k++)
        ranges[k] = lamport_range_in(run, run.args->fused.peers[k].chunk, tile);
}

template <class RUN>
static __device__ __forceinline__ ulonglong2 lamport_load_input(const RUN &run, uint64_t offset,
                                                                const struct lamport_range &range,
                                                                uint32_t at)
{
    return lamport_load<RUN::dtype, RUN::exact_fit>(
        run.args->work, run.args->work.in + offset + range.skip + at, range.n_bytes - at);
}

template <class RUN>
static __device__ __forceinline__ void lamport_load_inputs(const RUN &run,
                                                           const struct lamport_range *ranges,
                                                           uint32_t at, ulonglong2 *values)
{
#pragma unroll
    for (int k = 0; k < RUN::peers && lamport_has(run, k); k++)
        if (k > 0 && RUN::kind == GYRE_CUDA_LAMPORT_SAME)
            values[k] = values[0];
        else if (at < ranges[k].n_bytes)
            values[k] = lamport_load_input(run, run.args->fused.peers[k].in_offset, ranges[k], at);
}

/* Also loads the first lines of IN. */
template <class RUN>
static __device__ __forceinline__ bool lamport_begin(RUN *run, uint32_t n_slots)
{
    struct lamport_range ranges[RUN::peers];
    lamport_find_ranges(*run, 0, ranges);
    const struct lamport_range own = lamport_range_in(*run, run->args->fused.own_chunk, 0);
    const uint32_t at = threadIdx.x * LINE_BYTES;
    const bool is_aborted = all_fifos_open<RUN::peers, RUN::exact_fit>(*run->args, &run->ends);
    lamport_load_inputs(*run, ranges, at, run->first);
    if (RUN::kind == GYRE_CUDA_LAMPORT_SAME)
        run->first_own = run->first[0];
    else if (at < own.n_bytes)
        run->first_own = lamport_load_input(*run, run->args->fused.own_offset, own, at);
    return !is_aborted &&
           all_fifos_await<RUN::peers, RUN::exact_fit>(*run->args, run->ends, n_slots);
}

template <class RUN>
static __device__ __forceinline__ void lamport_scatter(const RUN &run, uint32_t tile)
{
    struct lamport_range ranges[RUN::peers];
    unsigned char *to[RUN::peers];
    ulonglong2 values[RUN::peers];
    uint32_t most_bytes = 0;
    lamport_find_ranges(run, tile, ranges);
#pragma unroll
    for (int k = 0; k < RUN::peers && lamport_has(run, k); k++) {
        to[k] = lamport_slot(*run.args, run.args->fused.peers[k].to,
                             run.ends.sent[k] + tile * RUN::n_uses);
        most_bytes = max(most_bytes, ranges[k].n_bytes);
        values[k] = run.first[k];
    }
    uint32_t at = threadIdx.x * LINE_BYTES;
    if (tile != 0)
        lamport_load_inputs(run, ranges, at, values);
#pragma unroll 1
    while (at < most_bytes) {
#pragma unroll
        for (int k = 0; k < RUN::peers && lamport_has(run, k); k++)
            if (at < ranges[k].n_bytes)
                lamport_format::send(to[k] + at, 0, values[k], 0);
        at += blockDim.x * LINE_BYTES;
        lamport_load_inputs(run, ranges, at, values);
    }
}

/* Line `at` of the own chunk. @own: this rank's value. */
template <class RUN>
static __device__ __forceinline__ bool
lamport_finish_line(const RUN &run, const struct lamport_range &range, uint32_t tile, uint32_t at,
                    ulonglong2 own, unsigned char *const *from, unsigned char *const *to)
{
    unsigned char *out = run.args->work.out + run.args->fused.own_out_offset + range.skip;
    ulonglong2 received[RUN::peers];
    if (!lamport_receive<RUN::peers, RUN::exact_fit>(*run.args, from, at, ~0U, received))
        return false;
    if (tile == 0) /* all peers' blocks are running */
        allow_dependent_after_wait(at);
    ulonglong2 result =
        reduce_rotated<RUN::dtype, RUN::peers, RUN::exact_fit>(*run.args, own, received);
    if (RUN::gathers ||
        RUN::dtype == GYRE_FLOAT64) /* other types' results never have a half of all ones */
        result = lamport_format::finish(result);
    if (RUN::gathers) {
#pragma unroll
        for (int k = 0; k < RUN::peers && lamport_has(run, k); k++)
            lamport_format::send(to[k] + at, 0, result, 0);
    }
    lamport_store<RUN::exact_fit>(out + at, result, range.n_bytes - at);
    if (!RUN::in_bulk)
        lamport_clear<RUN::peers, RUN::exact_fit>(*run.args, from, at, ~0U);
    return true;
}

/* The warp's lines from `at` on. All lanes have read them. */
template <class RUN>
static __device__ __forceinline__ void
lamport_clear_in_bulk(const RUN &run, const struct lamport_range &range, uint32_t at,
                      unsigned char *const *from)
{
    if (threadIdx.x % 32 != 0)
        return;
    const uint32_t n_lines = (range.n_bytes - at + LINE_BYTES - 1) / LINE_BYTES;
    const uint32_t n_bytes = min(n_lines * LINE_BYTES, BULK_BYTES);
#pragma unroll
    for (int k = 0; k < RUN::peers && lamport_has(run, k); k++)
        bulk_clear(run.zeros, from[k] + at, n_bytes);
}

template <class RUN>
static __device__ __forceinline__ bool lamport_finish(const RUN &run, uint32_t tile)
{
    const struct lamport_range range = lamport_range_in(run, run.args->fused.own_chunk, tile);
    const uint32_t lane_skip = RUN::in_bulk ? threadIdx.x % 32 * LINE_BYTES : 0;
    unsigned char *from[RUN::peers], *to[RUN::peers];
#pragma unroll
    for (int k = 0; k < RUN::peers && lamport_has(run, k); k++) {
        from[k] = lamport_slot(*run.args, run.args->fused.peers[k].from,
                               run.ends.received[k] + tile * RUN::n_uses);
        if (RUN::gathers)
            to[k] = lamport_slot(*run.args, run.args->fused.peers[k].to,
                                 run.ends.sent[k] + tile * RUN::n_uses + 1);
    }
    ulonglong2 own = run.first_own;
#pragma unroll 1
    for (uint32_t at = threadIdx.x * LINE_BYTES; at - lane_skip < range.n_bytes;
         at += blockDim.x * LINE_BYTES) {
        const bool is_own = !RUN::in_bulk || at < range.n_bytes;
        if (is_own && (tile != 0 || at >= blockDim.x * LINE_BYTES))
            own = lamport_load_input(run, run.args->fused.own_offset, range, at);
        const bool goes_on = !is_own || lamport_finish_line(run, range, tile, at, own, from, to);
        if (RUN::in_bulk ? __all_sync(0xffffffffU, goes_on) == 0 : !goes_on)
            return false;
        if (RUN::in_bulk)
            lamport_clear_in_bulk(run, range, at - lane_skip, from);
    }
    return true;
}

template <class RUN>
static __device__ __forceinline__ bool lamport_gather(const RUN &run, uint32_t tile)
{
    struct lamport_range ranges[RUN::peers];
    unsigned char *from[RUN::peers], *out[RUN::peers];
    uint32_t most_bytes = 0;
    lamport_find_ranges(run, tile, ranges);
#pragma unroll
    for (int k = 0; k < RUN::peers && lamport_has(run, k); k++) {
        from[k] = lamport_slot(*run.args, run.args->fused.peers[k].from,
                               run.ends.received[k] + tile * RUN::n_uses + 1);
        out[k] = run.args->work.out + run.args->fused.peers[k].out_offset + ranges[k].skip;
        most_bytes = max(most_bytes, ranges[k].n_bytes);
    }
#pragma unroll 1
    for (uint32_t at = threadIdx.x * LINE_BYTES; at < most_bytes; at += blockDim.x * LINE_BYTES) {
        ulonglong2 received[RUN::peers];
        uint32_t mask = 0;
#pragma unroll
        for (int k = 0; k < RUN::peers && lamport_has(run, k); k++)
            mask |= at < ranges[k].n_bytes ? 1U << k : 0;
        if (!lamport_receive<RUN::peers, RUN::exact_fit>(*run.args, from, at, mask, received))
            return false;
#pragma unroll
        for (int k = 0; k < RUN::peers && lamport_has(run, k); k++)
            if ((mask >> k & 1) != 0)
                lamport_store<RUN::exact_fit>(out[k] + at, received[k], ranges[k].n_bytes - at);
        lamport_clear<RUN::peers, RUN::exact_fit>(*run.args, from, at, mask);
    }
    return true;
}

template <class RUN> static __device__ __forceinline__ void lamport_phases(RUN *run)
{
    const uint32_t n_tiles = RUN::exact_fit ? 1 : run->args->work.split.n_tiles;
    bool goes_on = lamport_begin(run, RUN::n_uses * n_tiles);
    if (RUN::in_bulk) /* lamport_finish() needs converged warps */
        goes_on = __all_sync(0xffffffffU, goes_on) != 0;
#pragma unroll 1
    for (uint32_t tile = 0; tile < n_tiles && goes_on; tile++)
        lamport_scatter(*run, tile);
    announce_launch(run->args->common, run->ends.sequence);
#pragma unroll 1
    for (uint32_t tile = 0; tile < n_tiles && goes_on; tile++)
        goes_on = lamport_finish(*run, tile);
#pragma unroll 1
    for (uint32_t tile = 0; RUN::gathers && tile < n_tiles && goes_on; tile++)
        goes_on = lamport_gather(*run, tile);
    if (RUN::in_bulk)
        bulk_await();
    all_fifos_close<RUN::peers, RUN::exact_fit>(*run->args, run->ends, RUN::n_uses * n_tiles);
}

template <int DTYPE, int PEERS, int KIND, bool EXACT_FIT>
static __global__ void __launch_bounds__(GYRE_CUDA_LAMPORT_THREADS(PEERS), 1)
    fused_lamport(const __grid_constant__ struct gyre_cuda_args_fused args)
{
    using run = lamport_run<DTYPE, PEERS, KIND, EXACT_FIT>;
    __shared__ struct bulk_zeros zeros;
    if (run::in_bulk) { /* the launch before this one may still run */
        bulk_prepare(&zeros);
        __syncthreads();
    }
    run launch; /* by members: an initialiser would clear the others */
    launch.args = &args;
    launch.share = lamport_share_make(args.work);
    launch.zeros = &zeros;
    lamport_phases(&launch);
}

#endif
#endif
