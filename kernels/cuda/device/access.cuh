/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads and stores of plain memory by one thread.
 */
#ifndef GYRE_KERNELS_CUDA_ACCESS_CUH
#define GYRE_KERNELS_CUDA_ACCESS_CUH

#include "kernels/cuda/device/element.cuh"

template <int BYTES> static __device__ __forceinline__ pack<BYTES> load(const unsigned char *from);

template <> __device__ __forceinline__ pack<16> load<16>(const unsigned char *from)
{
    const uint4 words = load_16_bytes(from);
    return {{words.x, words.y, words.z, words.w}};
}

template <> __device__ __forceinline__ pack<8> load<8>(const unsigned char *from)
{
    const uint2 words = load_8_bytes(from);
    return {{words.x, words.y}};
}

template <> __device__ __forceinline__ pack<4> load<4>(const unsigned char *from)
{
    return {{load_4_bytes(from)}};
}

template <> __device__ __forceinline__ pack<2> load<2>(const unsigned char *from)
{
    return {{load_2_bytes(from)}};
}

template <> __device__ __forceinline__ pack<1> load<1>(const unsigned char *from)
{
    return {{load_1_byte(from)}};
}

template <int BYTES>
static __device__ __forceinline__ void store(unsigned char *to, const pack<BYTES> &from)
{
    const uint32_t *words = from.words;
    if constexpr (BYTES == 16)
        store_16_bytes(to, words[0], words[1], words[2], words[3]);
    else if constexpr (BYTES == 8)
        store_8_bytes(to, words[0], words[1]);
    else if constexpr (BYTES == 4)
        store_4_bytes(to, words[0]);
    else if constexpr (BYTES == 2)
        store_2_bytes(to, (uint16_t)words[0]);
    else
        store_1_byte(to, (uint16_t)words[0]);
}

/* 1 to 3 bytes, which begin or end at a multiple of 4. */
static __device__ __forceinline__ uint32_t load_few(const unsigned char *from, uint32_t n_bytes)
{
    const bool is_odd = ((uintptr_t)from & 1U) != 0;
    if (n_bytes == 1)
        return *from;
    if (n_bytes == 2)
        return *(const uint16_t *)from;
    return is_odd ? *from | (uint32_t) * (const uint16_t *)(from + 1) << 8
                  : *(const uint16_t *)from | (uint32_t)from[2] << 16;
}

static __device__ __forceinline__ void store_few(unsigned char *to, uint32_t value,
                                                 uint32_t n_bytes)
{
    const bool is_odd = ((uintptr_t)to & 1U) != 0;
    if (n_bytes == 1) {
        *to = (unsigned char)value;
    } else if (n_bytes == 2) {
        *(uint16_t *)to = (uint16_t)value;
    } else if (is_odd) {
        *to = (unsigned char)value;
        *(uint16_t *)(to + 1) = (uint16_t)(value >> 8);
    } else {
        *(uint16_t *)to = (uint16_t)value;
        to[2] = (unsigned char)(value >> 16);
    }
}

/* Any address, 1 < n_words <= WORDS. Sets the words after n_words to 0. */
template <int WORDS>
static __device__ __forceinline__ void load_words(const unsigned char *from, int n_words,
                                                  uint32_t *words)
{
    const uint32_t n_behind = (uint32_t)(uintptr_t)from & 3U, n_before = 4 - n_behind;
    if (n_behind == 0) {
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            words[i] = i < n_words ? ((const uint32_t *)from)[i] : 0;
        return;
    }
    uint32_t whole[WORDS + 1];
    const uint32_t *aligned = (const uint32_t *)(from + n_before);
    whole[0] = load_few(from, n_before) << 8 * n_behind;
    const uint32_t last = load_few((const unsigned char *)(aligned + n_words - 1), n_behind);
#pragma unroll
    for (int i = 1; i <= WORDS; i++)
        whole[i] = i < n_words ? aligned[i - 1] : last;
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        words[i] = i < n_words ? __funnelshift_r(whole[i], whole[i + 1], 8 * n_behind) : 0;
}

template <int WORDS>
static __device__ __forceinline__ void store_words(unsigned char *to, int n_words,
                                                   const uint32_t *words)
{
    const uint32_t n_behind = (uint32_t)(uintptr_t)to & 3U, n_before = 4 - n_behind;
    if (n_behind == 0) {
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            if (i < n_words)
                ((uint32_t *)to)[i] = words[i];
        return;
    }
    uint32_t *aligned = (uint32_t *)(to + n_before);
    uint32_t last = words[1];
    store_few(to, words[0], n_before);
#pragma unroll
    for (int i = 1; i < WORDS; i++)
        if (i < n_words) {
            aligned[i - 1] = __funnelshift_r(words[i - 1], words[i], 8 * n_before);
            last = words[i];
        }
    store_few((unsigned char *)(aligned + n_words - 1), last >> 8 * n_before, n_behind);
}

/* Out of line, as in move.cuh. */
static __device__ __noinline__ uint64_t load_bytes(const unsigned char *from, uint32_t n_valid)
{
    uint64_t value = 0;
    if (n_valid >= 8) {
        uint32_t words[2];
        load_words<2>(from, 2, words);
        return words[0] | (uint64_t)words[1] << 32;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < n_valid; i++)
        value |= (uint64_t)from[i] << 8 * i;
    return value;
}

static __device__ __noinline__ void store_bytes(unsigned char *to, uint64_t value, uint32_t n_valid)
{
    if (n_valid >= 8) {
        const uint32_t words[2] = {(uint32_t)value, (uint32_t)(value >> 32)};
        store_words<2>(to, 2, words);
        return;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < n_valid; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static __device__ __forceinline__ uint64_t load_8(const unsigned char *from, uint32_t n_valid)
{
    if (n_valid >= 8 && ((uintptr_t)from & 7U) == 0)
        return *(const uint64_t *)from;
    return load_bytes(from, n_valid);
}

static __device__ __forceinline__ void store_8(unsigned char *to, uint64_t value, uint32_t n_valid)
{
    if (n_valid >= 8 && ((uintptr_t)to & 7U) == 0)
        *(uint64_t *)to = value;
    else
        store_bytes(to, value, n_valid);
}

static __device__ __noinline__ ulonglong2 load_part(const unsigned char *from, uint32_t n_valid)
{
    const uint32_t n_first = min(n_valid, 8U);
    if (n_valid == 8 || n_valid >= 16) { /* LL128's lanes with a flag have 8 bytes */
        uint32_t words[4];
        load_words<4>(from, n_valid >= 16 ? 4 : 2, words);
        return {words[0] | (uint64_t)words[1] << 32, words[2] | (uint64_t)words[3] << 32};
    }
    return {load_bytes(from, n_first), load_bytes(from + 8, n_valid - n_first)};
}

static __device__ __noinline__ void store_part(unsigned char *to, ulonglong2 value,
                                               uint32_t n_valid)
{
    const uint32_t n_first = min(n_valid, 8U);
    if (n_valid == 8 || n_valid >= 16) {
        const uint32_t words[4] = {(uint32_t)value.x, (uint32_t)(value.x >> 32), (uint32_t)value.y,
                                   (uint32_t)(value.y >> 32)};
        store_words<4>(to, n_valid >= 16 ? 4 : 2, words);
        return;
    }
    store_bytes(to, value.x, n_first);
    store_bytes(to + 8, value.y, n_valid - n_first);
}

#endif
