/* SPDX-License-Identifier: Apache-2.0
 *
 * The fused two-shot all-reduce in SIMPLE. Phase 1 sends each chunk of IN to a slot of the rank
 * that owns the chunk. Phase 2 reduces the own chunk into the OUT of all ranks (IS_PLACED) or into
 * slots. Phase 3, without IS_PLACED, copies the peers' sums from slots to OUT. Slots and words are
 * those of the program's steps, so a peer may run the steps. Up to two tiles are in flight.
 *
 * Threads have the roles of simple_steps.cuh: workers, a waiter, a poster. Workers load their own
 * rank's data before they wait.
 */
#ifdef GYRE_KERNEL_ROW /* kernels/cuda/host/kernel_rows.c */
GYRE_KERNEL_ROW(.name = "simple two-shot",
                .when = {.proto = GYRE_PROTO_SIMPLE,
                         .patterns = BIT(GYRE_FUSED_TWO_SHOT),
                         .needs = GYRE_KERNEL_ALIGNED | GYRE_KERNEL_UNSCALED |
                                  GYRE_KERNEL_HAS_SLOTS,
                         .arithmetic = BIT(GYRE_FUSED_FLOAT_SUM),
                         .most_peers = GYRE_CUDA_MAX_PEERS,
                         .most_tiles = GYRE_CUDA_TILES_IN_FLIGHT},
                .first = INSTANCE(kernels, twoshot), .axes = {GYRE_AXIS_PEERS, GYRE_AXIS_PLACED},
                .service_threads = GYRE_CUDA_SERVICE_THREADS)
#else
#ifndef GYRE_KERNELS_CUDA_FUSED_TWOSHOT_CUH
#define GYRE_KERNELS_CUDA_FUSED_TWOSHOT_CUH

#include "kernels/cuda/device/move.cuh"
#include "kernels/cuda/fused/fused_oneshot.cuh"
#include "kernels/cuda/protocol/simple.cuh"

#define TWOSHOT_READY         1 /* barriers 1 to 6: the waiter arrives, the workers sync */
#define TWOSHOT_DONE          7 /* barriers 7 to 12: the workers arrive, the poster syncs */
/* Packs in flight for each peer. */
#define TWOSHOT_UNROLL(peers) ((peers) == 1 ? 4 : (peers) == 3 ? 2 : 1)

struct twoshot_place {
    unsigned char *to[2 * GYRE_CUDA_TILES_IN_FLIGHT];         /* slots that this rank fills */
    const unsigned char *from[2 * GYRE_CUDA_TILES_IN_FLIGHT]; /* slots that the peer fills */
    unsigned char *out;                                       /* IS_PLACED: the peer's OUT */
};

static_assert(GYRE_CUDA_TILES_IN_FLIGHT <= 2, "barriers");

struct twoshot_ends {
    unsigned char *to; /* slot 0 of the FIFO to the peer */
    const unsigned char *from;
    uint32_t to_bytes; /* of a slot */
    uint32_t from_bytes;
    unsigned char *out; /* IS_PLACED: the peer's OUT */
};

template <bool IS_PLACED>
static __device__ __forceinline__ struct twoshot_ends
twoshot_ends_find(const struct gyre_cuda_args_fused &args, const struct simple_peer &peer)
{
    const struct gyre_connector *send = &args.common.connectors[peer.send_index];
    const struct gyre_connector *recv = &args.common.connectors[peer.recv_index];
    return {send->slots[GYRE_PROTO_SIMPLE], recv->slots[GYRE_PROTO_SIMPLE], send->slot_bytes,
            recv->slot_bytes, IS_PLACED ? simple_out(args, peer) : NULL};
}

template <int PEERS> struct twoshot_shared {
    struct twoshot_place places[PEERS];
    uint32_t stopped_at; /* the first step that no thread takes after an abort; else UINT32_MAX */
};

