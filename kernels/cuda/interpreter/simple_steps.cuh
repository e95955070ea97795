/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps in SIMPLE. The worker threads of a block only move bytes. The waiter's warp resolves the
 * next steps and waits for their slots meanwhile. The poster's warp fences and publishes a step
 * while the workers move the next one, because a fence is slower the more stores are in flight.
 *
 * Resolved steps rotate through four buffers in shared memory. The waiter fills the buffer of step
 * k after the poster has published step k - 4, so no barrier is ever more than one phase ahead. All
 * workers share a barrier: on an mbarrier they would drift apart.
 *
 * Where slots allow it, two tiles go through the steps together (struct cursor): while one tile's
 * data are on their way to the peer and back, the block moves the other.
 */
#ifndef GYRE_KERNELS_CUDA_SIMPLE_STEPS_CUH
#define GYRE_KERNELS_CUDA_SIMPLE_STEPS_CUH

#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/device/move.cuh"
#include "kernels/cuda/device/record_step.cuh"
#include "kernels/cuda/protocol/simple.cuh"

#define N_MOVES        4  /* buffers for resolved steps */
#define READY_BARRIER  1  /* 1 to 4: the waiter arrives, the workers sync */
#define DONE_BARRIER   5  /* 5 to 8: the workers arrive, the poster syncs */
#define POSTED_BARRIER 9  /* 9 to 12: the poster arrives, the waiter syncs */
#define FIRST_OUT_LANE 16 /* lanes 0 to 9 serve inputs, 16 to 24 outputs */

static_assert(GYRE_STEP_MAX_INS <= FIRST_OUT_LANE && FIRST_OUT_LANE + GYRE_STEP_MAX_OUTS <= 32,
              "a lane for each operand");

struct simple_shared {
    struct move moves[N_MOVES];
    /* Moves before an abort; UINT32_MAX: none. The poster may read this while the waiter writes it:
     * both values are above the poster's move. */
    uint32_t n_whole;
};

/* A group of tiles goes through each step together. A range of chunks takes a move for each. */
struct cursor {
    uint32_t step;
    uint32_t piece;
    uint32_t tile;
    uint32_t first_tile;
    uint32_t n_side;
};

static __device__ __forceinline__ uint32_t tiles_in_flight(const struct block &block,
                                                           uint32_t first_tile)
{
    return min((uint32_t)block.work.n_in_flight, block.work.split.n_tiles - first_tile);
}

static __device__ __forceinline__ struct cursor first_step(const struct block &block)
{
    return {0, 0, 0, 0, tiles_in_flight(block, 0)};
}

static __device__ __forceinline__ bool is_done(const struct block &block,
                                               const struct cursor &cursor)
{
    return block.n_steps == 0 || cursor.tile == block.work.split.n_tiles;
}

/* @n_pieces: of the step at the cursor. */
static __device__ __forceinline__ void go_on(const struct block &block, uint32_t n_pieces,
                                             struct cursor *cursor)
{
    if (++cursor->piece < n_pieces)
        return;
    cursor->piece = 0;
    if (++cursor->tile < cursor->first_tile + cursor->n_side)
        return;
    cursor->tile = cursor->first_tile;
    if (++cursor->step < block.n_steps)
        return;
    cursor->step = 0;
    cursor->tile = cursor->first_tile += cursor->n_side;
    cursor->n_side = tiles_in_flight(block, cursor->tile);
}

struct lane_step {
    struct gyre_cuda_step head;
    struct gyre_cuda_operand operand;
    uint32_t n_bytes; /* of all pieces, in a slot */
    bool has_operand;
    bool is_connection;
};

/* Of a step's parts, which are counted round n_parts, the one of a piece. Takes no address of
 * `struct block` or of a lane's step, which would then leave the registers. */
static __device__ __noinline__ uint32_t part_of_piece(const struct gyre_cuda_step *step,
                                                      uint32_t first, uint32_t piece)
{
    const uint32_t distance =
        step->stride == 0 ? piece : piece / step->run * step->stride + piece % step->run;
    const uint32_t part = first + distance;
    return part < step->n_parts ? part : part - step->n_parts;
}

