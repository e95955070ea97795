/* SPDX-License-Identifier: Apache-2.0
 *
 * Protocol LL128: lines of 128 bytes, 120 of data and an 8-byte flag at the end, stored by eight
 * lanes in one instruction. A warp moves four lines at a time and stays converged.
 */
#ifndef GYRE_KERNELS_CUDA_LL128_CUH
#define GYRE_KERNELS_CUDA_LL128_CUH

#include "kernels/cuda/lines.cuh"

#define LL128_LINE_BYTES 128
#define LL128_DATA_BYTES 120
#define LL128_LANES      8
#define LL128_LINES      4 /* of a warp */

/* What a lane holds of a line: 16 bytes, the last lane 8 and the flag. */
struct ll128_place {
    uint32_t line;       /* of the slot */
    uint32_t data_bytes; /* offset of the lane's bytes in the chunk */
    uint32_t n_valid;    /* bytes of them that exist */
    bool is_there;       /* the line exists */
};

template <int DTYPE, int OP> struct ll128_step {
    static __device__ __forceinline__ struct ll128_place place(uint32_t group, uint32_t lane,
                                                               uint32_t n_bytes, uint32_t n_lines)
    {
        struct ll128_place own;
        const uint32_t part = lane % LL128_LANES;
        const uint32_t width = part == LL128_LANES - 1 ? 8 : 16;
        own.line = group * LL128_LINES + lane / LL128_LANES;
        own.is_there = own.line < n_lines;
        own.data_bytes = own.line * LL128_DATA_BYTES + part * 16;
        own.n_valid = own.is_there && own.data_bytes < n_bytes
                          ? (uint32_t)gyre_cuda_min(width, n_bytes - own.data_bytes)
                          : 0;
        return own;
    }

    static __device__ __forceinline__ ulonglong2 load_chunk(const unsigned char *base,
                                                            const struct ll128_place &own)
    {
        const unsigned char *from = base + own.data_bytes;
        ulonglong2 value = {0, 0};
        if (own.n_valid > 0)
            value.x = load_8(from, own.n_valid);
        if (own.n_valid > 8)
            value.y = load_8(from + 8, own.n_valid - 8);
        return value;
    }

    static __device__ __forceinline__ void store_chunk(unsigned char *base,
                                                       const struct ll128_place &own,
                                                       ulonglong2 value)
    {
        unsigned char *to = base + own.data_bytes;
        if (own.n_valid > 0)
            store_8(to, value.x, own.n_valid);
        if (own.n_valid > 8)
            store_8(to + 8, value.y, own.n_valid - 8);
    }

    static __device__ __forceinline__ ulonglong2 load_slot(const unsigned char *base,
                                                           const struct ll128_place &own,
                                                           uint32_t lane)
    {
        return load_line(base + (size_t)own.line * LL128_LINE_BYTES + lane % LL128_LANES * 16);
    }

    /* All lanes of the warp. Returns false when aborted. */
    static __device__ __forceinline__ bool receive(const struct block &block,
                                                   const struct line_operand &in,
                                                   const struct ll128_place &own, uint32_t lane,
                                                   ulonglong2 *value)
    {
        const bool has_flag = own.is_there && lane % LL128_LANES == LL128_LANES - 1;
        uint32_t n_polls = 0;
        while (__any_sync(0xffffffffU, has_flag && value->y != in.flag)) {
            if (__any_sync(0xffffffffU, must_stop(block.common, n_polls)))
                return false;
            if (own.is_there)
                *value = load_slot(in.base, own, lane);
        }
        if (own.is_there)
            *value = load_slot(in.base, own, lane);
        return true;
    }

    static __device__ __forceinline__ pack<16> as_pack(ulonglong2 value)
    {
        pack<16> own;
        memcpy(&own, &value, 16);
        return own;
    }

    template <int MAX_INS>
    static __device__ __forceinline__ ulonglong2 combine(const ulonglong2 *values, uint32_t n_ins,
                                                         const struct arithmetic &arithmetic)
    {
        if constexpr (DTYPE == DTYPE_NONE) {
            return values[0];
        } else {
            if (n_ins == 1 && arithmetic.scale_mask == 0 && arithmetic.divisor <= 1)
                return values[0];
            reducer<DTYPE, OP, 16> result;
            result.begin(as_pack(values[0]), arithmetic.scale_mask & 1, arithmetic.scalar);
#pragma unroll
            for (int i = 1; i < MAX_INS; i++)
                if (i < (int)n_ins)
                    result.add(as_pack(values[i]), arithmetic.scale_mask >> i & 1,
                               arithmetic.scalar);
            const pack<16> whole = result.end(arithmetic.divisor);
            ulonglong2 value;
            memcpy(&value, &whole, 16);
            return value;
        }
    }

    static __device__ __forceinline__ void send(const struct block &block,
                                                const struct line_step &line,
                                                const struct ll128_place *places,
                                                const ulonglong2 *values, int n, uint32_t lane)
    {
        const struct gyre_cuda_step *step = line.step;
        const bool is_last = lane % LL128_LANES == LL128_LANES - 1;
        for (uint32_t o = 0; o < step->n_outs; o++) {
            const struct line_operand out = resolve_operand<GYRE_PROTO_LL128>(
                block, line, step->outs[o], (step->send_mask >> o & 1) != 0);
#pragma unroll
            for (int k = 0; k < n; k++) {
                const struct ll128_place &own = places[k];
                if (!out.is_connection) {
                    store_chunk(out.base, own, values[k]);
                } else {
                    /* The lanes of a line store together, whatever they did before. */
                    __syncwarp();
                    if (own.is_there)
                        store_line(out.base + (size_t)own.line * LL128_LINE_BYTES +
                                       lane % LL128_LANES * 16,
                                   values[k].x, is_last ? out.flag : values[k].y);
                }
            }
        }
    }

    template <int MAX_INS, int UNROLL>
    static __device__ __forceinline__ bool reduce_lines(const struct block &block,
                                                        const struct line_step &line)
    {
        const struct gyre_cuda_step *step = line.step;
        const uint32_t lane = threadIdx.x % 32;
        const uint32_t warp = threadIdx.x / 32;
        const uint32_t n_warps = blockDim.x / 32;
        const uint32_t n_ins = step->n_ins;
        const uint32_t n_lines = (line.n_bytes + LL128_DATA_BYTES - 1) / LL128_DATA_BYTES;
        const uint32_t n_groups = (n_lines + LL128_LINES - 1) / LL128_LINES;
        struct line_operand ins[MAX_INS];
#pragma unroll
        for (int i = 0; i < MAX_INS; i++)
            if (i < (int)n_ins)
                ins[i] = resolve_operand<GYRE_PROTO_LL128>(block, line, step->ins[i],
                                                           (step->recv_mask >> i & 1) != 0);
        for (uint32_t first = warp; first < n_groups; first += n_warps * UNROLL) {
            ulonglong2 values[UNROLL][MAX_INS];
            ulonglong2 results[UNROLL];
            struct ll128_place places[UNROLL];
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                places[k] = place(first + k * n_warps, lane, line.n_bytes, n_lines);
#pragma unroll
            for (int i = 0; i < MAX_INS; i++)
#pragma unroll
                for (int k = 0; k < UNROLL; k++) {
                    if (i >= (int)n_ins)
                        continue;
                    if (!ins[i].is_connection)
                        values[k][i] = load_chunk(ins[i].base, places[k]);
                    else if (places[k].is_there)
                        values[k][i] = load_slot(ins[i].base, places[k], lane);
                }
#pragma unroll
            for (int i = 0; i < MAX_INS; i++)
#pragma unroll
                for (int k = 0; k < UNROLL; k++)
                    if (i < (int)n_ins && ins[i].is_connection &&
                        !receive(block, ins[i], places[k], lane, &values[k][i]))
                        return false;
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                results[k] = combine<MAX_INS>(values[k], n_ins, line.arithmetic);
            send(block, line, places, results, UNROLL, lane);
        }
        return true;
    }

    static __device__ __forceinline__ bool run(const struct block &block,
                                               const struct line_step &line)
    {
        const uint32_t n_ins = line.step->n_ins;
        if (n_ins == 1)
            return reduce_lines<1, 4>(block, line);
        if (DTYPE == DTYPE_NONE)
            return false;
        if (n_ins == 2)
            return reduce_lines<2, 2>(block, line);
        if (n_ins <= 4)
            return reduce_lines<4, 1>(block, line);
        return reduce_lines<GYRE_STEP_MAX_INS, 1>(block, line);
    }
};

#endif
