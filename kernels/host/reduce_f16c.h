/* SPDX-License-Identifier: Apache-2.0
 *
 * f16 for machines with F16C, included by reduce.c only: widen to f32, use its loops, narrow. The
 * same bits, several times as fast.
 */
#ifndef GYRE_KERNELS_HOST_REDUCE_F16C_H
#define GYRE_KERNELS_HOST_REDUCE_F16C_H

#include <cpuid.h>
#include <immintrin.h>

#define F16C_TARGET __attribute__((target("avx2,f16c")))

/* 2 KiB each. */
#define F16C_ELEMS 512

/* cpuid, because clang 14 has no test for F16C; kept, because it may trap under a hypervisor. */
static bool has_f16c(void)
{
    enum { UNKNOWN, NO, YES };
    static uint32_t answer = UNKNOWN;
    uint32_t known = gyre_load_acquire_u32(&answer);
    if (known == UNKNOWN) {
        unsigned eax, ebx, ecx, edx;
        known = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0 ? YES : NO;
        gyre_store_release_u32(&answer, known);
    }
    return known == YES;
}

F16C_TARGET static void f16c_widen(float *to, const stored_FLOAT16 *from, size_t n_elems)
{
    size_t i = 0;
    for (; i + 8 <= n_elems; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
    for (; i < n_elems; i++)
        to[i] = gyre_f16_to_f32(from[i]);
}

/* The hardware keeps a NaN's payload, but gyre's NaN is canonical. */
F16C_TARGET static void f16c_narrow(stored_FLOAT16 *to, const float *from, size_t n_elems)
{
    const __m128i nan = _mm_set1_epi16((short)GYRE_F16_NAN);
    size_t i = 0;
    for (; i + 8 <= n_elems; i += 8) {
        const __m256 value = _mm256_loadu_ps(from + i);
        const __m128i number =
            _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
        const __m128i nans =
            _mm_packs_epi32(_mm256_castsi256_si128(is_nan), _mm256_extracti128_si256(is_nan, 1));
        _mm_storeu_si128((__m128i *)(to + i), _mm_blendv_epi8(number, nan, nans));
    }
    for (; i < n_elems; i++)
        to[i] = gyre_f32_to_f16(from[i]);
}

typedef void (*f32_loop)(void *out, const void *a, const void *b, size_t n_elems);

/* @a_wide, @out_wide: f32, else f16. */
static inline void f16c_reduce(f32_loop loop, void *out, bool out_wide, const void *a, bool a_wide,
                               const void *b, size_t n_elems)
{
    float x[F16C_ELEMS];
    float y[F16C_ELEMS];
    for (size_t first = 0; first < n_elems; first += F16C_ELEMS) {
        const size_t n = n_elems - first < F16C_ELEMS ? n_elems - first : F16C_ELEMS;
        const void *left = (const float *)a + first;
        if (!a_wide) {
            f16c_widen(x, (const stored_FLOAT16 *)a + first, n);
            left = x;
        }
        f16c_widen(y, (const stored_FLOAT16 *)b + first, n);
        loop(out_wide ? (void *)((float *)out + first) : x, left, y, n);
        if (!out_wide)
            f16c_narrow((stored_FLOAT16 *)out + first, x, n);
    }
}

#define F16C_LOOPS(op)                                                             \
    static void f16c_pair_##op(void *out, const void *a, const void *b, size_t n)  \
    {                                                                              \
        f16c_reduce(pair_##op##_FLOAT32_avx2, out, false, a, false, b, n);         \
    }                                                                              \
    static void f16c_start_##op(void *out, const void *a, const void *b, size_t n) \
    {                                                                              \
        f16c_reduce(pair_##op##_FLOAT32_avx2, out, true, a, false, b, n);          \
    }                                                                              \
    static void f16c_more_##op(void *out, const void *a, const void *b, size_t n)  \
    {                                                                              \
        f16c_reduce(pair_##op##_FLOAT32_avx2, out, true, a, true, b, n);           \
    }                                                                              \
    static void f16c_end_##op(void *out, const void *a, const void *b, size_t n)   \
    {                                                                              \
        f16c_reduce(pair_##op##_FLOAT32_avx2, out, false, a, true, b, n);          \
    }
F16C_LOOPS(sum)
F16C_LOOPS(prod)
F16C_LOOPS(max)
F16C_LOOPS(min)

static void f16c_scale(void *out, const void *in, const void *scalar, size_t n_elems)
{
    const float factor = gyre_f16_to_f32(*(const stored_FLOAT16 *)scalar);
    float x[F16C_ELEMS];
    for (size_t first = 0; first < n_elems; first += F16C_ELEMS) {
        const size_t n = n_elems - first < F16C_ELEMS ? n_elems - first : F16C_ELEMS;
        f16c_widen(x, (const stored_FLOAT16 *)in + first, n);
        scale_FLOAT32_avx2(x, x, &factor, n);
        f16c_narrow((stored_FLOAT16 *)out + first, x, n);
    }
}

#define F16C_ROW(op)                                                   \
    {                                                                  \
        f16c_pair_##op, f16c_start_##op, f16c_more_##op, f16c_end_##op \
    }
static const struct type_loops loops_f16c = {
    {[GYRE_SUM] = F16C_ROW(sum),
     [GYRE_PROD] = F16C_ROW(prod),
     [GYRE_MAX] = F16C_ROW(max),
     [GYRE_MIN] = F16C_ROW(min)},
    f16c_scale,
    divide_nothing,
};

#endif
