/* SPDX-License-Identifier: Apache-2.0
 *
 * Protocol LL: lines of 16 bytes, {data, flag, data, flag}, 4 bytes each. Half of the wire, but a
 * single trip: data is there when its flag is.
 */
#ifndef GYRE_KERNELS_CUDA_LL_CUH
#define GYRE_KERNELS_CUDA_LL_CUH

#include "kernels/cuda/lines.cuh"

#define LL_LINE_BYTES 16
#define LL_DATA_BYTES 8

static __device__ __forceinline__ bool ll_is_there(ulonglong2 halves, uint64_t flag)
{
    return (uint32_t)(halves.x >> 32) == (uint32_t)flag &&
           (uint32_t)(halves.y >> 32) == (uint32_t)flag;
}

static __device__ __forceinline__ uint64_t ll_data(ulonglong2 halves)
{
    return (uint32_t)halves.x | halves.y << 32;
}

static __device__ __forceinline__ void ll_store(unsigned char *slot, uint32_t line, uint64_t data,
                                                uint64_t flag)
{
    store_line(slot + (size_t)line * LL_LINE_BYTES, (uint32_t)data | flag << 32,
               data >> 32 | flag << 32);
}

/* Lines beyond the data get a fresh flag: see GYRE_CUDA_LL_CLEAN_PERIOD. */
static __device__ __forceinline__ void ll_clean(const struct block &block,
                                                const struct line_step &line,
                                                const struct line_operand &out, uint32_t n_lines)
{
    const uint32_t n_all = block.common.slot_bytes / LL_LINE_BYTES;
    uint32_t i = threadIdx.x;
    (void)line;
    while (i < n_lines)
        i += blockDim.x;
    for (; i < n_all; i += blockDim.x)
        ll_store(out.base, i, 0, out.flag);
}

