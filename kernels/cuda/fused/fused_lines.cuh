/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused programs in LL and LL128: scatter the chunks of IN, reduce the own chunk, gather the
 * results. A group of threads serves one peer. The own chunk is reduced in shared memory, and each
 * group sends the result to its own peer. In an all-to-all the scattered chunks are gathered. An
 * in-place call is safe: a chunk is in shared memory, or in the same thread's registers, before it
 * is overwritten.
 */
#ifdef GYRE_KERNEL_ROW /* kernels/cuda/host/kernel_rows.c */
GYRE_KERNEL_ROW(.name = "ll sum",
                .when = {.proto = GYRE_PROTO_LL,
                         .patterns = REDUCES_IN_LINES | BIT(GYRE_FUSED_TWO_SHOT),
                         .needs = GYRE_KERNEL_STAGED | GYRE_KERNEL_UNMOVED | GYRE_KERNEL_HAS_SLOTS,
                         .arithmetic = BIT(GYRE_FUSED_FLOAT_SUM),
                         .most_peers = GYRE_CUDA_MAX_PEERS,
                         .most_tiles = ANY_NUMBER},
                .first = INSTANCE(kernels, fused[GYRE_CUDA_LINES_LL]),
                .most_unroll = GYRE_CUDA_UNROLL)
GYRE_KERNEL_ROW(.name = "ll copy",
                .when = {.proto = GYRE_PROTO_LL,
                         .patterns = BIT(GYRE_FUSED_ALL_GATHER) | BIT(GYRE_FUSED_ALL_TO_ALL),
                         .needs = GYRE_KERNEL_STAGED | GYRE_KERNEL_UNMOVED | GYRE_KERNEL_HAS_SLOTS,
                         .arithmetic = BIT(GYRE_FUSED_COPY),
                         .most_peers = GYRE_CUDA_MAX_PEERS,
                         .most_tiles = ANY_NUMBER},
                .copies = true, .first = INSTANCE(copy_kernels, fused[GYRE_CUDA_LINES_LL]),
                .axes = {GYRE_AXIS_SCATTERS}, .most_unroll = GYRE_CUDA_UNROLL)
GYRE_KERNEL_ROW(.name = "ll128 sum",
                .when = {.proto = GYRE_PROTO_LL128,
                         .patterns = REDUCES_IN_LINES | BIT(GYRE_FUSED_TWO_SHOT),
                         .needs = GYRE_KERNEL_STAGED | GYRE_KERNEL_UNMOVED | GYRE_KERNEL_HAS_SLOTS,
                         .arithmetic = BIT(GYRE_FUSED_FLOAT_SUM),
                         .most_peers = GYRE_CUDA_MAX_PEERS,
                         .most_tiles = ANY_NUMBER},
                .first = INSTANCE(kernels, fused[GYRE_CUDA_LINES_LL128]),
                .axes = {GYRE_AXIS_UNROLL}, .most_unroll = GYRE_CUDA_LONG_UNROLL)
GYRE_KERNEL_ROW(.name = "ll128 copy",
                .when = {.proto = GYRE_PROTO_LL128,
                         .patterns = BIT(GYRE_FUSED_ALL_GATHER) | BIT(GYRE_FUSED_ALL_TO_ALL),
                         .needs = GYRE_KERNEL_STAGED | GYRE_KERNEL_UNMOVED | GYRE_KERNEL_HAS_SLOTS,
                         .arithmetic = BIT(GYRE_FUSED_COPY),
                         .most_peers = GYRE_CUDA_MAX_PEERS,
                         .most_tiles = ANY_NUMBER},
                .copies = true, .first = INSTANCE(copy_kernels, fused[GYRE_CUDA_LINES_LL128]),
                .axes = {GYRE_AXIS_UNROLL, GYRE_AXIS_SCATTERS},
                .most_unroll = GYRE_CUDA_LONG_UNROLL)
#else
#ifndef GYRE_KERNELS_CUDA_FUSED_LINES_CUH
#define GYRE_KERNELS_CUDA_FUSED_LINES_CUH

#include "kernels/cuda/fused/fused_oneshot.cuh"
#include "kernels/cuda/protocol/ll128.cuh"

