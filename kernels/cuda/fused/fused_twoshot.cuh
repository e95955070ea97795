/* SPDX-License-Identifier: Apache-2.0
 *
 * The two-shot all-reduce as one macro-step, in protocol SIMPLE, in three phases: chunks of IN go
 * to the slots of the ranks that own them; sums go straight into the OUT of all ranks (IS_PLACED),
 * or to slots, from which each rank collects them. The same slots and words as the steps have (a
 * peer may well run those), in up to two tiles, which go through the phases side by side: what one
 * tile waits for is under way while the other is moved.
 *
 * As in simple.cuh the block's threads only move bytes; a warp more waits for peers, at last for
 * what they placed, another one fences and publishes. What is not a peer's is loaded before the
 * wait.
 */
#ifndef GYRE_KERNELS_CUDA_FUSED_TWOSHOT_CUH
#define GYRE_KERNELS_CUDA_FUSED_TWOSHOT_CUH

#include "kernels/cuda/protocol/simple.cuh"
#include "kernels/cuda/fused/simple_fifos.cuh"

#define TWOSHOT_READY 1 /* barriers, to 6: waiter arrives, movers sync */
#define TWOSHOT_DONE  7 /* to 12: movers arrive, poster syncs */
/* Packs of a thread under way for each peer. */
#define TWOSHOT_UNROLL(peers) ((peers) == 1 ? 4 : (peers) == 3 ? 2 : 1)

/* What the movers must know of a peer. */
struct twoshot_place {
    unsigned char *to[2 * GYRE_TILES_ABREAST];         /* its slots; */
    const unsigned char *from[2 * GYRE_TILES_ABREAST]; /* those that it fills */
    unsigned char *out;                                /* IS_PLACED: its OUT */
};

static_assert(GYRE_TILES_ABREAST <= 2, "barriers");

/* Where a peer's slots and its OUT are, in this block's channel. */
struct twoshot_ends {
    unsigned char *to; /* slot 0 */
    const unsigned char *from;
    uint32_t to_bytes; /* of a slot */
    uint32_t from_bytes;
    unsigned char *out; /* IS_PLACED */
};

template <bool IS_PLACED>
static __device__ __forceinline__ struct twoshot_ends
twoshot_ends_find(const struct gyre_cuda_args_exchange &args, const struct simple_peer &peer)
{
    const struct gyre_connector *send = &args.common.connectors[peer.send_index];
    const struct gyre_connector *recv = &args.common.connectors[peer.recv_index];
    return {send->slots[GYRE_PROTO_SIMPLE], recv->slots[GYRE_PROTO_SIMPLE], send->slot_bytes,
            recv->slot_bytes, IS_PLACED ? simple_out(args, peer) : NULL};
}

template <int PEERS> struct twoshot_shared {
    struct twoshot_place places[PEERS];
    uint32_t stopped_at; /* aborted: the first step that is not taken; all threads agree on it */
};

