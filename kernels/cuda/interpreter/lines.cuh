/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the interpreter that all line protocols share. A thread handles the same positions of
 * a range in every step, so a chunk that one step writes and a later step reads needs no barrier
 * between them. The warps of a block resolve the operands of a tile's steps, each warp another
 * step; then every thread goes through the steps on its own. The block has a barrier once a tile,
 * before it gives credit back; where a FIFO has fewer slots than a tile needs, it has one at every
 * receiving step.
 */
#ifndef GYRE_KERNELS_CUDA_LINES_CUH
#define GYRE_KERNELS_CUDA_LINES_CUH

#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/protocol/line.cuh"

static_assert(GYRE_STEP_MAX_INS + GYRE_STEP_MAX_OUTS <= LINE_OPERANDS && LINE_OPERANDS <= 32,
              "a lane for each operand");

/* What a thread must know of a resolved step before its first operand: two words of 16 bytes. */
struct line_head {
    uint32_t n_bytes;
    uint8_t n_ins;
    uint8_t n_outs;
    uint16_t recv_mask;
    uint16_t send_mask;
    uint16_t clean_mask; /* LL: outputs whose slot is written whole */
    uint16_t short_mask; /* outputs that had no credit yet */
    uint16_t scale_mask;
    uint32_t divisor;
    uint32_t pad[3];
};

static_assert(sizeof(struct line_head) == 32, "copied as two words");

/* A step of a tile, resolved; in shared memory. */
struct line_slot {
    uint4 head[2];
    struct line_operand operands[LINE_OPERANDS];
};

static_assert(sizeof(struct line_slot) == GYRE_CUDA_LINE_STEP_BYTES, "as the host sizes it");

/* The same as a thread sees it. */
struct line_step : line_head {
    const struct line_operand *operands;
};

static __device__ __forceinline__ struct line_step read_line_step(const struct line_slot *slot)
{
    const uint4 words[2] = {slot->head[0], slot->head[1]}; /* side by side, before any is used */
    struct line_head head;
    memcpy(&head, words, sizeof(head));
    return {head, slot->operands};
}

static __device__ __forceinline__ struct arithmetic line_arithmetic(const struct block &block,
                                                                    const struct line_step &line)
{
    return {block.work.scalar, line.scale_mask, line.divisor};
}

/* Has the sending end room for that slot, as far as is known or can be seen at once? */
static __device__ __forceinline__ bool has_credit(const struct connection *own, uint32_t tile,
                                                  uint64_t number)
{
    return has_reached(own, own->seen[tile % 2], number) ||
           has_reached(own, load_acquire_sys(own->awaited), number);
}

/* Returns false when aborted. */
static __device__ __forceinline__ bool await_credit(const struct block &block,
                                                    const struct connection *own, uint64_t number)
{
    uint32_t n_polls = 0;
    while (!has_reached(own, load_acquire_sys(own->awaited), number))
        if (must_stop(block.common, n_polls))
            return false;
    return true;
}

/* What is known of credit is written once a tile, for the next one, while no thread reads that
 * value. Our own stores follow a line's readers by a whole round of the ring, so it needs no
 * acquire (sync.cuh, "LL"). Read when a tile begins, kept when it ends: no thread waits for it. */
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

