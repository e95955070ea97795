/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps in protocols with per-thread lines (LL, LAMPORT): one thread stores a whole line, and waits
 * for its own lines whatever the other threads do. FORMAT says what a line looks like:
 *
 *   type         the data of a line in registers; `bytes` of them
 *   load, store  the data of one line from or to a chunk, of which n_valid bytes exist
 *   send         stores the data into line `at` of a slot
 *   has_arrived  is the line valid?
 *   data         the data of a valid line
 *   clear        clears a line after its data were used
 *   finish       changes a result before it is stored or sent
 *   clean        writes the lines of a slot beyond the data, for outputs in line_head.clean_mask
 */
#ifndef GYRE_KERNELS_CUDA_PER_THREAD_LINES_CUH
#define GYRE_KERNELS_CUDA_PER_THREAD_LINES_CUH

#include "kernels/cuda/interpreter/lines.cuh"
#include "kernels/cuda/protocol/lamport.cuh"
#include "kernels/cuda/protocol/ll.cuh"

#define LINE_GROUP 4 /* inputs awaited together */

template <class FORMAT, int DTYPE, int OP> struct per_thread_step {
    using type = typename FORMAT::type;
    static const int proto = FORMAT::proto;
    static const int bytes = FORMAT::bytes;

    /* Lines `first`, `first` + blockDim.x, ... */
    template <int UNROLL>
    static __device__ __forceinline__ bool
    gather(const struct block &block, const struct line_step &line, uint32_t group, uint32_t first,
           uint32_t n_lines, type (*data)[UNROLL])
    {
        ulonglong2 halves[LINE_GROUP][UNROLL];
#pragma unroll
        for (int i = 0; i < LINE_GROUP; i++) {
            if (group + i >= line.n_ins)
                break;
            const unsigned char *base = line.operands[group + i].base;
#pragma unroll
            for (int k = 0; k < UNROLL; k++) {
                const uint32_t at = first + k * blockDim.x;
                if (at >= n_lines)
                    continue;
                if ((line.recv_mask >> (group + i) & 1) != 0)
                    halves[i][k] = load_line(base + (size_t)at * LINE_BYTES);
                else
                    data[i][k] = FORMAT::load(base + (size_t)at * bytes, line.n_bytes - at * bytes);
            }
        }
#pragma unroll
        for (int i = 0; i < LINE_GROUP; i++) {
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
                if (!receive_line<FORMAT>(block.common, in, at, &halves[i][k]))
                    return false;
                data[i][k] = FORMAT::data(halves[i][k]);
            }
        }
        return true;
    }

    template <int UNROLL>
    static __device__ __forceinline__ void scatter(const struct line_step &line, uint32_t first,
                                                   uint32_t n_lines, const type *results)
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
                    FORMAT::send(out.base, at, results[k], out.flag);
                else
                    FORMAT::store(out.base + (size_t)at * bytes, results[k],
                                  line.n_bytes - at * bytes);
            }
        }
    }

    template <int UNROLL>
    static __device__ __forceinline__ bool
    copy_lines(const struct block &block, const struct line_step &line, uint32_t n_lines)
    {
        const struct line_operand in = line.operands[0];
        const bool is_recv = (line.recv_mask & 1) != 0;
        const uint32_t n_bytes = line.n_bytes;
        for (uint32_t first = threadIdx.x; first < n_lines; first += blockDim.x * UNROLL) {
            type data[UNROLL];
            if (is_recv) {
                ulonglong2 halves[UNROLL];
#pragma unroll
                for (int k = 0; k < UNROLL; k++)
                    if (first + k * blockDim.x < n_lines)
                        halves[k] =
                            load_line(in.base + (size_t)(first + k * blockDim.x) * LINE_BYTES);
#pragma unroll
                for (int k = 0; k < UNROLL; k++) {
                    const uint32_t at = first + k * blockDim.x;
                    if (at < n_lines && !receive_line<FORMAT>(block.common, in, at, &halves[k]))
                        return false;
                    data[k] = FORMAT::data(halves[k]);
                }
            } else {
#pragma unroll
                for (int k = 0; k < UNROLL; k++) {
                    const uint32_t at = (first + k * blockDim.x) * bytes;
                    if (at < n_bytes)
                        data[k] = FORMAT::load(in.base + at, n_bytes - at);
                }
            }
            scatter<UNROLL>(line, first, n_lines, data);
        }
        return true;
    }

    static __device__ __forceinline__ pack<bytes> as_pack(type data)
    {
        pack<bytes> own;
        memcpy(&own, &data, bytes);
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
            reducer<DTYPE, OP, bytes> running[UNROLL];
            type results[UNROLL];
            for (uint32_t group = 0; group < line.n_ins; group += LINE_GROUP) {
                type data[LINE_GROUP][UNROLL];
                if (!gather<UNROLL>(block, line, group, first, n_lines, data))
                    return false;
#pragma unroll
                for (int i = 0; i < LINE_GROUP; i++) {
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
                const pack<bytes> whole = running[k].end(arithmetic.divisor);
                memcpy(&results[k], &whole, bytes);
                results[k] = FORMAT::finish(results[k]);
            }
            scatter<UNROLL>(line, first, n_lines, results);
        }
        return true;
    }

    static __device__ __forceinline__ bool first_line_has_arrived(const struct line_operand &in)
    {
        return FORMAT::has_arrived(load_line(in.base), in.flag);
    }

    static __device__ __forceinline__ bool run(const struct block &block,
                                               const struct line_step &line)
    {
        const uint32_t n_lines = (line.n_bytes + bytes - 1) / bytes;
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
            FORMAT::clean(block.common, line.operands, line.clean_mask, n_lines);
        return goes_on;
    }
};

template <int DTYPE, int OP> using ll_step = per_thread_step<ll_format, DTYPE, OP>;
template <int DTYPE, int OP> using lamport_step = per_thread_step<lamport_format, DTYPE, OP>;

#endif