/* A launch as one block sees it. */
template <int DTYPE, int PEERS, bool IS_PLACED> struct twoshot_run {
    static const int unroll = TWOSHOT_UNROLL(PEERS);
    static const uint32_t n_phases = IS_PLACED ? 2 : 3;

    const struct gyre_cuda_args_exchange &args;
    const struct gyre_cuda_exchange &exchange;
    const struct gyre_cuda_work &work;
    const struct gyre_cuda_share share;
    const uint32_t n_tiles;
    const uint32_t n_workers;
    struct twoshot_shared<PEERS> *shared;

    __device__ __forceinline__ twoshot_run(const struct gyre_cuda_args_exchange &a,
                                           uint32_t channel, struct twoshot_shared<PEERS> *s)
        : args(a), exchange(a.exchange), work(a.work),
          share(gyre_cuda_share_make(&a.work.split, channel)), n_tiles(a.work.split.n_tiles),
          n_workers(blockDim.x - SERVICE_THREADS), shared(s)
    {
    }

    __device__ __forceinline__ bool has(int k) const
    {
        return PEERS == 1 || k < exchange.n_peers;
    }

    __device__ __forceinline__ struct line_range range_of(uint32_t chunk, uint32_t tile) const
    {
        return fused_range_of(work, share, chunk, tile);
    }

    __device__ __forceinline__ int n_barrier() const
    {
        return (int)n_workers + 32;
    }

    /* Of unroll packs from `at` on, those below `end`. */
    __device__ __forceinline__ void load_packs(const unsigned char *from, uint32_t at, uint32_t end,
                                               pack<16> *packs) const
    {
#pragma unroll
        for (int u = 0; u < unroll; u++)
            if (at + u * n_workers * 16 < end)
                packs[u] = load<16>(from + at + u * n_workers * 16);
    }

    __device__ __forceinline__ void store_packs(unsigned char *to, uint32_t at, uint32_t end,
                                                const pack<16> *packs) const
    {
#pragma unroll
        for (int u = 0; u < unroll; u++)
            if (at + u * n_workers * 16 < end)
                store<16>(to + at + u * n_workers * 16, packs[u]);
    }

    /* Movers. Returns false when aborted. */
    __device__ __forceinline__ bool await_step(uint32_t i) const
    {
        barrier_sync(TWOSHOT_READY + (int)i, n_barrier());
        return i < shared->stopped_at;
    }

    /* The peers' chunks of IN to their slots. Returns false when aborted. */
    __device__ __forceinline__ bool scatter(uint32_t tile) const
    {
        const uint32_t round = unroll * n_workers * 16;
        const unsigned char *in[PEERS];
        uint32_t n_bytes[PEERS], most_bytes = 0, at = threadIdx.x * 16;
        pack<16> packs[PEERS][unroll];
#pragma unroll
        for (int k = 0; k < PEERS && has(k); k++) {
            const struct line_range range = range_of(exchange.peers[k].chunk, tile);
            in[k] = work.in + exchange.peers[k].in_offset + range.skip_bytes;
            n_bytes[k] = range.n_bytes;
            most_bytes = max(most_bytes, range.n_bytes);
            load_packs(in[k], at, n_bytes[k], packs[k]);
        }
        if (!await_step(tile))
            return false;
        while (at < most_bytes) {
#pragma unroll
            for (int k = 0; k < PEERS && has(k); k++)
                store_packs(shared->places[k].to[tile], at, n_bytes[k], packs[k]);
            at += round;
#pragma unroll
            for (int k = 0; k < PEERS && has(k); k++)
                load_packs(in[k], at, n_bytes[k], packs[k]);
        }
        return true;
    }

    __device__ __forceinline__ pack<16> reduce(const pack<16> &own, pack<16> (*received)[unroll],
                                               int u) const
    {
        ulonglong2 values[PEERS], value;
        pack<16> result;
#pragma unroll
        for (int k = 0; k < PEERS && has(k); k++)
            memcpy(&values[k], &received[k][u], 16);
        memcpy(&value, &own, 16);
        value = reduce_rotated<DTYPE, PEERS, false>(args, value, values);
        memcpy(&result, &value, 16);
        return result;
    }

    /* The own chunk's sum to OUT of all ranks; not IS_PLACED: to the own one and the peers' slots.
     * Returns false when aborted. */
    __device__ __forceinline__ bool finish(uint32_t tile) const
    {
        const uint32_t round = unroll * n_workers * 16;
        const struct line_range range = range_of(exchange.own_chunk, tile);
        const unsigned char *in = work.in + exchange.own_offset + range.skip_bytes;
        unsigned char *out = work.out + exchange.own_out_offset + range.skip_bytes;
        uint32_t at = threadIdx.x * 16;
        pack<16> own[unroll], received[PEERS][unroll];
        load_packs(in, at, range.n_bytes, own);
        if (!await_step(n_tiles + tile))
            return false;
        while (at < range.n_bytes) {
#pragma unroll
            for (int k = 0; k < PEERS && has(k); k++)
                load_packs(shared->places[k].from[tile], at, range.n_bytes, received[k]);
#pragma unroll
            for (int u = 0; u < unroll; u++)
                own[u] = reduce(own[u], received, u);
#pragma unroll
            for (int k = 0; k < PEERS && has(k); k++)
                store_packs(IS_PLACED ? shared->places[k].out + range.skip_bytes
                                      : shared->places[k].to[n_tiles + tile],
                            at, range.n_bytes, own);
            store_packs(out, at, range.n_bytes, own);
            at += round;
            load_packs(in, at, range.n_bytes, own);
        }
        return true;
    }

    /* What the peers finished, from slots to OUT. Returns false when aborted. */
    __device__ __forceinline__ bool collect(uint32_t tile) const
    {
        unsigned char *out[PEERS];
        uint32_t n_bytes[PEERS], most_bytes = 0;
#pragma unroll
        for (int k = 0; k < PEERS && has(k); k++) {
            const struct line_range range = range_of(exchange.peers[k].chunk, tile);
            out[k] = work.out + exchange.peers[k].out_offset + range.skip_bytes;
            n_bytes[k] = range.n_bytes;
            most_bytes = max(most_bytes, range.n_bytes);
        }
        if (!await_step(2 * n_tiles + tile))
            return false;
        for (uint32_t at = threadIdx.x * 16; at < most_bytes; at += unroll * n_workers * 16) {
            pack<16> packs[PEERS][unroll];
#pragma unroll
            for (int k = 0; k < PEERS && has(k); k++)
                load_packs(shared->places[k].from[n_tiles + tile], at, n_bytes[k], packs[k]);
#pragma unroll
            for (int k = 0; k < PEERS && has(k); k++)
                store_packs(out[k], at, n_bytes[k], packs[k]);
        }
        return true;
    }

    __device__ __forceinline__ void move() const
    {
        bool goes_on = true;
        for (uint32_t i = 0; i < n_phases * n_tiles && goes_on; i++) {
            goes_on = i < n_tiles                    ? scatter(i)
                      : IS_PLACED || i < 2 * n_tiles ? finish(i - n_tiles)
                                                     : collect(i - 2 * n_tiles);
            barrier_arrive(TWOSHOT_DONE + (int)i, n_barrier());
        }
    }

    /* What the movers' i-th step needs of peer k: room for slot i, slot i - n_tiles. Returns false
     * when aborted. */
    __device__ __forceinline__ bool prepare(const struct simple_peer &peer, uint32_t k,
                                            uint32_t i) const
    {
        const bool sends = i < 2 * n_tiles;
        const uint32_t tile = sends ? i - n_tiles : i - 2 * n_tiles;
        if ((sends && !simple_await_room(args, peer, i + 1)) ||
            (IS_PLACED && i == n_tiles && !simple_await_entry(args, peer)))
            return false;
        return i < n_tiles ||
               simple_await_slot(
                   args, peer, i - n_tiles,
                   range_of(sends ? exchange.own_chunk : exchange.peers[k].chunk, tile).n_bytes);
    }

    __device__ __forceinline__ void find_place(const struct simple_peer &peer,
                                               const struct twoshot_ends &ends,
                                               struct twoshot_place *place) const
    {
        for (uint32_t i = 0; i < 2 * GYRE_TILES_ABREAST; i++) {
            const uint32_t to = (uint32_t)(peer.sent + i) & (exchange.depth - 1);
            const uint32_t from = (uint32_t)(peer.received + i) & (exchange.depth - 1);
            place->to[i] = ends.to + (size_t)to * ends.to_bytes;
            place->from[i] = ends.from + (size_t)from * ends.from_bytes;
        }
        place->out = ends.out;
    }

    /* What peer k placed here is complete. Returns false when aborted. */
    __device__ __forceinline__ bool await_placed(const struct simple_peer &peer, uint32_t k) const
    {
        for (uint32_t tile = 0; tile < n_tiles; tile++)
            if (!simple_await_slot(args, peer, n_tiles + tile,
                                   range_of(exchange.peers[k].chunk, tile).n_bytes))
                return false;
        return true;
    }

    /* One warp; lane k serves peer k. Returns whether nothing was aborted; then, if IS_PLACED, OUT
     * is complete. */
    __device__ __forceinline__ bool wait(const struct simple_peer &peer,
                                         const struct twoshot_ends &ends, uint32_t k,
                                         bool is_aborted) const
    {
        const bool serves = k < exchange.n_peers;
        if (serves) {
            if (IS_PLACED)
                simple_enter(peer);
            find_place(peer, ends, &shared->places[k]);
        }
        if (k == 0)
            shared->stopped_at = UINT32_MAX;
        bool is_stopped = is_aborted;
        for (uint32_t i = 0; i < n_phases * n_tiles; i++) {
            is_stopped = is_stopped || (serves && !prepare(peer, k, i));
            is_stopped = __any_sync(0xffffffffU, is_stopped) != 0;
            if (k == 0 && is_stopped)
                shared->stopped_at = i;
            __syncwarp();
            barrier_arrive(TWOSHOT_READY + (int)i, n_barrier());
            if (is_stopped)
                return false;
            if (k == 0 && i == n_tiles) /* all peers' blocks have begun */
                allow_dependent_launch();
        }
        return !IS_PLACED || !serves || await_placed(peer, k);
    }

    /* The movers' i-th step is done: slot i is filled, slot i - n_tiles is free. */
    __device__ __forceinline__ void publish(const struct simple_peer &peer, uint32_t k,
                                            uint32_t i) const
    {
        const bool sends = i < 2 * n_tiles;
        if (sends) {
            const struct line_range range = i < n_tiles ? range_of(exchange.peers[k].chunk, i)
                                                        : range_of(exchange.own_chunk, i - n_tiles);
            store_relaxed_sys(&peer.inbox_there->slot_info[(peer.sent + i) & (exchange.depth - 1)],
                              gyre_slot_info(range.n_bytes, work.signature));
        }
        fence_acq_rel_sys();
        if (sends)
            store_relaxed_sys(&peer.inbox_there->tail[GYRE_PROTO_SIMPLE], peer.sent + i + 1);
        if (i >= n_tiles)
            simple_give_back(peer, i - n_tiles + 1);
    }

    /* One warp; lane k serves peer k. */
    __device__ __forceinline__ void post(const struct simple_peer &peer, uint32_t k) const
    {
        for (uint32_t i = 0; i < n_phases * n_tiles; i++) {
            barrier_sync(TWOSHOT_DONE + (int)i, n_barrier());
            if (i >= shared->stopped_at)
                return;
            if (k < exchange.n_peers)
                publish(peer, k, i);
            __syncwarp();
        }
    }
};