/* @slots: of channel 0. */
template <int PROTO>
static __device__ __forceinline__ struct line_operand
fused_slot(const struct gyre_cuda_args_fused &args, const unsigned char *slots, uint64_t number)
{
    const struct gyre_cuda_fused &fused = args.fused;
    const uint32_t slot = (uint32_t)number & (fused.depth - 1);
    return {(unsigned char *)(uintptr_t)slots + (size_t)blockIdx.x * fused.slots_stride +
                slot * (size_t)args.common.slot_bytes,
            line_flag<PROTO>(number)};
}

template <int PROTO, int DTYPE, int OP>
static __device__ __forceinline__ ulonglong2 load_input(const struct gyre_cuda_work &work,
                                                        const unsigned char *base,
                                                        const struct line_place &place)
{
    const ulonglong2 value = line_mover<PROTO>::load(base, place);
    if constexpr (DTYPE == DTYPE_NONE)
        return value;
    else
        return scale_input<DTYPE, OP, line_mover<PROTO>::bytes>(work, value);
}

/* The same for all groups. */
template <int PROTO>
static __device__ __forceinline__ uint32_t count_rounds(const struct peer_fifos &end,
                                                        uint32_t n_bytes)
{
    const uint32_t bytes = line_mover<PROTO>::round_bytes(end.n_lanes);
    return (n_bytes + bytes - 1) / bytes;
}

/* More than UNROLL rounds are divided evenly, seven as four and three, so that none waits alone. */
template <int UNROLL> static __device__ __forceinline__ uint32_t rounds_in_flight(uint32_t n_rounds)
{
    if (UNROLL < GYRE_CUDA_LONG_UNROLL || n_rounds <= UNROLL)
        return UNROLL;
    const uint32_t n_turns = (n_rounds + UNROLL - 1) / UNROLL;
    return (n_rounds + n_turns - 1) / n_turns;
}

/* Where the bytes of the rounds in flight are: kept in registers, or computed at each use. */
template <int PROTO, int UNROLL> struct round_places {
    static const bool keeps = UNROLL < GYRE_CUDA_LONG_UNROLL;
    const struct peer_fifos *end;
    uint32_t round; /* the first one in flight */
    uint32_t n_rounds;
    uint32_t n_bytes;
    struct line_place kept[keeps ? UNROLL : 1];
};

template <int PROTO, int UNROLL>
static __device__ __forceinline__ bool has_round(const round_places<PROTO, UNROLL> &places, int k)
{
    /* In LL a line that does not exist costs less than a branch. */
    return PROTO == GYRE_PROTO_LL || (uint32_t)k < places.n_rounds;
}

template <int PROTO, int UNROLL>
static __device__ __forceinline__ struct line_place
place_of(const round_places<PROTO, UNROLL> &places, int k)
{
    if constexpr (round_places<PROTO, UNROLL>::keeps)
        return places.kept[k];
    else
        return line_mover<PROTO>::place(*places.end, places.round + k, places.n_bytes);
}

template <int PROTO, int UNROLL>
static __device__ __forceinline__ void find_places(const struct peer_fifos &end, uint32_t first,
                                                   uint32_t n_all, uint32_t n_bytes,
                                                   round_places<PROTO, UNROLL> *places)
{
    places->end = &end;
    places->round = first;
    places->n_rounds = n_all - first;
    places->n_bytes = n_bytes;
    if constexpr (round_places<PROTO, UNROLL>::keeps)
#pragma unroll
        for (int k = 0; k < UNROLL && has_round(*places, k); k++)
            places->kept[k] = line_mover<PROTO>::place(end, first + k, n_bytes);
}

