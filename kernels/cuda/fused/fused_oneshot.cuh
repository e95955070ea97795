/* SPDX-License-Identifier: Apache-2.0
 *
 * The one-shot all-reduce in protocol LL, and functions that all fused kernels share.
 *
 * A fused kernel runs a whole program: a rank sends chunks of IN to its peers, reduces what it
 * receives and its own chunk in the program's order, and may send the result to all peers. It moves
 * the same slots and gives the same bits as the program's steps, so a peer may interpret them. It
 * is faster because the host resolved every operand, and a thread waits only for its own lines.
 *
 * The one-shot kernel is short (device/lean.cuh). A group of threads serves one peer. The first
 * group reduces all groups' values in shared memory.
 */
#ifdef GYRE_KERNEL_ROW /* kernels/cuda/host/kernel_rows.c */
GYRE_KERNEL_ROW(.name = "ll one-shot",
                .when = {.proto = GYRE_PROTO_LL,
                         .patterns = REDUCES_IN_LINES,
                         .needs = GYRE_KERNEL_STAGED | GYRE_KERNEL_UNMOVED | GYRE_KERNEL_HAS_SLOTS,
                         .arithmetic = BIT(GYRE_FUSED_FLOAT_SUM) | BIT(GYRE_FUSED_OTHER),
                         .most_peers = GYRE_CUDA_MAX_PEERS,
                         .most_tiles = 1},
                .first = INSTANCE(kernels, one_shot), .axes = {GYRE_AXIS_OP},
                .most_unroll = GYRE_CUDA_UNROLL)
#else
#ifndef GYRE_KERNELS_CUDA_FUSED_ONESHOT_CUH
#define GYRE_KERNELS_CUDA_FUSED_ONESHOT_CUH

#include "kernels/cuda/protocol/ll.cuh"

/* Of IN or OUT. */
struct line_range {
    uint64_t skip_bytes;
    uint32_t n_bytes;
};

static __device__ __forceinline__ struct line_range
fused_range_of(const struct gyre_cuda_work &work, const struct gyre_cuda_share &share,
               uint32_t chunk, uint32_t tile)
{
    const struct gyre_range range = gyre_cuda_tile_range(&share, chunk, tile);
    return {range.first_elem * work.elem_bytes, (uint32_t)range.n_elems * work.elem_bytes};
}

/* Block i is channel i. */
static __device__ __forceinline__ struct line_range fused_range(const struct gyre_cuda_work &work,
                                                                uint32_t chunk, uint32_t tile)
{
    return fused_range_of(work, gyre_cuda_share_make(&work.split, blockIdx.x), chunk, tile);
}

/* Of each connection. */
static __device__ __forceinline__ uint32_t slots_per_tile(const struct gyre_cuda_fused &fused)
{
    return 1U + (uint32_t)(fused.reduces & fused.gathers);
}

/* After a thread's first wait: with one peer, that peer's block is running by then. With more
 * peers, the caller has passed a barrier, so all peers' blocks are. From then on this launch needs
 * no further multiprocessor to end. */
static __device__ __forceinline__ void allow_dependent_after_wait(uint32_t n_waits_before)
{
    if (threadIdx.x == 0 && n_waits_before == 0)
        allow_dependent_launch();
}

static __device__ __forceinline__ void
allow_dependent_and_mark(const struct gyre_cuda_common &common, uint32_t n_waits_before)
{
    allow_dependent_after_wait(n_waits_before);
    if (is_recorded(common) && threadIdx.x == 0 && n_waits_before == 0)
        record_arrival(common.recording.recorder);
}

static __device__ __forceinline__ void mark_launch(const struct gyre_cuda_common &common,
                                                   enum gyre_cuda_mark mark)
{
    if (is_recorded(common) && threadIdx.x == 0)
        record_mark(common.recording.recorder, mark);
}

static __device__ __noinline__ void clean_lines(unsigned char *slot, uint32_t first,
                                                uint32_t stride, uint32_t n_all, uint64_t flag)
{
    for (uint32_t at = first; at < n_all; at += stride)
        ll_store(slot, at, 0, flag);
}