static __device__ __forceinline__ uint32_t piece_bytes(const struct block &block)
{
    return block.work.split.tile_elems * block.work.elem_bytes;
}

static __device__ __forceinline__ uint32_t tile_bytes(const struct block &block, uint32_t chunk,
                                                      uint32_t tile)
{
    return (uint32_t)gyre_cuda_tile_range(&block.share, chunk, tile).n_elems *
           block.work.elem_bytes;
}

/* The loads are in flight together. */
static __device__ __forceinline__ struct lane_step
read_step(const struct block &block, const struct cursor &cursor, uint32_t lane)
{
    const struct gyre_cuda_step *step = &block.steps[cursor.step];
    const bool is_out = lane >= FIRST_OUT_LANE;
    const uint32_t i = is_out ? lane - FIRST_OUT_LANE : lane;
    const uint4 words = *(const uint4 *)step;
    struct lane_step own;
    own.operand = {0, 0};
    if (i < (is_out ? GYRE_STEP_MAX_OUTS : GYRE_STEP_MAX_INS))
        own.operand = is_out ? step->outs[i] : step->ins[i];
    memcpy(&own.head, &words, sizeof(words));
    own.has_operand = i < (is_out ? own.head.n_outs : own.head.n_ins);
    own.is_connection =
        own.has_operand && ((is_out ? own.head.send_mask : own.head.recv_mask) >> i & 1) != 0;
    uint32_t last = own.head.chunk;
    own.n_bytes = 0;
    if (own.head.n_pieces > 1) {
        const uint32_t n_before = own.head.n_pieces - 1U;
        const uint32_t index = own.operand.ref & GYRE_CUDA_REF_INDEX_MASK;
        last = part_of_piece(step, own.head.chunk, n_before);
        own.n_bytes = n_before * piece_bytes(block);
        own.head.chunk = (uint16_t)part_of_piece(step, own.head.chunk, cursor.piece);
        if (own.has_operand && !own.is_connection)
            own.operand.ref = (uint16_t)((own.operand.ref & ~GYRE_CUDA_REF_INDEX_MASK) |
                                         part_of_piece(step, index, cursor.piece));
    }
    own.n_bytes += tile_bytes(block, last, cursor.tile);
    return own;
}

/* Until slot `number` has arrived or has room. */
static __device__ __forceinline__ bool await(const struct block &block, struct connection *own,
                                             uint64_t number)
{
    uint64_t seen = own->seen[0];
    uint32_t n_polls = 0;
    if (has_reached(own, seen, number))
        return true;
    do {
        seen = load_acquire_sys(own->awaited);
        if (has_reached(own, seen, number)) {
            own->seen[0] = seen;
            return true;
        }
    } while (!must_stop_at(block.common, n_polls, own->awaited, seen));
    return false;
}

/* Placed data may be written from then on. */
static __device__ __forceinline__ bool await_entry(const struct block &block,
                                                   struct connection *own)
{
    const uint64_t *entered = own->awaited + (GYRE_HEAD_ENTERED - GYRE_PROTO_SIMPLE);
    uint32_t n_polls = 0;
    while (own->has_entered == 0) {
        if ((int64_t)(load_acquire_sys(entered) - (own->number + 1)) >= 0)
            own->has_entered = 1;
        else if (must_stop_at(block.common, n_polls, entered, 0))
            return false;
    }
    return true;
}

static __device__ __forceinline__ struct move_head
move_head_of(const struct gyre_cuda_work &work, const struct gyre_cuda_step &step, uint32_t n_bytes)
{
    return {
        .n_bytes = step.n_outs == 0 ? 0 : n_bytes, /* a step that only waits */
        .n_ins = step.n_ins,
        .n_outs = step.n_outs,
        .scale_mask = work.premultiply != 0 ? step.caller_mask : (uint16_t)0,
        .divisor = step.is_final != 0 ? work.divisor : 1,
    };
}