/* @first_round: the rounds before it have been sent. */
template <int PROTO, int DTYPE, int OP, int UNROLL>
static __device__ __forceinline__ void scatter_chunk(const struct gyre_cuda_args_fused &args,
                                                     const struct peer_fifos &end, uint32_t tile,
                                                     uint32_t first_round)
{
    using mover = line_mover<PROTO>;
    const struct gyre_cuda_peer &peer = args.fused.peers[end.group];
    const struct line_range range = fused_range(args.work, peer.chunk, tile);
    const uint32_t n_rounds = count_rounds<PROTO>(end, range.n_bytes);
    const unsigned char *in = args.work.in + peer.in_offset + range.skip_bytes;
    const struct line_operand to =
        fused_slot<PROTO>(args, peer.to, end.sent + tile * slots_per_tile(args.fused));
    const uint32_t n_in_flight = rounds_in_flight<UNROLL>(n_rounds);
    for (uint32_t round = first_round; round < n_rounds; round += n_in_flight) {
        round_places<PROTO, UNROLL> places;
        find_places<PROTO, UNROLL>(end, round, min(n_rounds, round + n_in_flight), range.n_bytes,
                                   &places);
        ulonglong2 values[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL && has_round(places, k); k++)
            values[k] = load_input<PROTO, DTYPE, OP>(args.work, in, place_of(places, k));
#pragma unroll
        for (int k = 0; k < UNROLL && has_round(places, k); k++)
            mover::send(to.base, place_of(places, k), values[k], to.flag);
    }
}

template <int PROTO, int UNROLL>
static __device__ __forceinline__ bool
receive_lines(const struct gyre_cuda_args_fused &args, const struct line_operand &from,
              const round_places<PROTO, UNROLL> &places, ulonglong2 *values)
{
    using mover = line_mover<PROTO>;
#pragma unroll
    for (int k = 0; k < UNROLL && has_round(places, k); k++)
        values[k] = mover::peek(from.base, place_of(places, k));
#pragma unroll
    for (int k = 0; k < UNROLL && has_round(places, k); k++)
        if (!mover::receive(args.common, from, place_of(places, k), &values[k]))
            return false;
    return true;
}

/* No thread waits for this, so it comes after the data were sent on. */
template <int PROTO, int UNROLL>
static __device__ __forceinline__ void clear_lines(const struct line_operand &from,
                                                   const round_places<PROTO, UNROLL> &places,
                                                   bool has_received)
{
#pragma unroll
    for (int k = 0; k < UNROLL && has_received && has_round(places, k); k++)
        line_mover<PROTO>::clear(from.base, place_of(places, k));
}

/* Reduces in registers with one peer, else in shared memory, where a round uses the other half than
 * the round before: values are read before the next round's barrier and overwritten after it.
 * @n_before: reductions of this launch so far. @values: in: this rank's own values, in the first
 * group; out: the results. With more than one peer all threads return the same. */
template <int PROTO, int DTYPE, int OP, int UNROLL>
static __device__ __forceinline__ bool
reduce_across_groups(const struct gyre_cuda_args_fused &args, const struct peer_fifos &end,
                     uint32_t n_before, bool is_stopped, const round_places<PROTO, UNROLL> &places,
                     const ulonglong2 *received, ulonglong2 *values)
{
    const int bytes = line_mover<PROTO>::bytes;
    const uint32_t n_peers = args.fused.n_peers;
    const uint32_t n_values = (n_peers + 1) * end.n_lanes;
    ulonglong2 *shared = (ulonglong2 *)shared_words + n_before % 2 * UNROLL * n_values + end.lane;
    if (n_peers == 1) {
#pragma unroll
        for (int k = 0; k < UNROLL && has_round(places, k); k++)
            values[k] = reduce_pair<DTYPE, OP, bytes>(args, values[k], received[k]);
        return !is_stopped;
    }
#pragma unroll
    for (int k = 0; k < UNROLL && has_round(places, k); k++) {
        shared[k * n_values + end.group * end.n_lanes] = received[k];
        if (end.group == 0)
            shared[k * n_values + n_peers * end.n_lanes] = values[k];
    }
    if (__syncthreads_or(is_stopped) != 0)
        return false;
#pragma unroll
    for (int k = 0; k < UNROLL && has_round(places, k); k++) {
        const ulonglong2 *of_place = shared + k * n_values;
        values[k] = reduce_in_order<DTYPE, OP, bytes>(
            args, of_place[n_peers * end.n_lanes],
            [&](uint32_t i) { return of_place[i * end.n_lanes]; });
    }
    return true;
}

/* Reduces the own chunk and sends it to the group's peer, each if the program does.
 * @first_round: the rounds before it have been moved. */
