/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes and slots of a block. The vector fits into the slots, so 32 bits are enough.
 */
#ifndef GYRE_KERNELS_CUDA_LAMPORT_RANGES_CUH
#define GYRE_KERNELS_CUDA_LAMPORT_RANGES_CUH

#include "kernels/cuda/fused/fused_oneshot.cuh"

static __device__ __forceinline__ uint32_t lamport_unit(const struct gyre_cuda_work &work)
{
    return work.split.unit_elems * work.elem_bytes;
}

/* As gyre_cuda_tile_range(), in 32 bits and bytes. */
struct lamport_share {
    uint32_t skip;
    uint32_t n_bytes;
    uint32_t chunk_bytes;
    uint32_t extra_chunks; /* chunks with one unit more */
};

struct lamport_range {
    uint32_t skip; /* from the vector's beginning */
    uint32_t n_bytes;
};

static __device__ __forceinline__ struct lamport_share
lamport_share_make(const struct gyre_cuda_work &work)
{
    const uint32_t unit = lamport_unit(work), channel = blockIdx.x;
    const uint32_t longer = channel < work.split.extra_channels ? 1 : 0;
    const uint32_t all_bytes = (uint32_t)work.split.count * work.elem_bytes;
    const uint32_t units = (uint32_t)work.split.share_units;
    struct lamport_share own;
    own.skip = (units * channel + min(channel, work.split.extra_channels)) * unit;
    own.skip = min(own.skip, all_bytes);
    own.n_bytes = min((units + longer) * unit, all_bytes - own.skip);
    own.chunk_bytes = (uint32_t)work.split.chunk_share_units[longer] * unit;
    own.extra_chunks = work.split.n_chunks == 1 ? 0 : work.split.extra_chunks[longer];
    /* The compiler must not compute these later: the launch before may still run now. */
    asm volatile("" : "+r"(own.skip), "+r"(own.n_bytes), "+r"(own.chunk_bytes));
    return own;
}

template <bool EXACT_FIT>
static __device__ __forceinline__ struct lamport_range
lamport_range_of(const struct gyre_cuda_work &work, const struct lamport_share &share,
                 uint32_t chunk, uint32_t tile)
{
    const uint32_t unit = lamport_unit(work), tile_bytes = work.split.tile_elems * work.elem_bytes;
    const uint32_t part = work.split.n_chunks == 1 ? 0 : chunk;
    const uint32_t n_bytes = share.chunk_bytes + (part < share.extra_chunks ? unit : 0);
    const uint32_t from = share.chunk_bytes * part + min(part, share.extra_chunks) * unit;
    if (EXACT_FIT)
        return {share.skip + from, n_bytes};
    const uint32_t end = min(from + n_bytes, share.n_bytes);
    const uint32_t first = min(min(from, share.n_bytes) + tile * tile_bytes, end);
    return {share.skip + first, min(end - first, tile_bytes)};
}

/* @slots: of channel 0. */
static __device__ __forceinline__ unsigned char *
lamport_slot(const struct gyre_cuda_args_fused &args, const unsigned char *slots, uint32_t number)
{
    const struct gyre_cuda_fused &fused = args.fused;
    return (unsigned char *)(uintptr_t)slots + (size_t)blockIdx.x * fused.slots_stride +
           (number & (fused.depth - 1)) * args.common.slot_bytes;
}

#endif