/* Each warp lane its own operand. @next: in: the same cursor. @waited: NULL unless recorded. */
static __device__ __forceinline__ bool prepare(const struct block &block,
                                               const struct cursor &cursor, struct cursor *next,
                                               uint32_t lane, struct move *move,
                                               struct lane_wait *waited)
{
    const uint32_t tile = cursor.tile;
    if (waited != nullptr)
        begin_lane_wait(waited);
    const struct lane_step step = read_step(block, cursor, lane);
    go_on(block, step.head.n_pieces, next);
    const struct gyre_cuda_operand operand = step.operand;
    const uint32_t chunk = step.head.chunk;
    const struct gyre_range range = gyre_cuda_tile_range(&block.share, chunk, tile);
    const uint32_t n_bytes = (uint32_t)range.n_elems * block.work.elem_bytes;
    bool is_stopped = false;
    uintptr_t address = 0;
    if (waited != nullptr)
        waited->n_bytes = step.n_bytes;
    if (step.is_connection) {
        struct connection *own = &block.connections[operand.ref & GYRE_CUDA_REF_INDEX_MASK];
        const bool is_placed = (operand.ref & GYRE_CUDA_REF_PLACED) != 0;
        const uint32_t n_before = slots_before(block, own, tile, operand.use);
        address = is_placed
                      ? (uintptr_t)placed_address(block, own, tile, chunk, range)
                      : (uintptr_t)slot_address(own, n_before) + cursor.piece * piece_bytes(block);
        is_stopped = !await(block, own, own->number + n_before) ||
                     (is_placed && own->is_send != 0 && !await_entry(block, own));
        if (!is_stopped && own->is_send == 0 &&
            load_relaxed_sys(&own->slot_info[slot_index(own, n_before)]) !=
                gyre_slot_info(step.n_bytes, block.work.signature)) {
            report_mismatch(block.common, own->index);
            is_stopped = true;
        }
        if (waited != nullptr)
            end_lane_wait(waited);
    } else if (step.has_operand) {
        address = (uintptr_t)chunk_address(block, operand.ref, tile, chunk, range);
    }
    if (step.has_operand && lane >= FIRST_OUT_LANE)
        move->outs[lane - FIRST_OUT_LANE] = (unsigned char *)address;
    else if (step.has_operand)
        move->ins[lane] = (const unsigned char *)address;
    is_stopped = __any_sync(0xffffffffU, is_stopped) != 0;
    const uint32_t misalignment = __reduce_or_sync(0xffffffffU, (uint32_t)address & 15U);
    if (lane == 0) {
        struct move_head head = move_head_of(block.work, step.head, n_bytes);
        head.misalignment = (uint8_t)misalignment;
        head.is_stopped = is_stopped;
        head.is_last = is_done(block, *next);
        write_head(move, head);
        move->scalar = block.work.scalar;
    }
    return !is_stopped;
}

/* Found while the step runs. */
struct posting {
    const struct connection *own; /* NULL: the lane writes nothing */
    uint32_t n_before;
    uint64_t slot_info;
};

/* Also moves the cursor on. */
static __device__ __forceinline__ struct posting posting_of(const struct block &block,
                                                            struct cursor *cursor, uint32_t lane)
{
    const struct lane_step step = read_step(block, *cursor, lane);
    struct posting posting = {};
    if (step.is_connection && cursor->piece + 1 >= step.head.n_pieces) {
        posting.own = &block.connections[step.operand.ref & GYRE_CUDA_REF_INDEX_MASK];
        posting.n_before = slots_before(block, posting.own, cursor->tile, step.operand.use);
        posting.slot_info = gyre_slot_info(step.n_bytes, block.work.signature);
    }
    go_on(block, step.head.n_pieces, cursor);
    return posting;
}

static __device__ __forceinline__ void publish(const struct posting &posting)
{
    const struct connection *own = posting.own;
    if (own == NULL)
        return;
    if (own->is_send != 0)
        store_relaxed_sys(&own->slot_info[slot_index(own, posting.n_before)], posting.slot_info);
    fence_acq_rel_sys();
    store_relaxed_sys(own->posted, own->number + posting.n_before + 1);
}