template <int PROTO, int DTYPE, int OP, int UNROLL, bool SCATTERS>
static __device__ __forceinline__ bool
finish_chunk(const struct gyre_cuda_args_fused &args, const struct peer_fifos &end, uint32_t tile,
             uint32_t first_round, bool is_stopped, uint32_t *n_reductions)
{
    using mover = line_mover<PROTO>;
    const struct gyre_cuda_fused &fused = args.fused;
    const struct gyre_cuda_peer &peer = fused.peers[end.group];
    const struct line_range range = fused_range(args.work, fused.own_chunk, tile);
    const uint32_t n_rounds = count_rounds<PROTO>(end, range.n_bytes);
    const unsigned char *in = args.work.in + fused.own_offset + range.skip_bytes;
    unsigned char *out = args.work.out + fused.own_out_offset + range.skip_bytes;
    const uint32_t n_before = tile * slots_per_tile(fused);
    const bool sends = DTYPE == DTYPE_NONE ? !SCATTERS : fused.gathers != 0;
    const struct line_operand from = fused_slot<PROTO>(args, peer.from, end.received + n_before);
    const struct line_operand to =
        fused_slot<PROTO>(args, peer.to, end.sent + n_before + fused.reduces);
    const uint32_t n_in_flight = rounds_in_flight<UNROLL>(n_rounds);
    for (uint32_t round = first_round; round < n_rounds; round += n_in_flight) {
        round_places<PROTO, UNROLL> places;
        find_places<PROTO, UNROLL>(end, round, min(n_rounds, round + n_in_flight), range.n_bytes,
                                   &places);
        ulonglong2 values[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL && has_round(places, k); k++)
            if (DTYPE == DTYPE_NONE || end.group == 0)
                values[k] = load_input<PROTO, DTYPE, OP>(args.work, in, place_of(places, k));
        if constexpr (DTYPE != DTYPE_NONE) {
            ulonglong2 received[UNROLL];
            is_stopped = is_stopped || !receive_lines<PROTO, UNROLL>(args, from, places, received);
            if (!reduce_across_groups<PROTO, DTYPE, OP, UNROLL>(
                    args, end, *n_reductions, is_stopped, places, received, values))
                return false;
            if (UNROLL == GYRE_CUDA_UNROLL) /* long launches share no multiprocessor */
                allow_dependent_and_mark(args.common, *n_reductions);
            else if (*n_reductions == 0)
                mark_launch(args.common, GYRE_CUDA_MARK_ARRIVED);
            (*n_reductions)++;
        }
#pragma unroll
        for (int k = 0; k < UNROLL && has_round(places, k); k++) {
            if (sends)
                mover::send(to.base, place_of(places, k), values[k], to.flag);
            if (end.group == 0)
                mover::store(out, place_of(places, k), values[k]);
        }
        clear_lines<PROTO, UNROLL>(from, places, DTYPE != DTYPE_NONE);
    }
    return true;
}

template <int PROTO, int UNROLL>
static __device__ __forceinline__ bool gather_chunk(const struct gyre_cuda_args_fused &args,
                                                    const struct peer_fifos &end, uint32_t tile)
{
    using mover = line_mover<PROTO>;
    const struct gyre_cuda_fused &fused = args.fused;
    const struct gyre_cuda_peer &peer = fused.peers[end.group];
    const struct line_range range = fused_range(args.work, peer.chunk, tile);
    const uint32_t n_rounds = count_rounds<PROTO>(end, range.n_bytes);
    unsigned char *out = args.work.out + peer.out_offset + range.skip_bytes;
    const struct line_operand from = fused_slot<PROTO>(
        args, peer.from, end.received + tile * slots_per_tile(fused) + fused.reduces);
    const uint32_t n_in_flight = rounds_in_flight<UNROLL>(n_rounds);
    for (uint32_t round = 0; round < n_rounds; round += n_in_flight) {
        round_places<PROTO, UNROLL> places;
        find_places<PROTO, UNROLL>(end, round, min(n_rounds, round + n_in_flight), range.n_bytes,
                                   &places);
        ulonglong2 values[UNROLL];
        if (!receive_lines<PROTO, UNROLL>(args, from, places, values))
            return false;
        if (tile + 1 == args.work.split.n_tiles &&
            (fused.n_peers == 1 || fused.reduces != 0)) /* only short work is left */
            allow_dependent_and_mark(args.common, round);
#pragma unroll
        for (int k = 0; k < UNROLL && has_round(places, k); k++)
            mover::store(out, place_of(places, k), values[k]);
        clear_lines<PROTO, UNROLL>(from, places, true);
    }
    return true;
}