template <int DTYPE, int PEERS, bool IS_PLACED> struct twoshot_run {
    static const int dtype = DTYPE;
    static const int peers = PEERS;
    static const bool is_placed = IS_PLACED;
    static const int unroll = TWOSHOT_UNROLL(PEERS);
    static const uint32_t n_phases = IS_PLACED ? 2 : 3;

    const struct gyre_cuda_args_fused &args;
    const struct gyre_cuda_fused &fused;
    const struct gyre_cuda_work &work;
    const struct gyre_cuda_share share;
    const uint32_t n_tiles;
    const uint32_t n_workers;
    struct twoshot_shared<PEERS> *shared;
};

template <class RUN> static __device__ __forceinline__ bool twoshot_has(const RUN &run, int k)
{
    return RUN::peers == 1 || k < run.fused.n_peers;
}

template <class RUN>
static __device__ __forceinline__ struct line_range twoshot_range(const RUN &run, uint32_t chunk,
                                                                  uint32_t tile)
{
    return fused_range_of(run.work, run.share, chunk, tile);
}

template <class RUN> static __device__ __forceinline__ int twoshot_n_barrier(const RUN &run)
{
    return (int)run.n_workers + 32;
}

/* As far as they begin below `end`. */
template <class RUN>
static __device__ __forceinline__ void twoshot_load_packs(const RUN &run, const unsigned char *from,
                                                          uint32_t at, uint32_t end,
                                                          pack<16> *packs)
{
#pragma unroll
    for (int u = 0; u < RUN::unroll; u++)
        if (at + u * run.n_workers * 16 < end)
            packs[u] = load<16>(from + at + u * run.n_workers * 16);
}

template <class RUN>
static __device__ __forceinline__ void twoshot_store_packs(const RUN &run, unsigned char *to,
                                                           uint32_t at, uint32_t end,
                                                           const pack<16> *packs)
{
#pragma unroll
    for (int u = 0; u < RUN::unroll; u++)
        if (at + u * run.n_workers * 16 < end)
            store<16>(to + at + u * run.n_workers * 16, packs[u]);
}

/* In workers. */
template <class RUN>
static __device__ __forceinline__ bool twoshot_await_step(const RUN &run, uint32_t i)
{
    barrier_sync(TWOSHOT_READY + (int)i, twoshot_n_barrier(run));
    return i < run.shared->stopped_at;
}

template <class RUN>
static __device__ __forceinline__ bool twoshot_scatter(const RUN &run, uint32_t tile)
{
    const uint32_t round = RUN::unroll * run.n_workers * 16;
    const unsigned char *in[RUN::peers];
    uint32_t n_bytes[RUN::peers], most_bytes = 0, at = threadIdx.x * 16;
    pack<16> packs[RUN::peers][RUN::unroll];
#pragma unroll
    for (int k = 0; k < RUN::peers && twoshot_has(run, k); k++) {
        const struct line_range range = twoshot_range(run, run.fused.peers[k].chunk, tile);
        in[k] = run.work.in + run.fused.peers[k].in_offset + range.skip_bytes;
        n_bytes[k] = range.n_bytes;
        most_bytes = max(most_bytes, range.n_bytes);
        twoshot_load_packs(run, in[k], at, n_bytes[k], packs[k]);
    }
    if (!twoshot_await_step(run, tile))
        return false;
    while (at < most_bytes) {
#pragma unroll
        for (int k = 0; k < RUN::peers && twoshot_has(run, k); k++)
            twoshot_store_packs(run, run.shared->places[k].to[tile], at, n_bytes[k], packs[k]);
        at += round;
#pragma unroll
        for (int k = 0; k < RUN::peers && twoshot_has(run, k); k++)
            twoshot_load_packs(run, in[k], at, n_bytes[k], packs[k]);
    }
    return true;
}

