/* SPDX-License-Identifier: Apache-2.0
 *
 * LL128: lines of 128 bytes, 120 bytes of data and a flag of 8 bytes at the end. Eight warp lanes
 * store a line in one instruction, so a warp stays converged.
 */
#ifndef GYRE_KERNELS_CUDA_LL128_CUH
#define GYRE_KERNELS_CUDA_LL128_CUH

#include "kernels/cuda/protocol/line.cuh"

#define LL128_LINE_BYTES 128
#define LL128_DATA_BYTES 120
#define LL128_LANES      8
#define LL128_LINES      4

struct ll128_format {
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

    /* All lanes of the warp. */
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

    /* LAMPORT uses the same slots, so lines are cleared. */
    static __device__ __forceinline__ void clear(unsigned char *base, const struct line_place &own,
                                                 uint32_t lane)
    {
        if (own.exists)
            clear_line(in_slot(base, own, lane));
    }
};

template <> struct line_mover<GYRE_PROTO_LL128> {
    using format = ll128_format;
    static const int bytes = 16;

    static __device__ __forceinline__ uint32_t round_bytes(uint32_t n_lanes)
    {
        return LL128_DATA_BYTES * (n_lanes / LL128_LANES);
    }

    static __device__ __forceinline__ struct line_place place(const struct peer_fifos &end,
                                                              uint32_t round, uint32_t n_bytes)
    {
        return format::place(round * (end.n_lanes / 32) + end.lane / 32, end.lane % 32, n_bytes,
                             (n_bytes + LL128_DATA_BYTES - 1) / LL128_DATA_BYTES);
    }

    static __device__ __forceinline__ ulonglong2 load(const unsigned char *base,
                                                      const struct line_place &own)
    {
        return format::load_chunk(base, own);
    }

    static __device__ __forceinline__ void store(unsigned char *base, const struct line_place &own,
                                                 ulonglong2 value)
    {
        format::store_chunk(base, own, value);
    }

    static __device__ __forceinline__ void send(unsigned char *slot, const struct line_place &own,
                                                ulonglong2 value, uint64_t flag)
    {
        const uint32_t lane = threadIdx.x % 32;
        __syncwarp(); /* the lanes of a line must store it together */
        if (own.exists)
            store_line(format::in_slot(slot, own, lane), value.x,
                       lane % LL128_LANES == LL128_LANES - 1 ? flag : value.y);
    }

    static __device__ __forceinline__ ulonglong2 peek(unsigned char *slot,
                                                      const struct line_place &own)
    {
        ulonglong2 value = {0, 0};
        if (own.exists)
            value = load_line(format::in_slot(slot, own, threadIdx.x % 32));
        return value;
    }

    static __device__ __forceinline__ bool receive(const struct gyre_cuda_common &common,
                                                   const struct line_operand &in,
                                                   const struct line_place &own, ulonglong2 *value)
    {
        return format::receive(common, in, own, threadIdx.x % 32, value);
    }

    static __device__ __forceinline__ void clear(unsigned char *slot, const struct line_place &own)
    {
        format::clear(slot, own, threadIdx.x % 32);
    }
};

#endif