/* LL: slots whose turn it is (GYRE_LL_CLEAN_PERIOD). */
static __device__ __forceinline__ void clean_slots(const struct gyre_cuda_args_fused &args,
                                                   const struct peer_fifos &end, uint32_t tile)
{
    const struct gyre_cuda_fused &fused = args.fused;
    const struct gyre_cuda_peer &peer = fused.peers[end.group];
    const uint32_t n_uses = slots_per_tile(fused);
    for (uint32_t use = 0; use < n_uses; use++) {
        const uint64_t number = end.sent + tile * n_uses + use;
        if (!gyre_ll_cleans(number, fused.depth))
            continue;
        const uint32_t chunk = use < fused.scatters ? peer.chunk : fused.own_chunk;
        const uint32_t n_bytes = fused_range(args.work, chunk, tile).n_bytes;
        const struct line_operand to = fused_slot<GYRE_PROTO_LL>(args, peer.to, number);
        clean_lines(to.base, (n_bytes + LL_DATA_BYTES - 1) / LL_DATA_BYTES + end.lane, end.n_lanes,
                    args.common.slot_bytes / LL_LINE_BYTES, to.flag);
    }
}

/* In an all-to-all the block is one group, which copies the own chunk. */
static __device__ __forceinline__ struct peer_fifos group_of_own_chunk(const struct peer_fifos &end)
{
    struct peer_fifos own = end;
    own.group = 0;
    own.lane = threadIdx.x;
    own.n_lanes = blockDim.x;
    return own;
}

/* The first rounds of the chunk that a thread's group sends first. Everything that does not need
 * memory is found before the launch before has ended, and IN is loaded together with counters and
 * credit, because a small call has no other rounds. */
template <int PROTO, int UNROLL> struct first_rounds {
    struct line_range range;
    round_places<PROTO, UNROLL> places;
    ulonglong2 values[UNROLL];
};

template <int PROTO, int UNROLL>
static __device__ __forceinline__ void find_first(const struct gyre_cuda_args_fused &args,
                                                  const struct peer_fifos &end, uint32_t chunk,
                                                  struct first_rounds<PROTO, UNROLL> *first)
{
    first->range = fused_range(args.work, chunk, 0);
    uint32_t n_rounds = count_rounds<PROTO>(end, first->range.n_bytes);
    /* The compiler must not compute these later. */
    asm volatile("" : "+r"(n_rounds), "+r"(first->range.n_bytes), "+l"(first->range.skip_bytes));
    find_places<PROTO, UNROLL>(end, 0, n_rounds, first->range.n_bytes, &first->places);
}

template <int PROTO, int DTYPE, int OP, int UNROLL>
static __device__ __forceinline__ void load_first(const struct gyre_cuda_args_fused &args,
                                                  uint64_t in_offset,
                                                  struct first_rounds<PROTO, UNROLL> *first)
{
    const unsigned char *in = args.work.in + in_offset + first->range.skip_bytes;
#pragma unroll
    for (int k = 0; k < UNROLL && has_round(first->places, k); k++)
        first->values[k] = load_input<PROTO, DTYPE, OP>(args.work, in, place_of(first->places, k));
}

/* With credit. */
template <int PROTO, int UNROLL>
static __device__ __forceinline__ void send_first(const struct gyre_cuda_args_fused &args,
                                                  const struct peer_fifos &end,
                                                  const struct first_rounds<PROTO, UNROLL> &first)
{
    const struct line_operand to =
        fused_slot<PROTO>(args, args.fused.peers[end.group].to, end.sent);
#pragma unroll
    for (int k = 0; k < UNROLL && has_round(first.places, k); k++)
        line_mover<PROTO>::send(to.base, place_of(first.places, k), first.values[k], to.flag);
}