template <class RUN>
static __device__ __forceinline__ pack<16> twoshot_reduce(const RUN &run, const pack<16> &own,
                                                          pack<16> (*received)[RUN::unroll], int u)
{
    ulonglong2 values[RUN::peers], value;
    pack<16> result;
#pragma unroll
    for (int k = 0; k < RUN::peers && twoshot_has(run, k); k++)
        memcpy(&values[k], &received[k][u], 16);
    memcpy(&value, &own, 16);
    value = reduce_rotated<RUN::dtype, RUN::peers, false>(run.args, value, values);
    memcpy(&result, &value, 16);
    return result;
}

template <class RUN>
static __device__ __forceinline__ bool twoshot_finish(const RUN &run, uint32_t tile)
{
    const uint32_t round = RUN::unroll * run.n_workers * 16;
    const struct line_range range = twoshot_range(run, run.fused.own_chunk, tile);
    const unsigned char *in = run.work.in + run.fused.own_offset + range.skip_bytes;
    unsigned char *out = run.work.out + run.fused.own_out_offset + range.skip_bytes;
    uint32_t at = threadIdx.x * 16;
    pack<16> own[RUN::unroll], received[RUN::peers][RUN::unroll];
    twoshot_load_packs(run, in, at, range.n_bytes, own);
    if (!twoshot_await_step(run, run.n_tiles + tile))
        return false;
    while (at < range.n_bytes) {
#pragma unroll
        for (int k = 0; k < RUN::peers && twoshot_has(run, k); k++)
            twoshot_load_packs(run, run.shared->places[k].from[tile], at, range.n_bytes,
                               received[k]);
#pragma unroll
        for (int u = 0; u < RUN::unroll; u++)
            own[u] = twoshot_reduce(run, own[u], received, u);
#pragma unroll
        for (int k = 0; k < RUN::peers && twoshot_has(run, k); k++)
            twoshot_store_packs(run,
                                RUN::is_placed ? run.shared->places[k].out + range.skip_bytes
                                               : run.shared->places[k].to[run.n_tiles + tile],
                                at, range.n_bytes, own);
        twoshot_store_packs(run, out, at, range.n_bytes, own);
        at += round;
        twoshot_load_packs(run, in, at, range.n_bytes, own);
    }
    return true;
}

template <class RUN>
static __device__ __forceinline__ bool twoshot_collect(const RUN &run, uint32_t tile)
{
    unsigned char *out[RUN::peers];
    uint32_t n_bytes[RUN::peers], most_bytes = 0;
#pragma unroll
    for (int k = 0; k < RUN::peers && twoshot_has(run, k); k++) {
        const struct line_range range = twoshot_range(run, run.fused.peers[k].chunk, tile);
        out[k] = run.work.out + run.fused.peers[k].out_offset + range.skip_bytes;
        n_bytes[k] = range.n_bytes;
        most_bytes = max(most_bytes, range.n_bytes);
    }
    if (!twoshot_await_step(run, 2 * run.n_tiles + tile))
        return false;
    for (uint32_t at = threadIdx.x * 16; at < most_bytes; at += RUN::unroll * run.n_workers * 16) {
        pack<16> packs[RUN::peers][RUN::unroll];
#pragma unroll
        for (int k = 0; k < RUN::peers && twoshot_has(run, k); k++)
            twoshot_load_packs(run, run.shared->places[k].from[run.n_tiles + tile], at, n_bytes[k],
                               packs[k]);
#pragma unroll
        for (int k = 0; k < RUN::peers && twoshot_has(run, k); k++)
            twoshot_store_packs(run, out[k], at, n_bytes[k], packs[k]);
    }
    return true;
}

template <class RUN> static __device__ __forceinline__ void twoshot_move(const RUN &run)
{
    bool goes_on = true;
    for (uint32_t i = 0; i < RUN::n_phases * run.n_tiles && goes_on; i++) {
        goes_on = i < run.n_tiles ? twoshot_scatter(run, i)
                  : RUN::is_placed || i < 2 * run.n_tiles
                      ? twoshot_finish(run, i - run.n_tiles)
                      : twoshot_collect(run, i - 2 * run.n_tiles);
        barrier_arrive(TWOSHOT_DONE + (int)i, twoshot_n_barrier(run));
    }
}