/* One warp, all lanes. */
template <int PROTO>
static __device__ __forceinline__ void resolve_step(const struct block &block,
                                                    const struct gyre_cuda_step *step,
                                                    uint32_t tile, struct line_slot *slot)
{
    const struct gyre_cuda_work &work = block.work;
    const uint32_t lane = threadIdx.x % 32;
    const bool is_out = lane >= LINE_FIRST_OUT;
    const uint32_t i = is_out ? lane - LINE_FIRST_OUT : lane;
    /* All but the operands, and the lane's operand, in one trip. */
    const uint4 words = *(const uint4 *)step;
    struct gyre_cuda_operand operand = {0, 0};
    if (i < (is_out ? GYRE_STEP_MAX_OUTS : GYRE_STEP_MAX_INS))
        operand = is_out ? step->outs[i] : step->ins[i];
    struct gyre_cuda_step head;
    memcpy(&head, &words, sizeof(words));
    const struct gyre_range range = gyre_cuda_tile_range(&block.share, head.chunk, tile);
    bool is_short = false, cleans = false;
    if (i < (is_out ? head.n_outs : head.n_ins)) {
        struct line_operand own = {nullptr, 0};
        if (((is_out ? head.send_mask : head.recv_mask) >> i & 1) != 0) {
            const struct connection *end = &block.connections[operand.ref];
            const uint32_t n_before = slots_before(block, end, tile, operand.use);
            const uint64_t number = end->number + n_before;
            own.base = slot_address(end, n_before);
            own.flag = line_flag<PROTO>(number);
            if (is_out) {
                cleans = PROTO == GYRE_PROTO_LL && gyre_cuda_ll_cleans(number, end->depth);
                is_short = !has_credit(end, tile, number);
            }
        } else {
            own.base = chunk_address(block, operand.ref, tile, head.chunk, range);
        }
        slot->operands[lane] = own;
    }
    const uint32_t clean_mask = __ballot_sync(0xffffffffU, cleans) >> LINE_FIRST_OUT;
    const uint32_t short_mask = __ballot_sync(0xffffffffU, is_short) >> LINE_FIRST_OUT;
    if (lane == 0) {
        const struct line_head own = {
            .n_bytes = (uint32_t)range.n_elems * work.elem_bytes,
            .n_ins = head.n_ins,
            .n_outs = head.n_outs,
            .recv_mask = head.recv_mask,
            .send_mask = head.send_mask,
            .clean_mask = (uint16_t)clean_mask,
            .short_mask = (uint16_t)short_mask,
            .scale_mask = work.premultiply != 0 ? head.caller_mask : (uint16_t)0,
            .divisor = head.is_final != 0 ? work.divisor : 1,
        };
        memcpy(slot->head, &own, sizeof(own));
    }
}

/* Every warp on its own. Returns false when aborted. */
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

/* Before credit goes back within a launch: lines that other threads emptied (before the barrier)
 * are empty when the peer stores the next ones. (sync.cuh) */
template <int PROTO> static __device__ __forceinline__ void order_cleared()
{
    if (PROTO != GYRE_PROTO_LL)
        fence_acq_rel_sys();
}

/* After a barrier: what this step received is given back. */
template <int PROTO>
static __device__ __forceinline__ void post_step(const struct block &block,
                                                 const struct gyre_cuda_step *step, uint32_t tile)
{
    const uint32_t i = threadIdx.x;
    if (i >= step->n_ins || (step->recv_mask >> i & 1) == 0)
        return;
    const struct connection *own = &block.connections[step->ins[i].ref];
    order_cleared<PROTO>();
    store_relaxed_sys(own->posted,
                      own->number + slots_before(block, own, tile, step->ins[i].use) + 1);
}

/* After a barrier: what all steps of tiles up to this one received is given back. */
template <int PROTO>
static __device__ __forceinline__ void post_tile(const struct block &block, uint32_t tile)
{
    for (uint32_t i = threadIdx.x; i < block.n_connections; i += blockDim.x) {
        const struct connection *own = &block.connections[i];
        if (own->is_send != 0)
            continue;
        order_cleared<PROTO>();
        store_relaxed_sys(own->posted, own->number + (uint64_t)(tile + 1) * own->n_uses);
    }
}

/* Some steps of a tile, resolved together; then each thread runs them. Returns true when aborted.
 */
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
        if (line.short_mask != 0) { /* where warps stay together */
            is_stopped = __any_sync(0xffffffffU, is_stopped) != 0;
            if (!is_stopped)
                is_stopped = !await_credits(block, step, line.short_mask, tile);
        }
        if (!is_stopped)
            is_stopped = !STEP::run(block, line);
        if (block.work.posts_late != 0 || line.recv_mask == 0)
            continue;
        if (__syncthreads_or(is_stopped) != 0)
            return true;
        post_step<STEP::proto>(block, step, tile);
    }
    return is_stopped;
}

/* Every step of every tile. The credit of the last tile is posted by the next launch. */
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