template <int DTYPE, int PEERS, bool IS_PLACED>
static __global__ void __launch_bounds__(GYRE_CUDA_EXCHANGE_THREADS + SERVICE_THREADS, 1)
    exchange_twoshot(const __grid_constant__ struct gyre_cuda_args_exchange args)
{
    __shared__ struct twoshot_shared<PEERS> shared;
    const uint32_t n_workers = blockDim.x - SERVICE_THREADS;
    const uint32_t k = (threadIdx.x - n_workers) % 32;
    const bool is_service = threadIdx.x >= n_workers,
               serves = is_service && k < args.exchange.n_peers;
    const bool waits = is_service && threadIdx.x < n_workers + 32, posts = serves && !waits;
    const bool has_channel = args.common.n_seats == args.common.n_blocks; /* it needs no seat */
    struct simple_peer peer = {};
    struct twoshot_ends ends = {};
    if (has_channel && serves) { /* while the launch before may still run */
        peer = simple_peer_find(args, blockIdx.x, k);
        ends = twoshot_ends_find<IS_PLACED>(args, peer);
    }
    await_last_launch();
    const uint32_t channel = place_block(args.common);
    if (channel == NO_PLACEMENT) {
        end_unplaced_block(args.common);
        return;
    }
    const struct twoshot_run<DTYPE, PEERS, IS_PLACED> launch(args, channel, &shared);
    const uint64_t sequence = begin_launch(args.common);
    if (!has_channel && serves) {
        peer = simple_peer_find(args, channel, k);
        ends = twoshot_ends_find<IS_PLACED>(args, peer);
    }
    if (serves)
        simple_peer_count(args, &peer);
    announce_launch(args.common, sequence);
    bool is_complete = true;
    if (!is_service)
        launch.move();
    else if (waits)
        is_complete =
            launch.wait(peer, ends, k, load_relaxed_sys(&args.common.control->is_aborted) != 0);
    else
        launch.post(peer, k);
    is_complete = __syncthreads_and(is_complete) != 0;
    if (threadIdx.x == 0)
        allow_dependent_launch();
    if (IS_PLACED && is_complete && posts)
        simple_give_back(peer, 2 * launch.n_tiles);
    if (waits && serves)
        simple_close(args, peer, 2 * launch.n_tiles);
    end_launch(args.common, sequence, channel);
}

#endif