/* Waits for room for the launch's slot i, and for the arrival of slot i - n_tiles. */
template <class RUN>
static __device__ __forceinline__ bool
twoshot_prepare(const RUN &run, const struct simple_peer &peer, uint32_t k, uint32_t i)
{
    const bool sends = i < 2 * run.n_tiles;
    const uint32_t tile = sends ? i - run.n_tiles : i - 2 * run.n_tiles;
    if ((sends && !simple_await_room(run.args, peer, i + 1)) ||
        (RUN::is_placed && i == run.n_tiles && !fifo_await_entry(run.args.common, send_end(peer))))
        return false;
    return i < run.n_tiles ||
           simple_await_slot(
               run.args, peer, i - run.n_tiles,
               twoshot_range(run, sends ? run.fused.own_chunk : run.fused.peers[k].chunk, tile)
                   .n_bytes);
}

template <class RUN>
static __device__ __forceinline__ void
twoshot_find_place(const RUN &run, const struct simple_peer &peer, const struct twoshot_ends &ends,
                   struct twoshot_place *place)
{
    for (uint32_t i = 0; i < 2 * GYRE_CUDA_TILES_IN_FLIGHT; i++) {
        const uint32_t to = (uint32_t)(peer.sent + i) & (run.fused.depth - 1);
        const uint32_t from = (uint32_t)(peer.received + i) & (run.fused.depth - 1);
        place->to[i] = ends.to + (size_t)to * ends.to_bytes;
        place->from[i] = ends.from + (size_t)from * ends.from_bytes;
    }
    place->out = ends.out;
}

template <class RUN>
static __device__ __forceinline__ bool
twoshot_await_placed(const RUN &run, const struct simple_peer &peer, uint32_t k)
{
    for (uint32_t tile = 0; tile < run.n_tiles; tile++)
        if (!simple_await_slot(run.args, peer, run.n_tiles + tile,
                               twoshot_range(run, run.fused.peers[k].chunk, tile).n_bytes))
            return false;
    return true;
}

/* Lane k serves peer k. With IS_PLACED, the data of peer k in OUT are complete afterwards. */
template <class RUN>
static __device__ __forceinline__ bool twoshot_wait(const RUN &run, const struct simple_peer &peer,
                                                    const struct twoshot_ends &ends, uint32_t k,
                                                    bool is_aborted)
{
    const bool serves = k < run.fused.n_peers;
    if (serves) {
        if (RUN::is_placed)
            fifo_announce_entry(recv_end(peer));
        twoshot_find_place(run, peer, ends, &run.shared->places[k]);
    }
    if (k == 0)
        run.shared->stopped_at = UINT32_MAX;
    bool is_stopped = is_aborted;
    for (uint32_t i = 0; i < RUN::n_phases * run.n_tiles; i++) {
        is_stopped = is_stopped || (serves && !twoshot_prepare(run, peer, k, i));
        is_stopped = __any_sync(0xffffffffU, is_stopped) != 0;
        if (k == 0 && is_stopped)
            run.shared->stopped_at = i;
        __syncwarp();
        barrier_arrive(TWOSHOT_READY + (int)i, twoshot_n_barrier(run));
        if (is_stopped)
            return false;
        if (k == 0 && i == run.n_tiles) { /* all peers' blocks are running */
            allow_dependent_launch();
            if (is_recorded(run.args.common))
                record_mark(run.args.common.recording.recorder, GYRE_CUDA_MARK_ARRIVED);
        }
    }
    return !RUN::is_placed || !serves || twoshot_await_placed(run, peer, k);
}

