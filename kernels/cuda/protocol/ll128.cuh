/* SPDX-License-Identifier: Apache-2.0
 *
 * Protocol LL128: lines of 128 bytes, 120 of data and an 8-byte flag at the end, stored by eight
 * lanes in one instruction. A warp moves four lines at a time and stays converged.
 */
#ifndef GYRE_KERNELS_CUDA_LL128_CUH
#define GYRE_KERNELS_CUDA_LL128_CUH

#include "kernels/cuda/interpreter/lines.cuh"

#define LL128_LINE_BYTES 128
#define LL128_DATA_BYTES 120
#define LL128_LANES      8
#define LL128_LINES      4 /* of a warp */

#define LL128_GROUP      4 /* inputs whose lines are awaited at the same time */

template <int DTYPE, int OP> struct ll128_step {
    static const int proto = GYRE_PROTO_LL128;

    static __device__ __forceinline__ struct line_place place(uint32_t group, uint32_t lane,
                                                              uint32_t n_bytes, uint32_t n_lines)
    {
        struct line_place own;
        const uint32_t part = lane % LL128_LANES;
        const int32_t width = part == LL128_LANES - 1 ? 8 : 16;
        own.line = group * LL128_LINES + lane / LL128_LANES;
        own.exists = own.line < n_lines;
        own.data_bytes = own.line * LL128_DATA_BYTES + part * 16;
        own.n_valid = (uint32_t)max(min((int32_t)(n_bytes - own.data_bytes), width), 0);
        return own;
    }

    static __device__ __forceinline__ ulonglong2 load_chunk(const unsigned char *base,
                                                            const struct line_place &own)
    {
        const unsigned char *from = base + own.data_bytes;
        ulonglong2 value = {0, 0};
        if ((((uint32_t)(uintptr_t)from | own.n_valid) & 7U) != 0)
            return load_part(from, own.n_valid);
        if (own.n_valid > 0)
            value.x = *(const uint64_t *)from;
        if (own.n_valid > 8)
            value.y = *(const uint64_t *)(from + 8);
        return value;
    }

    static __device__ __forceinline__ void
    store_chunk(unsigned char *base, const struct line_place &own, ulonglong2 value)
    {
        unsigned char *to = base + own.data_bytes;
        if ((((uint32_t)(uintptr_t)to | own.n_valid) & 7U) != 0) {
            store_part(to, value, own.n_valid);
            return;
        }
        if (own.n_valid > 0)
            *(uint64_t *)to = value.x;
        if (own.n_valid > 8)
            *(uint64_t *)(to + 8) = value.y;
    }

    static __device__ __forceinline__ unsigned char *
    in_slot(unsigned char *base, const struct line_place &own, uint32_t lane)
    {
        return base + (size_t)own.line * LL128_LINE_BYTES + lane % LL128_LANES * 16;
    }

    /* All lanes of the warp. Returns false when aborted. */
    static __device__ __forceinline__ bool receive(const struct gyre_cuda_common &common,
                                                   const struct line_operand &in,
                                                   const struct line_place &own, uint32_t lane,
                                                   ulonglong2 *value)
    {
        const bool has_flag = own.exists && lane % LL128_LANES == LL128_LANES - 1;
        uint32_t n_polls = 0;
        while (__any_sync(0xffffffffU, has_flag && value->y != in.flag)) {
            if (__any_sync(0xffffffffU, must_stop(common, n_polls)))
                return false;
            if (own.exists)
                *value = load_line(in_slot(in.base, own, lane));
        }
        if (own.exists)
            *value = load_line(in_slot(in.base, own, lane));
        return true;
    }

    /* After receive(): the slots are LAMPORT's too. */
    static __device__ __forceinline__ void clear(unsigned char *base, const struct line_place &own,
                                                 uint32_t lane)
    {
        if (own.exists)
            clear_line(in_slot(base, own, lane));
    }

    /* This lane's part of a group of inputs. Returns false when aborted. */
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
                    values[i][k] = load_chunk(base, places[k]);
                else if (places[k].exists)
                    values[i][k] = load_line(in_slot(base, places[k], lane));
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
                if (!receive(block.common, in, places[k], lane, &values[i][k]))
                    return false;
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                clear(in.base, places[k], lane);
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
                    store_chunk(out.base, places[k], values[k]);
                    continue;
                }
                __syncwarp(); /* the lanes of a line store together, whatever they did before */
                if (places[k].exists)
                    store_line(in_slot(out.base, places[k], lane), values[k].x,
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

    /* One round of the warp: UNROLL groups of lines, of all inputs, to all outputs. */
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
                places[k] = place(first + k * n_warps, lane, line.n_bytes, n_lines);
            if (!run_round<UNROLL, REDUCES>(block, line, places, lane))
                return false;
        }
        return true;
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
