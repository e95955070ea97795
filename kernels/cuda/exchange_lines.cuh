/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges (exchange.cuh) of any number of phases, in LL and LL128: scatter the chunks of IN,
 * reduce the own one, gather the results. A thread has the same positions of a chunk in all phases,
 * so no barrier stands between them, and in place the chunk is read before it is overwritten.
 */
#ifndef GYRE_KERNELS_CUDA_EXCHANGE_LINES_CUH
#define GYRE_KERNELS_CUDA_EXCHANGE_LINES_CUH

#include "kernels/cuda/exchange.cuh"
#include "kernels/cuda/ll128.cuh"

/* Rounds of a phase that are under way at the same time: what 128 registers hold. */
#define EXCHANGE_UNROLL(n_peers) ((n_peers) > 3 ? 1 : 2)

/* A protocol's way to move what one thread moves at once (struct line_place). */
template <int PROTO> struct line_mover;

template <> struct line_mover<GYRE_PROTO_LL> {
    using step = ll_step<DTYPE_NONE, GYRE_SUM>;
    static const int bytes = LL_DATA_BYTES;

    static __device__ __forceinline__ uint32_t n_rounds(uint32_t n_bytes)
    {
        return (n_bytes + LL_DATA_BYTES * blockDim.x - 1) / (LL_DATA_BYTES * blockDim.x);
    }

    static __device__ __forceinline__ struct line_place place(uint32_t round, uint32_t n_bytes)
    {
        const uint32_t line = round * blockDim.x + threadIdx.x;
        const uint32_t at = line * LL_DATA_BYTES;
        return {line, at, at < n_bytes ? n_bytes - at : 0, at < n_bytes};
    }

    static __device__ __forceinline__ ulonglong2 load(const unsigned char *base,
                                                      const struct line_place &own)
    {
        return {own.is_there ? load_8(base + own.data_bytes, own.n_valid) : 0, 0};
    }

    static __device__ __forceinline__ void store(unsigned char *base, const struct line_place &own,
                                                 ulonglong2 value)
    {
        if (own.is_there)
            store_8(base + own.data_bytes, value.x, own.n_valid);
    }

    static __device__ __forceinline__ void send(unsigned char *slot, const struct line_place &own,
                                                ulonglong2 value, uint64_t flag)
    {
        if (own.is_there)
            ll_store(slot, own.line, value.x, flag);
    }

    /* What receive() then begins with. */
    static __device__ __forceinline__ ulonglong2 peek(const unsigned char *slot,
                                                      const struct line_place &own)
    {
        ulonglong2 halves = {0, 0};
        if (own.is_there)
            halves = load_line(slot + (size_t)own.line * LL_LINE_BYTES);
        return halves;
    }

    /* Returns false when aborted. */
    static __device__ __forceinline__ bool receive(const struct gyre_cuda_common &common,
                                                   const struct line_operand &in,
                                                   const struct line_place &own, ulonglong2 *value)
    {
        if (own.is_there && !step::receive(common, in, own.line, value))
            return false;
        *value = {ll_data(*value), 0};
        return true;
    }
};