template <int DTYPE, int OP> struct ll_step {
    /* Lines thread + k * n_threads of all inputs, reduced in order. Returns false when aborted. */
    template <int MAX_INS, int UNROLL>
    static __device__ __forceinline__ bool reduce_lines(const struct block &block,
                                                        const struct line_step &line)
    {
        const struct gyre_cuda_step *step = line.step;
        const uint32_t n_ins = step->n_ins;
        const uint32_t n_lines = (line.n_bytes + LL_DATA_BYTES - 1) / LL_DATA_BYTES;
        struct line_operand ins[MAX_INS];
#pragma unroll
        for (int i = 0; i < MAX_INS; i++)
            if (i < (int)n_ins)
                ins[i] = resolve_operand<GYRE_PROTO_LL>(block, line, step->ins[i],
                                                        (step->recv_mask >> i & 1) != 0);
        for (uint32_t first = threadIdx.x; first < n_lines; first += blockDim.x * UNROLL) {
            ulonglong2 halves[MAX_INS][UNROLL];
            uint64_t results[UNROLL];
#pragma unroll
            for (int i = 0; i < MAX_INS; i++)
#pragma unroll
                for (int k = 0; k < UNROLL; k++) {
                    const uint32_t at = first + k * blockDim.x;
                    if (i >= (int)n_ins || at >= n_lines)
                        continue;
                    if (ins[i].is_connection)
                        halves[i][k] = load_line(ins[i].base + (size_t)at * LL_LINE_BYTES);
                    else
                        halves[i][k].x = load_8(ins[i].base + (size_t)at * LL_DATA_BYTES,
                                                line.n_bytes - at * LL_DATA_BYTES);
                }
#pragma unroll
            for (int i = 0; i < MAX_INS; i++)
#pragma unroll
                for (int k = 0; k < UNROLL; k++) {
                    const uint32_t at = first + k * blockDim.x;
                    if (i >= (int)n_ins || at >= n_lines || !ins[i].is_connection)
                        continue;
                    uint32_t n_polls = 0;
                    while (!ll_is_there(halves[i][k], ins[i].flag)) {
                        if (must_stop(block.common, n_polls))
                            return false;
                        halves[i][k] = load_line(ins[i].base + (size_t)at * LL_LINE_BYTES);
                    }
                    halves[i][k].x = ll_data(halves[i][k]);
                }
#pragma unroll
            for (int k = 0; k < UNROLL; k++) {
                uint64_t data[MAX_INS];
#pragma unroll
                for (int i = 0; i < MAX_INS; i++)
                    data[i] = halves[i][k].x;
                results[k] = combine<MAX_INS>(data, n_ins, line.arithmetic);
            }
            for (uint32_t o = 0; o < step->n_outs; o++) {
                const struct line_operand out = resolve_operand<GYRE_PROTO_LL>(
                    block, line, step->outs[o], (step->send_mask >> o & 1) != 0);
#pragma unroll
                for (int k = 0; k < UNROLL; k++) {
                    const uint32_t at = first + k * blockDim.x;
                    if (at >= n_lines)
                        continue;
                    if (out.is_connection)
                        ll_store(out.base, at, results[k], out.flag);
                    else
                        store_8(out.base + (size_t)at * LL_DATA_BYTES, results[k],
                                line.n_bytes - at * LL_DATA_BYTES);
                }
            }
        }
        return true;
    }

    template <int MAX_INS>
    static __device__ __forceinline__ uint64_t combine(const uint64_t *data, uint32_t n_ins,
                                                       const struct arithmetic &arithmetic)
    {
        if constexpr (DTYPE == DTYPE_NONE) {
            return data[0];
        } else {
            if (n_ins == 1 && arithmetic.scale_mask == 0 && arithmetic.divisor <= 1)
                return data[0];
            reducer<DTYPE, OP, LL_DATA_BYTES> result;
            pack<LL_DATA_BYTES> from;
            uint64_t whole;
            memcpy(&from, &data[0], LL_DATA_BYTES);
            result.begin(from, arithmetic.scale_mask & 1, arithmetic.scalar);
#pragma unroll
            for (int i = 1; i < MAX_INS; i++)
                if (i < (int)n_ins) {
                    memcpy(&from, &data[i], LL_DATA_BYTES);
                    result.add(from, arithmetic.scale_mask >> i & 1, arithmetic.scalar);
                }
            from = result.end(arithmetic.divisor);
            memcpy(&whole, &from, LL_DATA_BYTES);
            return whole;
        }
    }

    /* The rare cleaning of whole slots, apart from the hot loop. */
    static __device__ __forceinline__ void clean(const struct block &block,
                                                 const struct line_step &line)
    {
        const struct gyre_cuda_step *step = line.step;
        const uint32_t n_lines = (line.n_bytes + LL_DATA_BYTES - 1) / LL_DATA_BYTES;
        for (uint32_t o = 0; o < step->n_outs; o++) {
            if ((step->send_mask >> o & 1) == 0)
                continue;
            const struct connection *own = &block.connections[step->outs[o].ref];
            if (gyre_cuda_ll_cleans(slot_number(own, line.tile, step->outs[o].use), own->depth))
                ll_clean(block, line,
                         resolve_operand<GYRE_PROTO_LL>(block, line, step->outs[o], true), n_lines);
        }
    }

    static __device__ __forceinline__ bool run(const struct block &block,
                                               const struct line_step &line)
    {
        const uint32_t n_ins = line.step->n_ins;
        bool goes_on;
        if (n_ins == 1)
            goes_on = reduce_lines<1, 4>(block, line);
        else if (DTYPE == DTYPE_NONE)
            goes_on = false;
        else if (n_ins == 2)
            goes_on = reduce_lines<2, 2>(block, line);
        else if (n_ins <= 4)
            goes_on = reduce_lines<4, 2>(block, line);
        else
            goes_on = reduce_lines<GYRE_STEP_MAX_INS, 1>(block, line);
        if (goes_on)
            clean(block, line);
        return goes_on;
    }
};

#endif
