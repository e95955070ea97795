/* SPDX-License-Identifier: Apache-2.0
 *
 * Protocol LL: lines of 16 bytes, {data, flag, data, flag}, 4 bytes each. Half of the wire, but a
 * single trip: data is there when its flag is.
 */
#ifndef GYRE_KERNELS_CUDA_LL_CUH
#define GYRE_KERNELS_CUDA_LL_CUH

#include "kernels/cuda/interpreter/per_thread_lines.cuh"

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

    /* Lines beyond the data get a fresh flag: see GYRE_CUDA_LL_CLEAN_PERIOD. */
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

template <int DTYPE, int OP> using ll_step = per_thread_step<ll_format, DTYPE, OP>;

#endif