template <> struct line_mover<GYRE_PROTO_LL128> {
    using step = ll128_step<DTYPE_NONE, GYRE_SUM>;
    static const int bytes = 16;

    static __device__ __forceinline__ uint32_t n_lines(uint32_t n_bytes)
    {
        return (n_bytes + LL128_DATA_BYTES - 1) / LL128_DATA_BYTES;
    }

    static __device__ __forceinline__ uint32_t n_rounds(uint32_t n_bytes)
    {
        const uint32_t lines_per_round = blockDim.x / LL128_LANES;
        return (n_lines(n_bytes) + lines_per_round - 1) / lines_per_round;
    }

    static __device__ __forceinline__ struct line_place place(uint32_t round, uint32_t n_bytes)
    {
        return step::place(round * (blockDim.x / 32) + threadIdx.x / 32, threadIdx.x % 32, n_bytes,
                           n_lines(n_bytes));
    }

    static __device__ __forceinline__ ulonglong2 load(const unsigned char *base,
                                                      const struct line_place &own)
    {
        return step::load_chunk(base, own);
    }

    static __device__ __forceinline__ void store(unsigned char *base, const struct line_place &own,
                                                 ulonglong2 value)
    {
        step::store_chunk(base, own, value);
    }

    static __device__ __forceinline__ void send(unsigned char *slot, const struct line_place &own,
                                                ulonglong2 value, uint64_t flag)
    {
        const uint32_t lane = threadIdx.x % 32;
        __syncwarp(); /* the lanes of a line store together, whatever they did before */
        if (own.is_there)
            store_line(step::in_slot(slot, own, lane), value.x,
                       lane % LL128_LANES == LL128_LANES - 1 ? flag : value.y);
    }

    static __device__ __forceinline__ ulonglong2 peek(unsigned char *slot,
                                                      const struct line_place &own)
    {
        ulonglong2 value = {0, 0};
        if (own.is_there)
            value = load_line(step::in_slot(slot, own, threadIdx.x % 32));
        return value;
    }

    static __device__ __forceinline__ bool receive(const struct gyre_cuda_common &common,
                                                   const struct line_operand &in,
                                                   const struct line_place &own, ulonglong2 *value)
    {
        return step::receive(common, in, own, threadIdx.x % 32, value);
    }
};

/* A launch's view of one exchange, the same for all threads of the block. */
template <int N> struct line_ends {
    uint64_t sent[N]; /* slots before this launch */
    uint64_t received[N];
};

/* A part of IN or OUT: where it begins from the buffer's start. */
struct line_range {
    uint64_t skip_bytes;
    uint32_t n_bytes;
};

static __device__ __forceinline__ struct line_range
exchange_range(const struct gyre_cuda_work &work, uint32_t chunk, uint32_t tile)
{
    const struct gyre_cuda_share share = gyre_cuda_share_make(&work.split, blockIdx.x);
    const struct gyre_range range = gyre_cuda_tile_range(&share, chunk, tile);
    return {range.first_elem * work.elem_bytes, (uint32_t)range.n_elems * work.elem_bytes};
}

/* Counters and credit of all peers in one trip; credit of the launches before goes back to all of
 * them before room is awaited of any. Returns false when aborted. */
template <int N>
static __device__ __forceinline__ bool open_ends(const struct gyre_cuda_args_exchange &args,
                                                 struct line_ends<N> *ends)
{
    const struct gyre_cuda_exchange &exchange = args.exchange;
    const uint32_t n_slots = exchange_uses(exchange) * args.work.split.n_tiles;
    const uint32_t end_skip = blockIdx.x * args.work.channel_stride;
    const size_t skip = (size_t)blockIdx.x * exchange.credit_stride;
    uint64_t head[N];
#pragma unroll
    for (int p = 0; p < N; p++) {
        if (p >= exchange.n_peers)
            break;
        const struct gyre_cuda_peer &peer = exchange.peers[p];
        ends->sent[p] = args.common.counters[peer.send_end + end_skip];
        ends->received[p] = args.common.counters[peer.recv_end + end_skip];
        head[p] = load_relaxed_sys((const uint64_t *)((const unsigned char *)peer.head + skip));
    }
#pragma unroll
    for (int p = 0; p < N; p++)
        if (p < exchange.n_peers && threadIdx.x == 0)
            store_relaxed_sys((uint64_t *)((unsigned char *)exchange.peers[p].posted + skip),
                              ends->received[p]);
    bool is_stopped = false;
#pragma unroll
    for (int p = 0; p < N; p++)
        if (p < exchange.n_peers && !is_stopped)
            is_stopped = !await_room(args, (const unsigned char *)exchange.peers[p].head + skip,
                                     head[p], ends->sent[p] + n_slots);
    return __any_sync(0xffffffffU, is_stopped) == 0;
}

/* The slot of that number of a FIFO whose slots of channel 0 begin at `slots`, and its flag. */
template <int PROTO>
static __device__ __forceinline__ struct line_operand
exchange_slot(const struct gyre_cuda_args_exchange &args, const unsigned char *slots,
              uint64_t number)
{
    const struct gyre_cuda_exchange &exchange = args.exchange;
    const uint32_t slot = (uint32_t)number & (exchange.depth - 1);
    return {(unsigned char *)(uintptr_t)slots + (size_t)blockIdx.x * exchange.slots_stride +
                slot * (size_t)args.common.slot_bytes,
            line_flag<PROTO>(number)};
}

