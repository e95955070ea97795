/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread handles the same positions of a range in every step, so chunks that one step writes and
 * a later one reads need no barrier. Each warp resolves another step of a tile; then every thread
 * runs all steps on its own. A barrier comes once a tile, before credit is given back, or at every
 * receiving step where a FIFO has too few slots.
 */
#ifndef GYRE_KERNELS_CUDA_LINES_CUH
#define GYRE_KERNELS_CUDA_LINES_CUH

#include "kernels/cuda/interpreter/special_lines.cuh"

/* Takes one look at memory if the block knows of no credit. */
static __device__ __forceinline__ bool has_credit(const struct connection *own, uint32_t tile,
                                                  uint64_t number)
{
    return has_reached(own, own->seen[tile % 2], number) ||
           has_reached(own, load_acquire_sys(own->awaited), number);
}

static __device__ __forceinline__ bool await_credit(const struct block &block,
                                                    const struct connection *own, uint64_t number)
{
    uint32_t n_polls = 0;
    while (!has_reached(own, load_acquire_sys(own->awaited), number))
        if (must_stop(block.common, n_polls))
            return false;
    return true;
}

/* The block reads the credit for the next tile when a tile begins and writes the value when the
 * tile ends, so no thread waits for the load, and none reads the value meanwhile. The load needs no
 * acquire, because a store to a line comes a whole round of the ring after the peer's loads of that
 * line (sync.cuh, "LL"). */
static __device__ __forceinline__ uint64_t look_at_credit(const struct block &block, uint32_t i)
{
    if (i >= block.n_connections || block.connections[i].is_send == 0)
        return 0;
    return load_relaxed_sys(block.connections[i].awaited);
}

static __device__ __forceinline__ void keep_credit(const struct block &block, uint32_t tile,
                                                   uint64_t first)
{
    for (uint32_t i = threadIdx.x; i < block.n_connections; i += blockDim.x)
        block.connections[i].seen[(tile + 1) % 2] =
            i == threadIdx.x ? first : look_at_credit(block, i);
}

template <int PROTO>
static __device__ __forceinline__ void resolve_step(const struct block &block,
                                                    const struct gyre_cuda_step *step,
                                                    uint32_t tile, struct line_slot *slot)
{
    const struct gyre_cuda_work &work = block.work;
    const uint32_t lane = threadIdx.x % 32;
    const bool is_out = lane >= LINE_FIRST_OUT;
    const uint32_t i = is_out ? lane - LINE_FIRST_OUT : lane;
    /* Both loads are in flight together. */
    const uint4 words = *(const uint4 *)step;
    struct gyre_cuda_operand operand = {0, 0};
    if (i < (is_out ? GYRE_STEP_MAX_OUTS : GYRE_STEP_MAX_INS))
        operand = is_out ? step->outs[i] : step->ins[i];
    struct gyre_cuda_step head;
    memcpy(&head, &words, sizeof(words));
    const struct gyre_range range = gyre_cuda_tile_range(&block.share, head.chunk, tile);
    bool is_short = false, cleans = false, is_simple = false, is_net = false;
    if (i < (is_out ? head.n_outs : head.n_ins)) {
        struct line_operand own = {nullptr, 0};
        if (((is_out ? head.send_mask : head.recv_mask) >> i & 1) != 0) {
            const struct connection *end = &block.connections[operand.ref];
            const uint32_t n_before = slots_before(block, end, tile, operand.use);
            const uint64_t number = end->number + n_before;
            own.base = slot_address(end, n_before);
            own.flag = line_flag<PROTO>(number);
            is_simple = is_of_simple(end);
            if (is_out && !is_simple) {
                is_net = PROTO == GYRE_PROTO_LL && is_of_net(end); /* its proxy cleans the slots */
                cleans = PROTO == GYRE_PROTO_LL && !is_net && gyre_ll_cleans(number, end->depth);
                is_short = !has_credit(end, tile, number);
            }
        } else {
            own.base = chunk_address(block, operand.ref, tile, head.chunk, range);
        }
        slot->operands[lane] = own;
    }
    const uint32_t clean_mask = __ballot_sync(0xffffffffU, cleans) >> LINE_FIRST_OUT;
    const uint32_t short_mask = __ballot_sync(0xffffffffU, is_short) >> LINE_FIRST_OUT;
    const uint32_t simple_mask = knows_proxies ? __ballot_sync(0xffffffffU, is_simple) : 0;
    const uint32_t net_mask =
        knows_proxies && PROTO == GYRE_PROTO_LL ? __ballot_sync(0xffffffffU, is_net) : 0;
    const bool is_recorded = records_steps(block.common);
    if (is_recorded && lane == LINE_RECORD)
        slot->operands[LINE_RECORD].base =
            line_record_address(block.common.recording.recorder,
                                record_end_entries(block.n_connections) + tile * block.n_steps +
                                    (uint32_t)(step - block.steps));
    if (lane == 0) {
        const struct line_head own = {
            .n_bytes = (uint32_t)range.n_elems * work.elem_bytes,
            .n_ins = head.n_ins,
            .n_outs = head.n_outs,
            .recv_mask = (uint16_t)(head.recv_mask & ~simple_mask),
            .send_mask = (uint16_t)(head.send_mask & ~(simple_mask >> LINE_FIRST_OUT)),
            .clean_mask = (uint16_t)clean_mask,
            .short_mask = (uint16_t)short_mask,
            .scale_mask = work.premultiply != 0 ? head.caller_mask : (uint16_t)0,
            .divisor = head.is_final != 0 ? work.divisor : 1,
            .simple_mask = simple_mask | (is_recorded ? LINE_RECORDED : 0),
            .net_mask = net_mask,
        };
        memcpy(slot->head, &own, sizeof(own));
    }
}

