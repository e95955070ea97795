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

#define LL_GROUP 4 /* inputs whose lines are awaited at the same time */

template <int DTYPE, int OP> struct ll_step {
    static const int proto = GYRE_PROTO_LL;

    /* Load the line again until it is there. Returns false when aborted. */
    static __device__ __forceinline__ bool receive(const struct gyre_cuda_common &common,
                                                   const struct line_operand &in, uint32_t at,
                                                   ulonglong2 *halves)
    {
        uint32_t n_polls = 0;
        while (!ll_is_there(*halves, in.flag)) {
            if (must_stop(common, n_polls))
                return false;
            *halves = load_line(in.base + (size_t)at * LL_LINE_BYTES);
        }
        return true;
    }

    /* Lines `first`, `first` + blockDim.x, ... of a group of inputs. Returns false when aborted. */
    template <int UNROLL>
    static __device__ __forceinline__ bool
    gather(const struct block &block, const struct line_step &line, uint32_t group, uint32_t first,
           uint32_t n_lines, uint64_t (*data)[UNROLL])
    {
        ulonglong2 halves[LL_GROUP][UNROLL];
#pragma unroll
        for (int i = 0; i < LL_GROUP; i++) {
            if (group + i >= line.n_ins)
                break;
            const unsigned char *base = line.operands[group + i].base;
#pragma unroll
            for (int k = 0; k < UNROLL; k++) {
                const uint32_t at = first + k * blockDim.x;
                if (at >= n_lines)
                    continue;
                if ((line.recv_mask >> (group + i) & 1) != 0)
                    halves[i][k] = load_line(base + (size_t)at * LL_LINE_BYTES);
                else
                    data[i][k] = load_8(base + (size_t)at * LL_DATA_BYTES,
                                        line.n_bytes - at * LL_DATA_BYTES);
            }
        }
#pragma unroll
        for (int i = 0; i < LL_GROUP; i++) {
            if (group + i >= line.n_ins)
                break;
            if ((line.recv_mask >> (group + i) & 1) == 0)
                continue;
            const struct line_operand in = line.operands[group + i];
#pragma unroll
            for (int k = 0; k < UNROLL; k++) {
                const uint32_t at = first + k * blockDim.x;
                if (at >= n_lines)
                    continue;
                if (!receive(block.common, in, at, &halves[i][k]))
                    return false;
                data[i][k] = ll_data(halves[i][k]);
            }
        }
        return true;
    }

    template <int UNROLL>
    static __device__ __forceinline__ void scatter(const struct line_step &line, uint32_t first,
                                                   uint32_t n_lines, const uint64_t *results)
    {
        for (uint32_t o = 0; o < line.n_outs; o++) {
            const struct line_operand out = line.operands[LINE_FIRST_OUT + o];
            const bool is_send = (line.send_mask >> o & 1) != 0;
#pragma unroll
            for (int k = 0; k < UNROLL; k++) {
                const uint32_t at = first + k * blockDim.x;
                if (at >= n_lines)
                    continue;
                if (is_send)
                    ll_store(out.base, at, results[k], out.flag);
                else
                    store_8(out.base + (size_t)at * LL_DATA_BYTES, results[k],
                            line.n_bytes - at * LL_DATA_BYTES);
            }
        }
    }

    /* One input. */
    template <int UNROLL>
    static __device__ __forceinline__ bool
    copy_lines(const struct block &block, const struct line_step &line, uint32_t n_lines)
    {
        const struct line_operand in = line.operands[0];
        const bool is_recv = (line.recv_mask & 1) != 0;
        const uint32_t n_bytes = line.n_bytes;
        for (uint32_t first = threadIdx.x; first < n_lines; first += blockDim.x * UNROLL) {
            uint64_t data[UNROLL];
            if (is_recv) {
                ulonglong2 halves[UNROLL];
#pragma unroll
                for (int k = 0; k < UNROLL; k++)
                    if (first + k * blockDim.x < n_lines)
                        halves[k] =
                            load_line(in.base + (size_t)(first + k * blockDim.x) * LL_LINE_BYTES);
#pragma unroll
                for (int k = 0; k < UNROLL; k++) {
                    const uint32_t at = first + k * blockDim.x;
                    if (at < n_lines && !receive(block.common, in, at, &halves[k]))
                        return false;
                    data[k] = ll_data(halves[k]);
                }
            } else {
#pragma unroll
                for (int k = 0; k < UNROLL; k++) {
                    const uint32_t at = (first + k * blockDim.x) * LL_DATA_BYTES;
                    if (at < n_bytes)
                        data[k] = load_8(in.base + at, n_bytes - at);
                }
            }
            scatter<UNROLL>(line, first, n_lines, data);
        }
        return true;
    }

    static __device__ __forceinline__ pack<LL_DATA_BYTES> as_pack(uint64_t data)
    {
        pack<LL_DATA_BYTES> own;
        memcpy(&own, &data, LL_DATA_BYTES);
        return own;
    }

    template <int UNROLL>
    static __device__ __forceinline__ bool
    reduce_lines(const struct block &block, const struct line_step &line, uint32_t n_lines)
    {
        const struct arithmetic arithmetic = line_arithmetic(block, line);
        const uint32_t scale_mask = arithmetic.scale_mask;
        const uint64_t scalar = arithmetic.scalar;
        for (uint32_t first = threadIdx.x; first < n_lines; first += blockDim.x * UNROLL) {
            reducer<DTYPE, OP, LL_DATA_BYTES> running[UNROLL];
            uint64_t results[UNROLL];
            for (uint32_t group = 0; group < line.n_ins; group += LL_GROUP) {
                uint64_t data[LL_GROUP][UNROLL];
                if (!gather<UNROLL>(block, line, group, first, n_lines, data))
                    return false;
#pragma unroll
                for (int i = 0; i < LL_GROUP; i++) {
                    const uint32_t in = group + i;
                    if (in >= line.n_ins)
                        break;
                    const bool is_scaled = (scale_mask >> in & 1) != 0;
#pragma unroll
                    for (int k = 0; k < UNROLL; k++)
                        if (in == 0)
                            running[k].begin(as_pack(data[i][k]), is_scaled, scalar);
                        else
                            running[k].add(as_pack(data[i][k]), is_scaled, scalar);
                }
            }
#pragma unroll
            for (int k = 0; k < UNROLL; k++) {
                const pack<LL_DATA_BYTES> whole = running[k].end(arithmetic.divisor);
                memcpy(&results[k], &whole, LL_DATA_BYTES);
            }
            scatter<UNROLL>(line, first, n_lines, results);
        }
        return true;
    }

    /* Lines beyond the data get a fresh flag: see GYRE_CUDA_LL_CLEAN_PERIOD. */
    static __device__ __noinline__ void clean(const struct gyre_cuda_common &common,
                                              const struct line_operand *operands, uint32_t mask,
                                              uint32_t n_lines)
    {
        const uint32_t n_all = common.slot_bytes / LL_LINE_BYTES;
        uint32_t first = threadIdx.x;
        while (first < n_lines)
            first += blockDim.x;
        for (uint32_t o = 0; mask >> o != 0; o++)
            for (uint32_t at = first; (mask >> o & 1) != 0 && at < n_all; at += blockDim.x)
                ll_store(operands[LINE_FIRST_OUT + o].base, at, 0,
                         operands[LINE_FIRST_OUT + o].flag);
    }

    static __device__ __forceinline__ bool run(const struct block &block,
                                               const struct line_step &line)
    {
        const uint32_t n_lines = (line.n_bytes + LL_DATA_BYTES - 1) / LL_DATA_BYTES;
        bool goes_on;
        if constexpr (DTYPE == DTYPE_NONE) {
            goes_on = copy_lines<4>(block, line, n_lines);
        } else {
            if (line.n_ins == 1 && line.scale_mask == 0 && line.divisor <= 1)
                goes_on = copy_lines<4>(block, line, n_lines);
            else
                goes_on = reduce_lines<2>(block, line, n_lines);
        }
        if (line.clean_mask != 0 && goes_on)
            clean(block.common, line.operands, line.clean_mask, n_lines);
        return goes_on;
    }
};

#endif