/* Own input: multiplied if the operation asks. */
template <int PROTO, int DTYPE, int OP>
static __device__ __forceinline__ ulonglong2 load_input(const struct gyre_cuda_work &work,
                                                        const unsigned char *base,
                                                        const struct line_place &place)
{
    ulonglong2 value = line_mover<PROTO>::load(base, place);
    if constexpr (DTYPE != DTYPE_NONE) {
        if (work.premultiply != 0) {
            reducer<DTYPE, OP, line_mover<PROTO>::bytes> scaled;
            pack<line_mover<PROTO>::bytes> words;
            memcpy(&words, &value, sizeof(words));
            scaled.begin(words, true, work.scalar);
            words = scaled.end(1);
            memcpy(&value, &words, sizeof(words));
        }
    }
    return value;
}

/* Each peer's chunk of IN to its slot. */
template <int PROTO, int DTYPE, int OP, int N>
static __device__ __forceinline__ void scatter_chunks(const struct gyre_cuda_args_exchange &args,
                                                      const struct line_ends<N> &ends,
                                                      uint32_t tile)
{
    using mover = line_mover<PROTO>;
    const int unroll = EXCHANGE_UNROLL(N);
    const struct gyre_cuda_exchange &exchange = args.exchange;
    struct line_range ranges[N];
    uint32_t n_rounds = 0;
#pragma unroll
    for (int p = 0; p < N; p++) {
        ranges[p] = {0, 0};
        if (p < exchange.n_peers)
            ranges[p] = exchange_range(args.work, exchange.peers[p].chunk, tile);
        n_rounds = max(n_rounds, mover::n_rounds(ranges[p].n_bytes));
    }
    for (uint32_t round = 0; round < n_rounds; round += unroll) {
        ulonglong2 values[N][unroll];
#pragma unroll
        for (int p = 0; p < N; p++)
#pragma unroll
            for (int k = 0; k < unroll; k++)
                if (p < exchange.n_peers)
                    values[p][k] = load_input<PROTO, DTYPE, OP>(
                        args.work,
                        args.work.in + exchange.peers[p].in_offset + ranges[p].skip_bytes,
                        mover::place(round + k, ranges[p].n_bytes));
#pragma unroll
        for (int p = 0; p < N; p++) {
            if (p >= exchange.n_peers)
                break;
            const struct line_operand to = exchange_slot<PROTO>(
                args, exchange.peers[p].to, ends.sent[p] + tile * exchange_uses(exchange));
#pragma unroll
            for (int k = 0; k < unroll; k++)
                mover::send(to.base, mover::place(round + k, ranges[p].n_bytes), values[p][k],
                            to.flag);
        }
    }
}

/* The lines of all peers at these places, chunk by chunk the same ones. Returns false when aborted.
 */
template <int PROTO, int N, int UNROLL>
static __device__ __forceinline__ bool
receive_lines(const struct gyre_cuda_args_exchange &args, const struct line_operand *from,
              const struct line_place (*places)[UNROLL], ulonglong2 (*values)[UNROLL])
{
    using mover = line_mover<PROTO>;
    const uint32_t n_peers = args.exchange.n_peers;
#pragma unroll
    for (int p = 0; p < N; p++)
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            if (p < n_peers)
                values[p][k] = mover::peek(from[p].base, places[p][k]);
#pragma unroll
    for (int p = 0; p < N; p++)
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            if (p < n_peers && !mover::receive(args.common, from[p], places[p][k], &values[p][k]))
                return false;
    return true;
}

