/* SPDX-License-Identifier: Apache-2.0
 *
 * What the line protocols share. A thread always handles the same positions of a range, whatever
 * the step, so a chunk that one step writes and a later one reads needs no barrier between them.
 * Blocks meet once per receiving step, before credit is returned.
 */
#ifndef GYRE_KERNELS_CUDA_LINES_CUH
#define GYRE_KERNELS_CUDA_LINES_CUH

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/element.cuh"

/* One operand of a step: where its bytes begin, and of a connection the flag that marks them. */
struct line_operand {
    unsigned char *base;
    uint64_t flag;
};

/* Each warp resolves the operands of its step, one in a lane, for all its lanes. */
#define LINE_OPERANDS  20 /* inputs from 0, outputs from LINE_FIRST_OUT */
#define LINE_FIRST_OUT GYRE_STEP_MAX_INS
#define LINE_MAX_WARPS 20

static_assert(GYRE_STEP_MAX_INS + GYRE_STEP_MAX_OUTS <= LINE_OPERANDS && LINE_OPERANDS <= 32,
              "a lane for each operand");

struct line_step {
    const struct line_operand *operands; /* shared memory of the warp */
    uint32_t n_bytes;
    uint32_t n_ins;
    uint32_t n_outs;
    uint32_t recv_mask;
    uint32_t send_mask;
    uint32_t clean_mask; /* LL: outputs whose slot is written whole */
    struct arithmetic arithmetic;
    bool is_stopped;
};

template <int PROTO> static __device__ __forceinline__ uint64_t line_flag(uint64_t number)
{
    return PROTO == GYRE_PROTO_LL ? gyre_cuda_ll_flag(number) : number + 1;
}

/* Returns false when aborted. */
static __device__ __forceinline__ bool await_credit(const struct block &block,
                                                    struct connection *own, uint64_t number)
{
    volatile uint64_t *known = &own->seen;
    uint32_t n_polls = 0;
    /* Another warp's newer value is as good: what it stands for happened before that warp's acquire
     * and is not undone; our own stores follow a line's readers by a whole round of the ring. */
    while (!has_reached(own, *known, number)) {
        const uint64_t seen = load_acquire_sys(own->awaited);
        if (has_reached(own, seen, number))
            *known = seen;
        else if (must_stop(block.common, n_polls))
            return false;
    }
    return true;
}

/* All lanes. Sending ends have credit afterwards, unless is_stopped. */
template <int PROTO>
static __device__ __forceinline__ struct line_step
resolve_step(const struct block &block, const struct gyre_cuda_step *step, uint32_t tile,
             struct line_operand *operands)
{
    const struct gyre_cuda_work &work = block.work;
    const uint32_t lane = threadIdx.x % 32;
    const bool is_out = lane >= LINE_FIRST_OUT;
    const uint32_t i = is_out ? lane - LINE_FIRST_OUT : lane;
    const struct gyre_range range =
        gyre_cuda_tile_range(&work.split, block.channel, step->chunk, tile);
    struct line_step line;
    bool is_stopped = false, cleans = false;
    __syncwarp(); /* the last step's operands have been read */
    if (i < (is_out ? step->n_outs : step->n_ins)) {
        const struct gyre_cuda_operand operand = is_out ? step->outs[i] : step->ins[i];
        struct line_operand own = {nullptr, 0};
        if (((is_out ? step->send_mask : step->recv_mask) >> i & 1) != 0) {
            struct connection *end = &block.connections[operand.ref];
            const uint64_t number = slot_number(end, tile, operand.use);
            own.base = slot_address(block, end, tile, operand.use);
            own.flag = line_flag<PROTO>(number);
            if (is_out) {
                cleans = PROTO == GYRE_PROTO_LL && gyre_cuda_ll_cleans(number, end->depth);
                is_stopped = !await_credit(block, end, number);
            }
        } else {
            own.base = chunk_address(block, operand.ref, tile, step->chunk, range);
        }
        operands[lane] = own;
    }
    line.clean_mask =
        PROTO == GYRE_PROTO_LL ? __ballot_sync(0xffffffffU, cleans) >> LINE_FIRST_OUT : 0;
    line.is_stopped = __any_sync(0xffffffffU, is_stopped) != 0;
    line.operands = operands;
    line.n_bytes = (uint32_t)range.n_elems * work.elem_bytes;
    line.n_ins = step->n_ins;
    line.n_outs = step->n_outs;
    line.recv_mask = step->recv_mask;
    line.send_mask = step->send_mask;
    line.arithmetic.scalar = work.scalar;
    line.arithmetic.scale_mask = work.premultiply != 0 ? step->caller_mask : 0;
    line.arithmetic.divisor = step->is_final != 0 ? work.divisor : 1;
    __syncwarp();
    return line;
}

static __device__ __forceinline__ void post_credit(const struct block &block,
                                                   const struct gyre_cuda_step *step, uint32_t tile)
{
    const uint32_t i = threadIdx.x;
    if (i >= step->n_ins || (step->recv_mask >> i & 1) == 0)
        return;
    const struct connection *own = &block.connections[step->ins[i].ref];
    store_relaxed_sys(own->posted, slot_number(own, tile, step->ins[i].use) + 1);
}

/* 8 bytes of a chunk of which n_valid exist, at any alignment. */
static __device__ __forceinline__ uint64_t load_8(const unsigned char *from, uint32_t n_valid)
{
    const uint32_t misalignment = (uint32_t)(uintptr_t)from & 7U;
    uint64_t value = 0;
    if (n_valid >= 8 && misalignment == 0) {
        value = *(const uint64_t *)from;
    } else if (n_valid >= 8 && misalignment == 4) {
        value = *(const uint32_t *)from | (uint64_t) * (const uint32_t *)(from + 4) << 32;
    } else {
        for (uint32_t i = 0; i < n_valid && i < 8; i++)
            value |= (uint64_t)from[i] << 8 * i;
    }
    return value;
}

static __device__ __forceinline__ void store_8(unsigned char *to, uint64_t value, uint32_t n_valid)
{
    const uint32_t misalignment = (uint32_t)(uintptr_t)to & 7U;
    if (n_valid >= 8 && misalignment == 0) {
        *(uint64_t *)to = value;
    } else if (n_valid >= 8 && misalignment == 4) {
        *(uint32_t *)to = (uint32_t)value;
        *(uint32_t *)(to + 4) = (uint32_t)(value >> 32);
    } else {
        for (uint32_t i = 0; i < n_valid && i < 8; i++)
            to[i] = (unsigned char)(value >> 8 * i);
    }
}

/* Every step of every tile; after a receiving one the block meets and returns credit. */
template <class STEP> static __device__ __forceinline__ void run_lines(const struct block &block)
{
    __shared__ struct line_operand operands[LINE_MAX_WARPS][LINE_OPERANDS];
    bool is_stopped = false;
    for (uint32_t tile = 0; tile < block.work.split.n_tiles; tile++)
        for (uint32_t s = 0; s < block.n_steps; s++) {
            const struct gyre_cuda_step *step = &block.steps[s];
            if (!is_stopped) {
                const struct line_step line =
                    resolve_step<STEP::proto>(block, step, tile, operands[threadIdx.x / 32]);
                is_stopped = line.is_stopped || !STEP::run(block, line);
            }
            if (step->has_recvs == 0)
                continue;
            if (__syncthreads_or(is_stopped) != 0)
                return;
            post_credit(block, step, tile);
        }
}

#endif
