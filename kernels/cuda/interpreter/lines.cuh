/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the interpreter that all line protocols share. A thread handles the same positions of
 * a range in every step, so a chunk that one step writes and a later step reads needs no barrier
 * between them. The warps of a block resolve the operands of a tile's steps, each warp another
 * step; then every thread goes through the steps on its own. The block has a barrier once a tile,
 * before it gives credit back; where a FIFO has fewer slots than a tile needs, it has one at every
 * receiving step.
 *
 * On several hosts a program also has connections that proxies serve, and they go by SIMPLE
 * (connection.is_simple). Their slots hold plain bytes, so the threads load and store them as they
 * load and store chunks. What differs is around the step: before it, one warp waits for these slots
 * and all threads wait for that warp; after it, all threads meet and the warp publishes the slots
 * that were written and gives back those that were read.
 *
 * Where such connections go by LL (connection.is_net), lines that arrive are like all others: a NIC
 * or a proxy wrote them in place of a peer. Lines that are sent lie in host memory. Before the step
 * the warp tells the proxy how many there will be, and the proxy waits for their flags.
 */
#ifndef GYRE_KERNELS_CUDA_LINES_CUH
#define GYRE_KERNELS_CUDA_LINES_CUH

#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/protocol/line.cuh"

/* A bit of line_head.simple_mask that no operand has: the step is recorded. Steps that are not
 * recorded take the same branches as without recording. */
#define LINE_RECORDED 0x80000000U
/* The operand that no step has. Of a recorded step it holds the address of the step's entry and the
 * time at which the step began. */
#define LINE_RECORD (LINE_OPERANDS - 1)

static_assert(GYRE_STEP_MAX_INS + GYRE_STEP_MAX_OUTS <= LINE_RECORD && LINE_OPERANDS < 32,
              "a lane for each operand");

/* The part of a resolved step that a thread reads before any operand. It is two words of 16
 * bytes. */
struct line_head {
    uint32_t n_bytes;
    uint8_t n_ins;
    uint8_t n_outs;
    uint16_t recv_mask;
    uint16_t send_mask;
    uint16_t clean_mask; /* LL: outputs for which every line of the slot is written */
    uint16_t short_mask; /* outputs that had no credit when the step was resolved */
    uint16_t scale_mask;
    uint32_t divisor;
    uint32_t simple_mask; /* operands that are slots of SIMPLE, by the lane that resolved them; they
                           * are neither in recv_mask nor in send_mask. LINE_RECORDED besides */
    uint32_t net_mask;    /* outputs whose lines a proxy sends, likewise; they are in send_mask */
    uint32_t pad;
};

static_assert(sizeof(struct line_head) == 32, "copied as two words");

/* A resolved step of a tile. It lies in shared memory. */
struct line_slot {
    uint4 head[2];
    struct line_operand operands[LINE_OPERANDS];
};

static_assert(sizeof(struct line_slot) == GYRE_CUDA_LINE_STEP_BYTES, "as the host sizes it");

/* A resolved step in a thread's registers; the operands stay in shared memory. */
struct line_step : line_head {
    const struct line_operand *operands;
};

static __device__ __forceinline__ struct line_step read_line_step(const struct line_slot *slot)
{
    const uint4 words[2] = {slot->head[0],
                            slot->head[1]}; /* both loads are issued before a value is used */
    struct line_head head;
    memcpy(&head, words, sizeof(head));
    return {head, slot->operands};
}

static __device__ __forceinline__ struct arithmetic line_arithmetic(const struct block &block,
                                                                    const struct line_step &line)
{
    return {block.work.scalar, line.scale_mask, line.divisor};
}

/* Is there room for slot `number`, by the credit that the block knows or else by one look at the
 * credit in memory? */
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

