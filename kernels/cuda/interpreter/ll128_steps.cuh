/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_KERNELS_CUDA_LL128_STEPS_CUH
#define GYRE_KERNELS_CUDA_LL128_STEPS_CUH

#include "kernels/cuda/interpreter/lines.cuh"
#include "kernels/cuda/protocol/ll128.cuh"

#define LL128_GROUP 4 /* inputs awaited together */

template <int DTYPE, int OP> struct ll128_step {
    static const int proto = GYRE_PROTO_LL128;

    /* This lane's part. */
    template <int UNROLL, int GROUP>
    static __device__ __forceinline__ bool
    gather(const struct block &block, const struct line_step &line, uint32_t group,
           const struct line_place *places, uint32_t lane, ulonglong2 (*values)[UNROLL])
    {
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            if (group + i >= line.n_ins)
                break;
            unsigned char *base = line.operands[group + i].base;
            const bool is_recv = (line.recv_mask >> (group + i) & 1) != 0;
#pragma unroll
            for (int k = 0; k < UNROLL; k++) {
                if (!is_recv)
                    values[i][k] = ll128_format::load_chunk(base, places[k]);
                else if (places[k].exists)
                    values[i][k] = load_line(ll128_format::in_slot(base, places[k], lane));
            }
        }
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            if (group + i >= line.n_ins)
                break;
            if ((line.recv_mask >> (group + i) & 1) == 0)
                continue;
            const struct line_operand in = line.operands[group + i];
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                if (!ll128_format::receive(block.common, in, places[k], lane, &values[i][k]))
                    return false;
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                ll128_format::clear(in.base, places[k], lane);
        }
        return true;
    }

    template <int UNROLL>
    static __device__ __forceinline__ void scatter(const struct line_step &line,
                                                   const struct line_place *places, uint32_t lane,
                                                   const ulonglong2 *values)
    {
        const bool is_last = lane % LL128_LANES == LL128_LANES - 1;
        for (uint32_t o = 0; o < line.n_outs; o++) {
            const struct line_operand out = line.operands[LINE_FIRST_OUT + o];
            const bool is_send = (line.send_mask >> o & 1) != 0;
#pragma unroll
            for (int k = 0; k < UNROLL; k++) {
                if (!is_send) {
                    ll128_format::store_chunk(out.base, places[k], values[k]);
                    continue;
                }
                __syncwarp(); /* the lanes of a line must store it together */
                if (places[k].exists)
                    store_line(ll128_format::in_slot(out.base, places[k], lane), values[k].x,
                               is_last ? out.flag : values[k].y);
            }
        }
    }

    static __device__ __forceinline__ pack<16> as_pack(ulonglong2 value)
    {
        pack<16> own;
        memcpy(&own, &value, 16);
        return own;
    }

    template <int UNROLL, bool REDUCES>
    static __device__ __forceinline__ bool run_round(const struct block &block,
                                                     const struct line_step &line,
                                                     const struct line_place *places, uint32_t lane)
    {
        ulonglong2 results[UNROLL];
        if constexpr (!REDUCES) {
            if (!gather<UNROLL, 1>(block, line, 0, places, lane, &results))
                return false;
        } else {
            ulonglong2 values[LL128_GROUP][UNROLL];
            reducer<DTYPE, OP, 16> running[UNROLL];
            for (uint32_t group = 0; group < line.n_ins; group += LL128_GROUP) {
                if (!gather<UNROLL, LL128_GROUP>(block, line, group, places, lane, values))
                    return false;
#pragma unroll
                for (int i = 0; i < LL128_GROUP; i++) {
                    const uint32_t in = group + i;
                    if (in >= line.n_ins)
                        break;
                    const bool is_scaled = (line.scale_mask >> in & 1) != 0;
#pragma unroll
                    for (int k = 0; k < UNROLL; k++)
                        if (in == 0)
                            running[k].begin(as_pack(values[i][k]), is_scaled, block.work.scalar);
                        else
                            running[k].add(as_pack(values[i][k]), is_scaled, block.work.scalar);
                }
            }
#pragma unroll
            for (int k = 0; k < UNROLL; k++) {
                const pack<16> whole = running[k].end(line.divisor);
                memcpy(&results[k], &whole, 16);
            }
        }
        scatter<UNROLL>(line, places, lane, results);
        return true;
    }

    template <int UNROLL, bool REDUCES>
    static __device__ __forceinline__ bool run_rounds(const struct block &block,
                                                      const struct line_step &line)
    {
        const uint32_t lane = threadIdx.x % 32;
        const uint32_t n_warps = blockDim.x / 32;
        const uint32_t n_lines = (line.n_bytes + LL128_DATA_BYTES - 1) / LL128_DATA_BYTES;
        const uint32_t n_groups = (n_lines + LL128_LINES - 1) / LL128_LINES;
        for (uint32_t first = threadIdx.x / 32; first < n_groups; first += n_warps * UNROLL) {
            struct line_place places[UNROLL];
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                places[k] = ll128_format::place(first + k * n_warps, lane, line.n_bytes, n_lines);
            if (!run_round<UNROLL, REDUCES>(block, line, places, lane))
                return false;
        }
        return true;
    }

    static __device__ __forceinline__ bool first_line_has_arrived(const struct line_operand &in)
    {
        return load_relaxed_sys((const uint64_t *)(in.base + LL128_DATA_BYTES)) == in.flag;
    }

    static __device__ __forceinline__ bool run(const struct block &block,
                                               const struct line_step &line)
    {
        if constexpr (DTYPE == DTYPE_NONE) {
            return run_rounds<4, false>(block, line);
        } else {
            if (line.n_ins == 1 && line.scale_mask == 0 && line.divisor <= 1)
                return run_rounds<4, false>(block, line);
            return run_rounds < sizeof(typename element<DTYPE>::stored) == 1 ? 1 : 2,
                   true > (block, line);
        }
    }
};

#endif