template <int DTYPE, int OP, int BYTES, class VALUE>
static __device__ __forceinline__ VALUE scale_input(const struct gyre_cuda_work &work, VALUE value)
{
    if (work.premultiply != 0) {
        reducer<DTYPE, OP, BYTES> scaled;
        pack<BYTES> words;
        memcpy(&words, &value, BYTES);
        scaled.begin(words, true, work.scalar);
        words = scaled.end(1);
        memcpy(&value, &words, BYTES);
    }
    return value;
}

template <int DTYPE, int OP, int BYTES, class VALUE>
static __device__ __forceinline__ VALUE reduce_pair(const struct gyre_cuda_args_fused &args,
                                                    VALUE own, VALUE received)
{
    const bool is_first = args.fused.own_place == 0;
    const VALUE first = is_first ? own : received, second = is_first ? received : own;
    reducer<DTYPE, OP, BYTES> result;
    pack<BYTES> words;
    VALUE value = {};
    memcpy(&words, &first, BYTES);
    result.begin(words, false, 0);
    memcpy(&words, &second, BYTES);
    result.add(words, false, 0);
    words = result.end(args.work.divisor);
    memcpy(&value, &words, BYTES);
    return value;
}

/* In the program's order: the first `own_place` peers, this rank, then the remaining peers. */
template <int DTYPE, int OP, int BYTES, class VALUE, class RECEIVED>
static __device__ __forceinline__ VALUE reduce_in_order(const struct gyre_cuda_args_fused &args,
                                                        VALUE own, const RECEIVED &received)
{
    const uint32_t place = args.fused.own_place;
    reducer<DTYPE, OP, BYTES> result;
    pack<BYTES> words;
    VALUE value = place == 0 ? own : received(0);
    memcpy(&words, &value, BYTES);
    result.begin(words, false, 0);
#pragma unroll 3
    for (uint32_t i = 1; i <= args.fused.n_peers; i++) {
        value = i == place ? own : received(i < place ? i : i - 1);
        memcpy(&words, &value, BYTES);
        result.add(words, false, 0);
    }
    words = result.end(args.work.divisor);
    value = {};
    memcpy(&value, &words, BYTES);
    return value;
}

/* Sums of 16 bytes whose peers are rotated: peer 0 is the next rank, and peer j's value is the i-th
 * in the program's order. EXACT_FIT: exactly PEERS peers, no division. */
template <int DTYPE, int PEERS, bool EXACT_FIT>
static __device__ __forceinline__ ulonglong2 reduce_rotated(const struct gyre_cuda_args_fused &args,
                                                            ulonglong2 own,
                                                            const ulonglong2 *received)
{
    if constexpr (PEERS == 1) {
        return reduce_pair<DTYPE, GYRE_SUM, 16>(args, own, received[0]);
    } else {
        const uint32_t place = args.fused.own_place;
        const uint32_t n_peers = EXACT_FIT ? PEERS : args.fused.n_peers;
        reducer<DTYPE, GYRE_SUM, 16> result;
        pack<16> words;
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
            memcpy(&words, &value, 16);
            if (i == 0)
                result.begin(words, false, 0);
            else
                result.add(words, false, 0);
        }
        words = result.end(EXACT_FIT ? 1 : args.work.divisor);
        memcpy(&own, &words, 16);
        return own;
    }
}

template <int DTYPE, int OP>
static __device__ __forceinline__ uint64_t load_ll_input(const struct gyre_cuda_work &work,
                                                         const unsigned char *from,
                                                         uint32_t n_valid)
{
    return scale_input<DTYPE, OP, LL_DATA_BYTES>(work, load_8(from, n_valid));
}