/* Once a tile, the block reads the credit for the next tile. It reads the credit when a tile begins
 * and keeps the value when the tile ends, so no thread waits for the load. It writes the value
 * while no thread reads it. The load needs no acquire, because a store to a line comes a whole
 * round of the ring after the peer's loads of that line (sync.cuh, "LL"). */
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

/* ---- recording (record.cuh) ----------------------------------------------------------------- */

/* The address of the block's entry `n_before` entries after the first one of this launch. */
static __device__ __noinline__ unsigned char *
line_record_address(const struct gyre_cuda_recorder *recorder, uint32_t n_before)
{
    return (unsigned char *)record_at(recorder, recorder->blocks[blockIdx.x].n_entries + n_before);
}

static __device__ __forceinline__ void record_line_end(const struct line_operand *operands)
{
    ((union gyre_cuda_record *)operands[LINE_RECORD].base)->step.end_ns = global_ns();
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* All lanes of one warp resolve a step; each lane resolves one operand. */
template <int PROTO>
static __device__ __forceinline__ void resolve_step(const struct block &block,
                                                    const struct gyre_cuda_step *step,
                                                    uint32_t tile, struct line_slot *slot)
{
    const struct gyre_cuda_work &work = block.work;
    const uint32_t lane = threadIdx.x % 32;
    const bool is_out = lane >= LINE_FIRST_OUT;
    const uint32_t i = is_out ? lane - LINE_FIRST_OUT : lane;
    /* The loads of the step's first word and of the lane's operand are in flight together. */
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

/* A step's slots of SIMPLE. Passed by value, because `struct block` would leave the registers if a
 * function out of line had its address. */
struct simple_slots {
    struct connection *connections;
    const struct gyre_cuda_step *step;
    uint64_t slot_info; /* of this call and step */
    uint32_t lane_mask; /* line_head.simple_mask */
    uint32_t tile;
};

static __device__ __forceinline__ struct simple_slots
simple_slots_of(const struct block &block, const struct gyre_cuda_step *step,
                const struct line_step &line, uint32_t tile)
{
    return {block.connections, step, gyre_slot_info(line.n_bytes, block.work.signature),
            line.simple_mask & ~LINE_RECORDED, tile};
}

/* The connection of this lane's slot of SIMPLE, or NULL. @n_before_out: slots of the launch that
 * come before it. Line protocols have one tile in flight. */
static __device__ __forceinline__ struct connection *
find_simple_slot(const struct simple_slots &slots, uint32_t *n_before_out)
{
    const uint32_t lane = threadIdx.x % 32;
    if ((slots.lane_mask >> lane & 1) == 0)
        return nullptr;
    const struct gyre_cuda_operand operand =
        lane >= LINE_FIRST_OUT ? slots.step->outs[lane - LINE_FIRST_OUT] : slots.step->ins[lane];
    struct connection *own = &slots.connections[operand.ref];
    *n_before_out = slots.tile * own->n_uses + operand.use;
    return own;
}

/* Waits until the slots of SIMPLE that a step reads have arrived and are of this call, and until
 * those that it writes are free. Returns false in lanes that saw an abort. */
static __device__ __forceinline__ bool await_simple(const struct gyre_cuda_common &common,
                                                    const struct simple_slots &slots)
{
    uint32_t n_polls = 0, n_before = 0;
    struct connection *own = find_simple_slot(slots, &n_before);
    if (own == nullptr)
        return true;
    while (!has_reached(own, load_acquire_sys(own->awaited), own->number + n_before))
        if (must_stop(common, n_polls))
            return false;
    if (own->is_send == 0 &&
        load_relaxed_sys(&own->slot_info[slot_index(own, n_before)]) != slots.slot_info) {
        report_mismatch(common, own->index);
        return false;
    }
    return true;
}

/* Records the begin of a step, in one thread. Lines arrive one by one while a step runs, and each
 * thread waits for its own. The first line of each input stands for all of them: the first thread
 * waits here until it is there. Line 0 belongs to the first warp, so nobody has cleared it yet. */
template <class STEP>
static __device__ __forceinline__ void record_line_wait(const struct gyre_cuda_common &common,
                                                        const struct line_slot *slot,
                                                        uint64_t begin_ns)
{
    const struct line_step line = read_line_step(slot);
    union gyre_cuda_record *entry = (union gyre_cuda_record *)line.operands[LINE_RECORD].base;
    uint32_t n_polls = 0;
    for (uint32_t i = 0; line.n_bytes > 0 && line.recv_mask >> i != 0; i++)
        while ((line.recv_mask >> i & 1) != 0 && !STEP::first_line_has_arrived(line.operands[i]))
            if (must_stop(common, n_polls))
                return;
    const uint64_t waited_ns = gyre_cuda_min(global_ns() - begin_ns, UINT32_MAX);
    *(ulonglong2 *)entry = {begin_ns, waited_ns | waited_ns << 32};
    entry->step.n_bytes = line.n_bytes;
}

/* Called by the first warp before a step that has slots of SIMPLE or is recorded. If it has such
 * slots, a barrier comes after. Returns false in lanes that saw an abort. Out of line, because
 * programs of one host come here only when they are recorded. */
template <class STEP>
static __device__ __noinline__ bool prepare_step(const struct gyre_cuda_common &common,
                                                 struct simple_slots slots,
                                                 const struct line_slot *slot)
{
    const uint64_t begin_ns = records_steps(common) ? global_ns() : 0;
    const bool goes_on = await_simple(common, slots);
    if (records_steps(common) && threadIdx.x == 0 && goes_on)
        record_line_wait<STEP>(common, slot, begin_ns);
    return goes_on;
}

/* Called by the first warp, after such a step and a barrier: publishes the slots that were written
 * and gives back those that were read (sync.cuh, "SIMPLE"). */
static __device__ __noinline__ void publish_simple(struct simple_slots slots)
{
    uint32_t n_before = 0;
    struct connection *own = find_simple_slot(slots, &n_before);
    if (own == nullptr)
        return;
    if (own->is_send != 0)
        store_relaxed_sys(&own->slot_info[slot_index(own, n_before)], slots.slot_info);
    fence_acq_rel_sys();
    store_relaxed_sys(own->posted, own->number + n_before + 1);
}

/* Called by the first warp, before a step stores lines that a proxy sends and when there is credit
 * for them: tells the proxy how many lines the slots will have. Neither the step's lines nor this
 * word wait for each other, because each has a flag. Out of line, as await_simple(). */
static __device__ __noinline__ void announce_lines(struct simple_slots slots)
{
    uint32_t n_before = 0;
    const struct connection *own = find_simple_slot(slots, &n_before);
    if (own == nullptr)
        return;
    const uint32_t n_lines =
        ((uint32_t)slots.slot_info + GYRE_LL_DATA_BYTES - 1) / GYRE_LL_DATA_BYTES;
    store_relaxed_sys(&own->slot_info[GYRE_FIRST_LINE_INFO + slot_index(own, n_before)],
                      gyre_ll_announcement(own->number + n_before, n_lines));
}

/* Each warp waits by itself until the outputs of `short_mask` have credit. Returns false when
 * aborted. */
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

/* Comes before credit is given within a launch, so that the zeros that other threads stored before
 * the barrier have been performed when the peer stores the next lines (sync.cuh). */
template <int PROTO> static __device__ __forceinline__ void order_cleared()
{
    if (PROTO != GYRE_PROTO_LL)
        fence_acq_rel_sys();
}

/* Gives back the slots that this step received. A barrier comes before. */
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

/* Gives back the slots that all steps received up to this tile. A barrier comes before. */
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

/* Resolves some steps of a tile together; then each thread runs them. Returns true when aborted. */
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
        if (line.short_mask != 0) { /* the same for all threads, so warps stay converged */
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

/* Runs every step of every tile. The next launch gives the credit of the last tile. */
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