/* In the program's order: `own_place` peers, the own value, the other peers. */
template <int PROTO, int DTYPE, int OP, int N, int UNROLL>
static __device__ __forceinline__ ulonglong2
reduce_lines_of(const struct gyre_cuda_args_exchange &args, ulonglong2 own,
                const ulonglong2 (*received)[UNROLL], int k)
{
    const uint32_t place = args.exchange.own_place;
    reducer<DTYPE, OP, line_mover<PROTO>::bytes> result;
    pack<line_mover<PROTO>::bytes> words;
    ulonglong2 value;
#pragma unroll
    for (int i = 0; i <= N; i++) {
        if (i > args.exchange.n_peers)
            break;
        value = i == (int)place  ? own
                : i < (int)place ? received[i < N ? i : 0][k]
                                 : received[i > 0 ? i - 1 : 0][k];
        memcpy(&words, &value, sizeof(words));
        if (i == 0)
            result.begin(words, false, 0);
        else
            result.add(words, false, 0);
    }
    words = result.end(args.work.divisor);
    value = {0, 0};
    memcpy(&value, &words, sizeof(words));
    return value;
}

/* The own chunk: reduced, if the program does, to OUT and, if it gathers, to all peers. Returns
 * false when aborted. */
template <int PROTO, int DTYPE, int OP, int N>
static __device__ __forceinline__ bool finish_chunk(const struct gyre_cuda_args_exchange &args,
                                                    const struct line_ends<N> &ends, uint32_t tile)
{
    using mover = line_mover<PROTO>;
    const int unroll = EXCHANGE_UNROLL(N);
    const struct gyre_cuda_exchange &exchange = args.exchange;
    const struct line_range range = exchange_range(args.work, exchange.own_chunk, tile);
    const uint32_t n_rounds = mover::n_rounds(range.n_bytes);
    const unsigned char *in = args.work.in + exchange.own_offset + range.skip_bytes;
    unsigned char *out = args.work.out + exchange.own_out_offset + range.skip_bytes;
    struct line_operand from[N];
#pragma unroll
    for (int p = 0; p < N; p++)
        if (p < exchange.n_peers)
            from[p] = exchange_slot<PROTO>(args, exchange.peers[p].from,
                                           ends.received[p] + tile * exchange_uses(exchange));
    for (uint32_t round = 0; round < n_rounds; round += unroll) {
        struct line_place places[N][unroll];
        ulonglong2 values[unroll];
#pragma unroll
        for (int k = 0; k < unroll; k++) {
#pragma unroll
            for (int p = 0; p < N; p++)
                places[p][k] = mover::place(round + k, range.n_bytes);
            values[k] = load_input<PROTO, DTYPE, OP>(args.work, in, places[0][k]);
        }
        if constexpr (DTYPE != DTYPE_NONE) {
            ulonglong2 received[N][unroll];
            if (!receive_lines<PROTO, N, unroll>(args, from, places, received))
                return false;
#pragma unroll
            for (int k = 0; k < unroll; k++)
                values[k] =
                    reduce_lines_of<PROTO, DTYPE, OP, N, unroll>(args, values[k], received, k);
        }
#pragma unroll
        for (int p = 0; p < N; p++) {
            if (p >= exchange.n_peers || exchange.gathers == 0)
                break;
            const struct line_operand to = exchange_slot<PROTO>(
                args, exchange.peers[p].to,
                ends.sent[p] + tile * exchange_uses(exchange) + exchange.reduces);
#pragma unroll
            for (int k = 0; k < unroll; k++)
                mover::send(to.base, places[0][k], values[k], to.flag);
        }
#pragma unroll
        for (int k = 0; k < unroll; k++)
            mover::store(out, places[0][k], values[k]);
    }
    return true;
}