static __device__ __forceinline__ void
run_waiter(const struct block &block, struct simple_shared *shared, uint32_t lane, int n_barrier)
{
    uint32_t k = 0, n_steps = 0;
    struct cursor cursor = first_step(block), next = cursor;
    const struct step_recorder recorder = open_step_recorder(block);
    struct lane_wait waited;
    if (lane == 0)
        shared->n_whole = UINT32_MAX;
    for (; !is_done(block, cursor); k++, cursor = next) {
        const uint32_t i = k % N_MOVES;
        if (k >= N_MOVES)
            barrier_sync(POSTED_BARRIER + (int)i, SERVICE_THREADS);
        const bool goes_on = prepare(block, cursor, &next, lane, &shared->moves[i],
                                     recorder.recorder != nullptr ? &waited : nullptr);
        if (!goes_on && lane == 0)
            shared->n_whole = k;
        __syncwarp();
        barrier_arrive(READY_BARRIER + (int)i, n_barrier);
        if (!goes_on)
            return;
        if (recorder.recorder != nullptr && cursor.piece == 0)
            record_waited_step(recorder, n_steps++, waited, FIRST_OUT_LANE);
    }
    /* No barrier is left with arrivals of the poster. */
    for (uint32_t last = k - min(k, (uint32_t)N_MOVES); last < k; last++)
        barrier_sync(POSTED_BARRIER + (int)(last % N_MOVES), SERVICE_THREADS);
}

static __device__ __forceinline__ void run_poster(const struct block &block,
                                                  const struct simple_shared *shared, uint32_t lane,
                                                  int n_barrier)
{
    uint32_t k = 0, n_steps = 0;
    struct cursor cursor = first_step(block);
    const struct step_recorder recorder = open_step_recorder(block);
    for (; !is_done(block, cursor); k++) {
        const uint32_t i = k % N_MOVES;
        const struct posting posting = posting_of(block, &cursor, lane);
        barrier_sync(DONE_BARRIER + (int)i, n_barrier);
        if (*(volatile const uint32_t *)&shared->n_whole <= k)
            return;
        publish(posting);
        __syncwarp();
        barrier_arrive(POSTED_BARRIER + (int)i, SERVICE_THREADS);
        if (recorder.recorder != nullptr && lane == 0 && cursor.piece == 0)
            end_recorded_step(recorder.recorder, recorder.first, n_steps++);
    }
    if (recorder.recorder != nullptr && lane == 0)
        end_recorded_steps(recorder.recorder, n_steps);
}

template <int DTYPE, int OP>
static __device__ __forceinline__ void run_workers(const struct block &block,
                                                   struct simple_shared *shared, uint32_t n_workers,
                                                   int n_barrier)
{
    bool is_over = is_done(block, first_step(block));
    for (uint32_t k = 0; !is_over; k++) {
        const uint32_t i = k % N_MOVES;
        const struct move &move = shared->moves[i];
        barrier_sync(READY_BARRIER + (int)i, n_barrier);
        const struct move_head head = read_head(&move);
        const bool is_stopped = head.is_stopped != 0;
        if (!is_stopped)
            move_bytes<DTYPE, OP>(head, move, threadIdx.x, n_workers);
        __syncwarp();
        barrier_arrive(DONE_BARRIER + (int)i, n_barrier);
        is_over = is_stopped || head.is_last != 0;
    }
}

template <int DTYPE, int OP>
static __device__ __forceinline__ void run_simple(const struct block &block)
{
    __shared__ struct simple_shared shared;
    const uint32_t n_workers = blockDim.x - SERVICE_THREADS;
    const int n_barrier = (int)n_workers + 32;
    if (threadIdx.x < n_workers)
        run_workers<DTYPE, OP>(block, &shared, n_workers, n_barrier);
    else if (threadIdx.x < n_workers + 32)
        run_waiter(block, &shared, threadIdx.x - n_workers, n_barrier);
    else
        run_poster(block, &shared, threadIdx.x - n_workers - 32, n_barrier);
}

#endif