template <int DTYPE, int OP>
static __device__ __forceinline__ void run_oneshot(const struct gyre_cuda_args_fused &args,
                                                   const struct line_range &range,
                                                   const struct peer_fifos &end, bool is_aborted)
{
    const struct gyre_cuda_fused &fused = args.fused;
    const struct gyre_cuda_work &work = args.work;
    const struct gyre_cuda_peer &peer = fused.peers[end.group];
    const uint32_t n_bytes = range.n_bytes;
    const uint32_t n_lines = (n_bytes + LL_DATA_BYTES - 1) / LL_DATA_BYTES;
    const unsigned char *in = work.in + range.skip_bytes;
    unsigned char *out = work.out + range.skip_bytes;
    uint64_t own = 0, value = 0;
    if (end.lane < n_lines) { /* these loads overlap with that of credit */
        const uint32_t skip = end.lane * LL_DATA_BYTES;
        value = load_ll_input<DTYPE, OP>(work, in + peer.in_offset + skip, n_bytes - skip);
        own = peer.in_offset == fused.own_offset || end.group != 0
                  ? value
                  : load_ll_input<DTYPE, OP>(work, in + fused.own_offset + skip, n_bytes - skip);
    }
    const uint32_t mask = fused.depth - 1;
    const size_t slots_skip = (size_t)blockIdx.x * fused.slots_stride;
    unsigned char *to =
        peer.to + slots_skip + ((uint32_t)end.sent & mask) * (size_t)args.common.slot_bytes;
    const unsigned char *from =
        peer.from + slots_skip + ((uint32_t)end.received & mask) * (size_t)args.common.slot_bytes;
    const uint64_t send_flag = gyre_ll_flag(end.sent);
    const uint64_t recv_flag = gyre_ll_flag(end.received);
    bool is_stopped = is_aborted || !peer_fifos_await<false>(args, end, 1);
    for (uint32_t at = end.lane; at < n_lines && !is_stopped; at += end.n_lanes) {
        const uint32_t next = (at + end.n_lanes) * LL_DATA_BYTES;
        const uint64_t now = value;
        if (next < n_bytes)
            value = load_ll_input<DTYPE, OP>(work, in + peer.in_offset + next, n_bytes - next);
        ll_store(to, at, now, send_flag);
    }
    announce_sent(args.common, end.sequence);
    const bool is_pair = fused.n_peers == 1;
    for (uint32_t first = 0, round = 0; first < n_lines; first += end.n_lanes, round++) {
        const uint32_t at = first + end.lane, skip = at * LL_DATA_BYTES;
        uint64_t *shared = (uint64_t *)shared_words + round % 2 * blockDim.x + threadIdx.x;
        uint64_t data = 0;
        if (at < n_lines && !is_stopped) {
            uint32_t n_polls = 0;
            ulonglong2 halves = load_line(from + (size_t)at * LL_LINE_BYTES);
            while (!ll_has_arrived(halves, recv_flag) && !is_stopped) {
                is_stopped = must_stop(args.common, n_polls);
                halves = load_line(from + (size_t)at * LL_LINE_BYTES);
            }
            data = ll_data(halves);
        }
        /* The first group reads a round's values before the next round's barrier, and they are
         * overwritten after it. After the first barrier only the first group reads IN, its own
         * part, so OUT may be the same memory. */
        if (!is_pair) {
            *shared = data;
            is_stopped = __syncthreads_or(is_stopped) != 0;
        }
        if (is_stopped)
            return;
        allow_dependent_and_mark(args.common, round);
        if (end.group != 0 || at >= n_lines)
            continue;
        const uint64_t result =
            is_pair ? reduce_pair<DTYPE, OP, LL_DATA_BYTES>(args, own, data)
                    : reduce_in_order<DTYPE, OP, LL_DATA_BYTES>(
                          args, own, [&](uint32_t i) { return shared[i * end.n_lanes]; });
        store_8(out + skip, result, n_bytes - skip);
        const uint32_t next = skip + end.n_lanes * LL_DATA_BYTES;
        if (next < n_bytes)
            own = load_ll_input<DTYPE, OP>(work, in + fused.own_offset + next, n_bytes - next);
    }
    if (gyre_ll_cleans(end.sent, fused.depth))
        clean_lines(to, n_lines + end.lane, end.n_lanes, args.common.slot_bytes / LL_LINE_BYTES,
                    send_flag);
}

template <int DTYPE, int OP>
static __global__ void __launch_bounds__(GYRE_CUDA_FUSED_THREADS, 1)
    fused_ll(const __grid_constant__ struct gyre_cuda_args_fused args)
{
    /* The launch before this one may still run. */
    const struct line_range range = fused_range(args.work, 0, 0);
    struct peer_fifos end = peer_fifos_begin<false>(args.fused);
    const bool is_aborted = peer_fifos_open(args, &end);
    run_oneshot<DTYPE, OP>(args, range, end, is_aborted);
    peer_fifos_close<false>(args, end, 1);
}

#endif
#endif
