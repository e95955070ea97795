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

/* A step, resolved by each thread for itself. */
struct line_step {
    const struct gyre_cuda_step *step;
    struct gyre_range range;
    uint32_t tile;
    uint32_t n_bytes;
    struct arithmetic arithmetic;
};

/* One operand: where its bytes begin, and of a connection the flag that marks them. */
struct line_operand {
    unsigned char *base;
    uint64_t flag;
    uint32_t is_connection;
};

static __device__ __forceinline__ struct line_step
resolve_step(const struct block &block, const struct gyre_cuda_step *step, uint32_t tile)
{
    const struct gyre_cuda_work &work = block.work;
    struct line_step own;
    own.step = step;
    own.range = gyre_cuda_tile_range(&work.split, block.channel, step->chunk, tile);
    own.tile = tile;
    own.n_bytes = (uint32_t)own.range.n_elems * work.elem_bytes;
    own.arithmetic.scalar = work.scalar;
    own.arithmetic.scale_mask = work.premultiply != 0 ? step->caller_mask : 0;
    own.arithmetic.divisor = step->is_final != 0 ? work.divisor : 1;
    return own;
}

template <int PROTO> static __device__ __forceinline__ uint64_t line_flag(uint64_t number)
{
    return PROTO == GYRE_PROTO_LL ? gyre_cuda_ll_flag(number) : number + 1;
}

template <int PROTO>
static __device__ __forceinline__ struct line_operand
resolve_operand(const struct block &block, const struct line_step &line,
                struct gyre_cuda_operand operand, bool is_connection)
{
    struct line_operand own;
    own.is_connection = is_connection;
    own.flag = 0;
    if (is_connection) {
        const struct connection *end = &block.connections[operand.ref];
        own.base = slot_address(block, end, line.tile, operand.use);
        own.flag = line_flag<PROTO>(slot_number(end, line.tile, operand.use));
    } else {
        own.base = chunk_address(block, operand.ref, line.tile, line.step->chunk, line.range);
    }
    return own;
}

/* Every thread waits for itself: its stores come after its own acquire. Returns false when
 * aborted. */
static __device__ __forceinline__ bool await_credit(const struct block &block,
                                                    const struct line_step &line)
{
    const struct gyre_cuda_step *step = line.step;
    for (uint32_t o = 0; o < step->n_outs; o++) {
        if ((step->send_mask >> o & 1) == 0)
            continue;
        struct connection *own = &block.connections[step->outs[o].ref];
        const uint64_t number = slot_number(own, line.tile, step->outs[o].use);
        uint32_t n_polls = 0;
        /* Any thread's newer value is as good: it was acquired by a thread of this block, and the
         * slot's readers were done when it was posted. */
        while (!has_reached(own, *(volatile uint64_t *)&own->seen, number)) {
            const uint64_t seen = load_acquire_sys(own->awaited);
            if (has_reached(own, seen, number))
                *(volatile uint64_t *)&own->seen = seen;
            else if (must_stop(block.common, n_polls))
                return false;
        }
    }
    return true;
}

static __device__ __forceinline__ void post_credit(const struct block &block,
                                                   const struct line_step &line)
{
    const struct gyre_cuda_step *step = line.step;
    const uint32_t i = threadIdx.x;
    if (i >= step->n_ins || (step->recv_mask >> i & 1) == 0)
        return;
    const struct connection *own = &block.connections[step->ins[i].ref];
    store_relaxed_sys(own->posted, slot_number(own, line.tile, step->ins[i].use) + 1);
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

/* All workers of the block: run FUNCTION(block, line) for every step, then return credit. */
template <class STEP> static __device__ __forceinline__ void run_lines(const struct block &block)
{
    bool is_stopped = false;
    for (uint32_t tile = 0; tile < block.work.split.n_tiles; tile++)
        for (uint32_t s = 0; s < block.n_steps; s++) {
            const struct line_step line = resolve_step(block, &block.steps[s], tile);
            is_stopped = is_stopped || !await_credit(block, line) || !STEP::run(block, line);
            if (line.step->has_recvs == 0)
                continue;
            if (__syncthreads_or(is_stopped) != 0)
                return;
            post_credit(block, line);
        }
}

#endif
