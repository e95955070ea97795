/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory at any address: the lanes of a warp access aligned 16-byte words side by side, and each
 * lane gets the missing bytes from the next lane. Single elements would keep fewer bytes in flight.
 *
 * An unaligned span is 32 * ROWS packs of 16 bytes in memory order: pack p is row p / 32 of warp
 * lane p % 32. All lanes of the warp call these functions together, with the same addresses.
 */
#ifndef GYRE_KERNELS_CUDA_UNALIGNED_CUH
#define GYRE_KERNELS_CUDA_UNALIGNED_CUH

#include "kernels/cuda/device/access.cuh"

#define ROW_BYTES 512U

/* Lane 31's next pack is lane 0's of the next row. Sets words that shift_packs<WORDS>() reads. */
template <int WORDS>
static __device__ __forceinline__ pack<16> follow(const pack<16> &own, const pack<16> &next_row,
                                                  uint32_t lane)
{
    pack<16> next = {};
#pragma unroll
    for (int i = 0; i <= WORDS; i++)
        next.words[i] = __shfl_sync(0xffffffffU, lane == 0 ? next_row.words[i] : own.words[i],
                                    (int)((lane + 1) % 32));
    return next;
}

/* From bit 32 * WORDS + `bits` on. */
template <int WORDS>
static __device__ __forceinline__ pack<16> shift_packs(const pack<16> &first, const pack<16> &next,
                                                       uint32_t bits)
{
    uint32_t words[8];
    pack<16> shifted;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        words[i] = first.words[i];
        words[4 + i] = next.words[i];
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        shifted.words[i] = __funnelshift_r(words[WORDS + i], words[WORDS + i + 1], bits);
    return shifted;
}

template <int ROWS> struct unaligned_span {
    pack<16> rows[ROWS];
    pack<16> beyond; /* the first word after the last row, for align_span() */
};

/* Reads up to 15 bytes before the span and 16 after it too. */
template <int ROWS>
static __device__ __forceinline__ void fetch_span(const unsigned char *from, uint32_t lane,
                                                  struct unaligned_span<ROWS> *to)
{
    const unsigned char *word = from - ((uintptr_t)from & 15U);
#pragma unroll
    for (uint32_t k = 0; k < ROWS; k++)
        to->rows[k] = load<16>(word + (k * 32 + lane) * 16);
    to->beyond = load<16>(word + ROWS * 32 * 16);
}

template <int WORDS, int ROWS>
static __device__ __forceinline__ void align_by(uint32_t bits, uint32_t lane,
                                                struct unaligned_span<ROWS> *own)
{
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        const pack<16> &next_row = k + 1 < ROWS ? own->rows[(k + 1) % ROWS] : own->beyond;
        own->rows[k] =
            shift_packs<WORDS>(own->rows[k], follow<WORDS>(own->rows[k], next_row, lane), bits);
    }
}

template <int ROWS>
static __device__ __forceinline__ void align_span(const unsigned char *from, uint32_t lane,
                                                  struct unaligned_span<ROWS> *own)
{
    const uint32_t skip = (uint32_t)(uintptr_t)from & 15U, bits = skip % 4 * 8;
    if (skip == 0)
        return;
    switch (skip / 4) {
    case 0:
        return align_by<0>(bits, lane, own);
    case 1:
        return align_by<1>(bits, lane, own);
    case 2:
        return align_by<2>(bits, lane, own);
    default:
        return align_by<3>(bits, lane, own);
    }
}

/* n_bytes < 16, one byte a lane. */
static __device__ __forceinline__ void store_bytes_of(unsigned char *to, const pack<16> &from,
                                                      uint32_t owner, uint32_t n_bytes,
                                                      uint32_t lane)
{
    uint32_t word = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t own = __shfl_sync(0xffffffffU, from.words[i], (int)owner);
        word = lane / 4 == i ? own : word;
    }
    const pack<1> byte = {{word >> lane % 4 * 8}};
    if (lane < n_bytes)
        store<1>(to + lane, byte);
}

/* Each lane stores the aligned 16-byte word that begins `16 - skip` bytes after its pack does. */
template <int WORDS, int ROWS>
static __device__ __forceinline__ void store_by(unsigned char *to, uint32_t skip, uint32_t lane,
                                                const pack<16> *rows)
{
    unsigned char *word = to + (16 - skip) + lane * 16;
    store_bytes_of(to, rows[0], 0, 16 - skip, lane);
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        const pack<16> own = shift_packs<WORDS>(
            rows[k], follow<WORDS>(rows[k], rows[(k + 1) % ROWS], lane), (16 - skip) % 4 * 8);
        if (k + 1 < ROWS || lane < 31)
            store<16>(word + k * 32 * 16, own);
        if (k + 1 == ROWS)
            store_bytes_of(to + ROWS * 32 * 16 - skip, own, 31, skip, lane);
    }
}

template <int ROWS>
static __device__ __forceinline__ void store_span(unsigned char *to, uint32_t lane,
                                                  const pack<16> *rows)
{
    const uint32_t skip = (uint32_t)(uintptr_t)to & 15U;
    switch (skip == 0 ? 4 : (16 - skip) / 4) {
    case 0:
        return store_by<0, ROWS>(to, skip, lane, rows);
    case 1:
        return store_by<1, ROWS>(to, skip, lane, rows);
    case 2:
        return store_by<2, ROWS>(to, skip, lane, rows);
    case 3:
        return store_by<3, ROWS>(to, skip, lane, rows);
    default:
#pragma unroll
        for (int k = 0; k < ROWS; k++)
            store<16>(to + (k * 32 + lane) * 16, rows[k]);
    }
}

#endif
