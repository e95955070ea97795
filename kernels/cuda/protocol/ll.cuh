/* SPDX-License-Identifier: Apache-2.0
 *
 * LL: lines of 16 bytes, {data, flag, data, flag}, 4 bytes each. Only half of the bytes on the link
 * are data, but a message takes a single trip.
 */
#ifndef GYRE_KERNELS_CUDA_LL_CUH
#define GYRE_KERNELS_CUDA_LL_CUH

#include "kernels/cuda/protocol/line.cuh"

#define LL_LINE_BYTES LINE_BYTES
#define LL_DATA_BYTES 8

static __device__ __forceinline__ bool ll_has_arrived(ulonglong2 halves, uint64_t flag)
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

struct ll_format {
    using type = uint64_t;
    static const int proto = GYRE_PROTO_LL;
    static const int bytes = LL_DATA_BYTES;

    static __device__ __forceinline__ uint64_t load(const unsigned char *from, uint32_t n_valid)
    {
        return load_8(from, n_valid);
    }

    static __device__ __forceinline__ void store(unsigned char *to, uint64_t value,
                                                 uint32_t n_valid)
    {
        store_8(to, value, n_valid);
    }

    static __device__ __forceinline__ void send(unsigned char *slot, uint32_t at, uint64_t value,
                                                uint64_t flag)
    {
        ll_store(slot, at, value, flag);
    }

    static __device__ __forceinline__ bool has_arrived(ulonglong2 halves, uint64_t flag)
    {
        return ll_has_arrived(halves, flag);
    }

    static __device__ __forceinline__ uint64_t data(ulonglong2 halves)
    {
        return ll_data(halves);
    }

    static __device__ __forceinline__ void clear(unsigned char *) {}

    static __device__ __forceinline__ uint64_t finish(uint64_t value)
    {
        return value;
    }

    /* Lines beyond the data (GYRE_LL_CLEAN_PERIOD). */
    static __device__ __noinline__ void clean(const struct gyre_cuda_common &common,
                                              const struct line_operand *operands, uint32_t mask,
                                              uint32_t n_lines)
    {
        const uint32_t n_all = common.slot_bytes / LINE_BYTES;
        uint32_t first = threadIdx.x;
        while (first < n_lines)
            first += blockDim.x;
        for (uint32_t o = 0; mask >> o != 0; o++)
            for (uint32_t at = first; (mask >> o & 1) != 0 && at < n_all; at += blockDim.x)
                ll_store(operands[LINE_FIRST_OUT + o].base, at, 0,
                         operands[LINE_FIRST_OUT + o].flag);
    }
};

template <> struct line_mover<GYRE_PROTO_LL> {
    static const int bytes = LL_DATA_BYTES;

    static __device__ __forceinline__ uint32_t round_bytes(uint32_t n_lanes)
    {
        return LL_DATA_BYTES * n_lanes;
    }

    static __device__ __forceinline__ struct line_place place(const struct peer_fifos &end,
                                                              uint32_t round, uint32_t n_bytes)
    {
        const uint32_t line = round * end.n_lanes + end.lane;
        const uint32_t at = line * LL_DATA_BYTES;
        return {line, at, at < n_bytes ? n_bytes - at : 0, at < n_bytes};
    }

    static __device__ __forceinline__ ulonglong2 load(const unsigned char *base,
                                                      const struct line_place &own)
    {
        return {own.exists ? load_8(base + own.data_bytes, own.n_valid) : 0, 0};
    }

    static __device__ __forceinline__ void store(unsigned char *base, const struct line_place &own,
                                                 ulonglong2 value)
    {
        if (own.exists)
            store_8(base + own.data_bytes, value.x, own.n_valid);
    }

    static __device__ __forceinline__ void send(unsigned char *slot, const struct line_place &own,
                                                ulonglong2 value, uint64_t flag)
    {
        if (own.exists)
            ll_store(slot, own.line, value.x, flag);
    }

    /* receive() checks what this loads. */
    static __device__ __forceinline__ ulonglong2 peek(const unsigned char *slot,
                                                      const struct line_place &own)
    {
        ulonglong2 halves = {0, 0};
        if (own.exists)
            halves = load_line(slot + (size_t)own.line * LL_LINE_BYTES);
        return halves;
    }

    static __device__ __forceinline__ bool receive(const struct gyre_cuda_common &common,
                                                   const struct line_operand &in,
                                                   const struct line_place &own, ulonglong2 *value)
    {
        if (own.exists && !receive_line<ll_format>(common, in, own.line, value))
            return false;
        *value = {ll_data(*value), 0};
        return true;
    }

    static __device__ __forceinline__ void clear(unsigned char *, const struct line_place &) {}
};

#endif