/* All-gathers: the own chunk to OUT. */
template <int PROTO, int UNROLL>
static __device__ __forceinline__ void store_first(const struct gyre_cuda_args_fused &args,
                                                   const struct peer_fifos &end,
                                                   const struct first_rounds<PROTO, UNROLL> &first)
{
    unsigned char *out = args.work.out + args.fused.own_out_offset + first.range.skip_bytes;
#pragma unroll
    for (int k = 0; k < UNROLL && end.group == 0 && has_round(first.places, k); k++)
        line_mover<PROTO>::store(out, place_of(first.places, k), first.values[k]);
}

/* Each phase for all tiles, so a phase's lines are under way since the phase before. */
template <int PROTO, int DTYPE, int OP, int UNROLL, bool SCATTERS>
static __device__ __forceinline__ void run_phases(const struct gyre_cuda_args_fused &args,
                                                  const struct peer_fifos &end,
                                                  uint32_t n_rounds_sent, bool is_stopped)
{
    const uint32_t n_tiles = args.work.split.n_tiles;
    const struct peer_fifos own = DTYPE == DTYPE_NONE && SCATTERS ? group_of_own_chunk(end) : end;
    uint32_t n_reductions = 0;
    for (uint32_t tile = 0; SCATTERS && tile < n_tiles && !is_stopped; tile++)
        scatter_chunk<PROTO, DTYPE, OP, UNROLL>(args, end, tile, tile == 0 ? n_rounds_sent : 0);
    if (DTYPE != DTYPE_NONE)
        announce_sent(args.common, end.sequence);
    for (uint32_t tile = 0; (DTYPE != DTYPE_NONE || !is_stopped) && tile < n_tiles; tile++)
        if (!finish_chunk<PROTO, DTYPE, OP, UNROLL, SCATTERS>(
                args, own, tile, !SCATTERS && tile == 0 ? n_rounds_sent : 0, is_stopped,
                &n_reductions))
            return;
    if (DTYPE == DTYPE_NONE) { /* the block has not waited for peers so far */
        announce_sent(args.common, end.sequence);
        if (is_stopped)
            return;
    } else {
        mark_launch(args.common, GYRE_CUDA_MARK_PASSED_ON);
    }
    for (uint32_t tile = 0; args.fused.gathers != 0 && tile < n_tiles; tile++)
        if (!gather_chunk<PROTO, UNROLL>(args, end, tile))
            return;
    for (uint32_t tile = 0; PROTO == GYRE_PROTO_LL && tile < n_tiles; tile++)
        clean_slots(args, end, tile);
}

/* DTYPE_NONE if nothing is reduced: an all-to-all SCATTERS, an all-gather does not. UNROLL: most
 * rounds in flight together. */
template <int PROTO, int DTYPE, int OP, int UNROLL, bool SCATTERS>
static __global__ void __launch_bounds__(GYRE_CUDA_FUSED_THREADS, 1)
    fused_lines(const __grid_constant__ struct gyre_cuda_args_fused args)
{
    const uint32_t n_slots = slots_per_tile(args.fused) * args.work.split.n_tiles;
    const bool sends_first = UNROLL == GYRE_CUDA_UNROLL; /* registers for a few */
    struct first_rounds<PROTO, UNROLL> first;
    struct peer_fifos end = peer_fifos_begin<false>(args.fused);
    const struct gyre_cuda_peer &peer = args.fused.peers[end.group];
    if constexpr (sends_first)
        find_first<PROTO, UNROLL>(args, end, SCATTERS ? peer.chunk : args.fused.own_chunk, &first);
    const bool is_aborted = peer_fifos_open(args, &end);
    if constexpr (sends_first)
        load_first<PROTO, DTYPE, OP, UNROLL>(
            args, SCATTERS ? peer.in_offset : args.fused.own_offset, &first);
    bool is_stopped = is_aborted || !peer_fifos_await<false>(args, end, n_slots);
    /* LL128 needs converged warps. */
    is_stopped = __any_sync(0xffffffffU, is_stopped) != 0;
    if constexpr (sends_first) {
        if (!is_stopped)
            send_first<PROTO, UNROLL>(args, end, first);
        if (!SCATTERS && !is_stopped)
            store_first<PROTO, UNROLL>(args, end, first);
    }
    run_phases<PROTO, DTYPE, OP, UNROLL, SCATTERS>(args, end, sends_first ? UNROLL : 0, is_stopped);
    peer_fifos_close<false>(args, end, n_slots);
}

#endif
#endif