/* What the peers finished, to OUT. Returns false when aborted. */
template <int PROTO, int N>
static __device__ __forceinline__ bool gather_chunks(const struct gyre_cuda_args_exchange &args,
                                                     const struct line_ends<N> &ends, uint32_t tile)
{
    using mover = line_mover<PROTO>;
    const int unroll = EXCHANGE_UNROLL(N);
    const struct gyre_cuda_exchange &exchange = args.exchange;
    struct line_operand from[N];
    struct line_range ranges[N];
    uint32_t n_rounds = 0;
#pragma unroll
    for (int p = 0; p < N; p++) {
        ranges[p] = {0, 0};
        if (p >= exchange.n_peers)
            continue;
        ranges[p] = exchange_range(args.work, exchange.peers[p].chunk, tile);
        n_rounds = max(n_rounds, mover::n_rounds(ranges[p].n_bytes));
        from[p] = exchange_slot<PROTO>(args, exchange.peers[p].from,
                                       ends.received[p] + tile * exchange_uses(exchange) +
                                           exchange.reduces);
    }
    for (uint32_t round = 0; round < n_rounds; round += unroll) {
        struct line_place places[N][unroll];
        ulonglong2 values[N][unroll];
#pragma unroll
        for (int p = 0; p < N; p++)
#pragma unroll
            for (int k = 0; k < unroll; k++)
                places[p][k] = mover::place(round + k, ranges[p].n_bytes);
        if (!receive_lines<PROTO, N, unroll>(args, from, places, values))
            return false;
#pragma unroll
        for (int p = 0; p < N; p++)
#pragma unroll
            for (int k = 0; k < unroll; k++)
                if (p < exchange.n_peers)
                    mover::store(args.work.out + exchange.peers[p].out_offset +
                                     ranges[p].skip_bytes,
                                 places[p][k], values[p][k]);
    }
    return true;
}

/* LL: once in a long while slots are written whole, see GYRE_CUDA_LL_CLEAN_PERIOD. */
template <int N>
static __device__ __forceinline__ void clean_slots(const struct gyre_cuda_args_exchange &args,
                                                   const struct line_ends<N> &ends, uint32_t tile)
{
    const struct gyre_cuda_exchange &exchange = args.exchange;
    const uint32_t n_uses = exchange_uses(exchange);
#pragma unroll
    for (int p = 0; p < N; p++) {
        for (uint32_t use = 0; p < exchange.n_peers && use < n_uses; use++) {
            const uint64_t number = ends.sent[p] + tile * n_uses + use;
            if (!gyre_cuda_ll_cleans(number, exchange.depth))
                continue;
            const uint32_t chunk =
                use < exchange.reduces ? exchange.peers[p].chunk : exchange.own_chunk;
            const uint32_t n_bytes = exchange_range(args.work, chunk, tile).n_bytes;
            const struct line_operand to =
                exchange_slot<GYRE_PROTO_LL>(args, exchange.peers[p].to, number);
            exchange_clean(to.base, (n_bytes + LL_DATA_BYTES - 1) / LL_DATA_BYTES,
                           args.common.slot_bytes / LL_LINE_BYTES, to.flag);
        }
    }
}

/* Phase by phase, each of all tiles: what one waits for is on its way since the one before. */
template <int PROTO, int DTYPE, int OP, int N>
static __device__ __forceinline__ void run_exchange(const struct gyre_cuda_args_exchange &args)
{
    const uint32_t n_tiles = args.work.split.n_tiles;
    struct line_ends<N> ends;
    if (!open_ends<N>(args, &ends))
        return;
    for (uint32_t tile = 0; DTYPE != DTYPE_NONE && tile < n_tiles; tile++)
        scatter_chunks<PROTO, DTYPE, OP, N>(args, ends, tile);
    for (uint32_t tile = 0; tile < n_tiles; tile++)
        if (!finish_chunk<PROTO, DTYPE, OP, N>(args, ends, tile))
            return;
    for (uint32_t tile = 0; args.exchange.gathers != 0 && tile < n_tiles; tile++)
        if (!gather_chunks<PROTO, N>(args, ends, tile))
            return;
    for (uint32_t tile = 0; PROTO == GYRE_PROTO_LL && tile < n_tiles; tile++)
        clean_slots<N>(args, ends, tile);
}

/* DTYPE_NONE: nothing is reduced. */
template <int PROTO, int DTYPE, int OP, int N>
__global__ void __launch_bounds__(512, 1)
    exchange_lines(const __grid_constant__ struct gyre_cuda_args_exchange args)
{
    if (blockIdx.x == 0 && threadIdx.x == blockDim.x - 1)
        start_launch(args.common);
    if (load_relaxed_sys(&args.common.control->is_aborted) == 0)
        run_exchange<PROTO, DTYPE, OP, N>(args);
    exchange_close(args);
}

#endif