/* Also gives back slot i - n_tiles. */
template <class RUN>
static __device__ __forceinline__ void
twoshot_publish(const RUN &run, const struct simple_peer &peer, uint32_t k, uint32_t i)
{
    const bool sends = i < 2 * run.n_tiles;
    if (sends) {
        const struct line_range range =
            i < run.n_tiles ? twoshot_range(run, run.fused.peers[k].chunk, i)
                            : twoshot_range(run, run.fused.own_chunk, i - run.n_tiles);
        simple_describe(run.args, peer, i, range.n_bytes);
    }
    fence_acq_rel_sys();
    if (sends)
        fifo_publish(send_end(peer), (uint64_t)i + 1);
    if (i >= run.n_tiles)
        fifo_return(recv_end(peer), i - run.n_tiles + 1);
}

template <class RUN>
static __device__ __forceinline__ void twoshot_post(const RUN &run, const struct simple_peer &peer,
                                                    uint32_t k)
{
    for (uint32_t i = 0; i < RUN::n_phases * run.n_tiles; i++) {
        barrier_sync(TWOSHOT_DONE + (int)i, twoshot_n_barrier(run));
        if (i >= run.shared->stopped_at)
            return;
        if (k < run.fused.n_peers)
            twoshot_publish(run, peer, k, i);
        if (is_recorded(run.args.common) && k == 0 && i < 2 * run.n_tiles)
            record_mark(run.args.common.recording.recorder,
                        i < run.n_tiles ? GYRE_CUDA_MARK_SENT : GYRE_CUDA_MARK_PASSED_ON);
        __syncwarp();
    }
}

template <int DTYPE, int PEERS, bool IS_PLACED>
static __global__ void __launch_bounds__(GYRE_CUDA_FUSED_THREADS + SERVICE_THREADS, 1)
    fused_twoshot(const __grid_constant__ struct gyre_cuda_args_fused args)
{
    __shared__ struct twoshot_shared<PEERS> shared;
    const uint32_t n_workers = blockDim.x - SERVICE_THREADS;
    const uint32_t k = (threadIdx.x - n_workers) % 32;
    const bool is_service = threadIdx.x >= n_workers, serves = is_service && k < args.fused.n_peers;
    const bool waits = is_service && threadIdx.x < n_workers + 32, posts = serves && !waits;
    const bool has_channel =
        args.common.n_places == args.common.n_blocks; /* no placement is needed */
    struct simple_peer peer = {};
    struct twoshot_ends ends = {};
    if (has_channel && serves) { /* the launch before this one may still run */
        peer = simple_peer_find(args, blockIdx.x, k);
        ends = twoshot_ends_find<IS_PLACED>(args, peer);
    }
    await_last_launch();
    const uint32_t channel = place_block(args.common);
    if (channel == NO_PLACEMENT) {
        end_unplaced_block(args.common);
        return;
    }
    const struct twoshot_run<DTYPE, PEERS, IS_PLACED> launch = {
        args, args.fused, args.work,
            gyre_cuda_share_make(&args.work.split, channel), args.work.split.n_tiles, n_workers,
            &shared
    };
    const uint64_t sequence = begin_launch(args.common);
    if (!has_channel && serves) {
        peer = simple_peer_find(args, channel, k);
        ends = twoshot_ends_find<IS_PLACED>(args, peer);
    }
    if (serves)
        simple_peer_open(args, &peer);
    announce_launch(args.common, sequence);
    bool is_complete = true;
    if (!is_service)
        twoshot_move(launch);
    else if (waits)
        is_complete = twoshot_wait(launch, peer, ends, k,
                                   load_relaxed_sys(&args.common.control->is_aborted) != 0);
    else
        twoshot_post(launch, peer, k);
    if (is_recorded(args.common) && waits && serves)
        record_peer(args.common.recording.recorder, k, peer.send_index, peer.sent, peer.recv_index,
                    peer.received);
    is_complete = __syncthreads_and(is_complete) != 0;
    if (threadIdx.x == 0)
        allow_dependent_launch();
    if (IS_PLACED && is_complete && posts)
        fifo_return(recv_end(peer), 2 * launch.n_tiles);
    if (waits && serves)
        simple_peer_close(args, peer, 2 * launch.n_tiles);
    end_launch(args.common, sequence, channel, fused_facts(args, channel));
}

#endif
#endif