/* Each warp waits by itself. */
static __device__ __forceinline__ bool await_credits(const struct block &block,
                                                     const struct gyre_cuda_step *step,
                                                     uint32_t short_mask, uint32_t tile)
{
    const uint32_t i = threadIdx.x % 32;
    bool is_stopped = false;
    if ((short_mask >> i & 1) != 0) {
        const struct connection *own = &block.connections[step->outs[i].ref];
        is_stopped = !await_credit(block, own,
                                   own->number + slots_before(block, own, tile, step->outs[i].use));
    }
    return __any_sync(0xffffffffU, is_stopped) == 0;
}

/* Before credit is given within a launch, so that the zeros that other threads stored before the
 * barrier have been performed when the peer stores the next lines (sync.cuh). */
template <int PROTO> static __device__ __forceinline__ void order_cleared()
{
    if (PROTO != GYRE_PROTO_LL)
        fence_acq_rel_sys();
}

/* A barrier comes before. */
template <int PROTO>
static __device__ __forceinline__ void post_step(const struct block &block,
                                                 const struct gyre_cuda_step *step, uint32_t tile)
{
    const uint32_t i = threadIdx.x;
    if (i >= step->n_ins || (step->recv_mask >> i & 1) == 0)
        return;
    const struct connection *own = &block.connections[step->ins[i].ref];
    if (is_of_simple(own))
        return;
    order_cleared<PROTO>();
    store_relaxed_sys(own->posted,
                      own->number + slots_before(block, own, tile, step->ins[i].use) + 1);
}

/* For all steps up to this tile. A barrier comes before. */
template <int PROTO>
static __device__ __forceinline__ void post_tile(const struct block &block, uint32_t tile)
{
    for (uint32_t i = threadIdx.x; i < block.n_connections; i += blockDim.x) {
        const struct connection *own = &block.connections[i];
        if (own->is_send != 0 || is_of_simple(own))
            continue;
        order_cleared<PROTO>();
        store_relaxed_sys(own->posted, own->number + (uint64_t)(tile + 1) * own->n_uses);
    }
}

/* True when aborted. */
template <class STEP>
static __device__ __forceinline__ bool run_batch(const struct block &block, uint32_t tile,
                                                 uint32_t first_step, uint32_t n_steps,
                                                 bool is_stopped)
{
    struct line_slot *slots = (struct line_slot *)block.rest;
    for (uint32_t s = threadIdx.x / 32; s < n_steps; s += blockDim.x / 32)
        resolve_step<STEP::proto>(block, &block.steps[first_step + s], tile, &slots[s]);
    __syncthreads();
    for (uint32_t s = 0; s < n_steps; s++) {
        const struct gyre_cuda_step *step = &block.steps[first_step + s];
        const struct line_step line = read_line_step(&slots[s]);
        const bool is_special = GYRE_CUDA_LEAN == 0 && line.simple_mask != 0;
        const bool has_simple = knows_proxies && (line.simple_mask & ~LINE_RECORDED) != 0;
        if (is_special) { /* the same for all threads */
            const bool goes_on =
                threadIdx.x >= 32 || is_stopped ||
                prepare_step<STEP>(block.common, simple_slots_of(block, step, line, tile),
                                   &slots[s]);
            if (has_simple && __syncthreads_or(is_stopped || !goes_on) != 0)
                return true;
        }
        if (line.short_mask != 0) { /* the same for all threads */
            is_stopped = __any_sync(0xffffffffU, is_stopped) != 0;
            if (!is_stopped)
                is_stopped = !await_credits(block, step, line.short_mask, tile);
        }
        if (knows_proxies && STEP::proto == GYRE_PROTO_LL && line.net_mask != 0 &&
            threadIdx.x < 32 && !is_stopped) {
            struct simple_slots lines = simple_slots_of(block, step, line, tile);
            lines.lane_mask = line.net_mask;
            announce_lines(lines);
        }
        if (!is_stopped)
            is_stopped = !STEP::run(block, line);
        const bool posts = block.work.posts_late == 0 && line.recv_mask != 0;
        if (!posts && !is_special)
            continue;
        if (is_special && line.simple_mask >= LINE_RECORDED && threadIdx.x == 0)
            record_line_end(slots[s].operands);
        if (!posts && !has_simple)
            continue;
        if (__syncthreads_or(is_stopped) != 0)
            return true;
        if (posts)
            post_step<STEP::proto>(block, step, tile);
        if (has_simple && threadIdx.x < 32)
            publish_simple(simple_slots_of(block, step, line, tile));
    }
    return is_stopped;
}

template <class STEP> static __device__ __forceinline__ void run_lines(const struct block &block)
{
    const uint32_t n_tiles = block.work.split.n_tiles;
    bool is_stopped = false;
    for (uint32_t tile = 0; tile < n_tiles; tile++) {
        const uint64_t credit = look_at_credit(block, threadIdx.x);
        for (uint32_t first = 0; first < block.n_steps; first += GYRE_CUDA_LINE_STEPS) {
            const uint32_t n_steps = min(block.n_steps - first, (uint32_t)GYRE_CUDA_LINE_STEPS);
            const bool is_last = first + n_steps == block.n_steps;
            is_stopped = run_batch<STEP>(block, tile, first, n_steps, is_stopped);
            if (is_last && tile + 1 == n_tiles)
                return;
            if (is_last)
                keep_credit(block, tile, credit);
            if (__syncthreads_or(is_stopped) != 0)
                return;
            if (is_last)
                post_tile<STEP::proto>(block, tile);
        }
    }
}

#endif
