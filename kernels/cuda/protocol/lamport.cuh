/* SPDX-License-Identifier: Apache-2.0
 *
 * Protocol LAMPORT: lines of 16 bytes that are all data. A line is valid once both of its halves
 * are non-zero. Data travel inverted, so a half of all ones would be invalid. Only NaNs consist of
 * ones alone, and such a half becomes another NaN before it is sent. The receiver clears the lines
 * that it has read. (Lamport, "Concurrent reading and writing", 1977; TensorRT-LLM and FlashInfer
 * have such lines with -0.0 in each word.)
 */
#ifndef GYRE_KERNELS_CUDA_LAMPORT_CUH
#define GYRE_KERNELS_CUDA_LAMPORT_CUH

#include "kernels/cuda/protocol/line.cuh"

struct lamport_format {
    using type = ulonglong2;
    static const int proto = GYRE_PROTO_LAMPORT;
    static const int bytes = LINE_BYTES;

    /* Applied to the rank's own data too, so that all ranks add the same bits. */
    static __device__ __forceinline__ ulonglong2 finish(ulonglong2 value)
    {
        return {gyre_cuda_lamport_half(value.x), gyre_cuda_lamport_half(value.y)};
    }

    static __device__ __forceinline__ ulonglong2 load(const unsigned char *from, uint32_t n_valid)
    {
        if (n_valid >= LINE_BYTES && ((uintptr_t)from & 15U) == 0)
            return finish(*(const ulonglong2 *)from);
        return finish(load_part(from, n_valid));
    }

    static __device__ __forceinline__ void store(unsigned char *to, ulonglong2 value,
                                                 uint32_t n_valid)
    {
        if (n_valid >= LINE_BYTES && ((uintptr_t)to & 15U) == 0)
            *(ulonglong2 *)to = value;
        else
            store_part(to, value, n_valid);
    }

    static __device__ __forceinline__ void send(unsigned char *slot, uint32_t at, ulonglong2 value,
                                                uint64_t)
    {
        store_line(slot + (size_t)at * LINE_BYTES, ~value.x, ~value.y);
    }

    static __device__ __forceinline__ bool has_arrived(ulonglong2 halves, uint64_t)
    {
        return halves.x != 0 && halves.y != 0;
    }

    static __device__ __forceinline__ ulonglong2 data(ulonglong2 halves)
    {
        return {~halves.x, ~halves.y};
    }

    static __device__ __forceinline__ void clear(unsigned char *line)
    {
        clear_line(line);
    }

    static __device__ __forceinline__ void clean(const struct gyre_cuda_common &,
                                                 const struct line_operand *, uint32_t, uint32_t)
    {
    }
};

#endif
