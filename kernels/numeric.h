/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversions and operations on elements, in which host and GPU agree bit by bit. Valid as C11 and
 * as CUDA; free of branches, so that host compilers vectorise.
 *
 * Narrowing rounds to nearest even. f16 and bf16 overflow to infinity; fp8 saturates, infinities
 * too ("satfinite", OCP 8-bit floating point specification, 1.0, section 5.2). A written NaN is the
 * type's canonical one, sign clear; payloads and signs of f32 and f64 are not specified. Max and
 * min of a NaN are a NaN; max(-0, +0) is +0 and min(-0, +0) is -0 in either order. f16, bf16 and
 * fp8 are computed in f32 and rounded once.
 *
 * Compile with -ffp-contract=off or -fmad=false, and without flushing subnormals.
 */
#ifndef GYRE_KERNELS_NUMERIC_H
#define GYRE_KERNELS_NUMERIC_H

#include "core/foundation/model/tile.h"

#include <string.h>

#define GYRE_F16_NAN    0x7fffU
#define GYRE_BF16_NAN   0x7fffU
#define GYRE_F8E4M3_NAN 0x7fU
#define GYRE_F8E5M2_NAN 0x7fU
#define GYRE_F32_NAN    0x7fffffffU
#define GYRE_F64_NAN    0x7fffffffffffffffULL

static GYRE_HOST_DEVICE inline uint32_t gyre_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static GYRE_HOST_DEVICE inline float gyre_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static GYRE_HOST_DEVICE inline uint64_t gyre_f64_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static GYRE_HOST_DEVICE inline double gyre_f64_from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Below 2^31, where vector units compare signed words at once. */
static GYRE_HOST_DEVICE inline uint32_t gyre_mask_below(uint32_t a, uint32_t b)
{
    return 0U - (uint32_t)((int32_t)a < (int32_t)b);
}

/* gcc vectorises this, but not a conditional expression on floats. */
static GYRE_HOST_DEVICE inline uint32_t gyre_blend(uint32_t mask, uint32_t yes, uint32_t no)
{
    return no ^ (mask & (yes ^ no));
}

/* `shift` = 23 - mantissa bits, `rebias` = 127 - bias. Adding and subtracting the smallest normal
 * exponent normalises a subnormal magnitude exactly. */

/* Magnitudes: infinities and NaNs, from @first_special, keep their mantissa. */
static GYRE_HOST_DEVICE inline uint32_t gyre_widen(uint32_t mag, uint32_t shift, uint32_t rebias,
                                                   uint32_t first_normal, uint32_t first_special)
{
    const uint32_t moved = mag << shift;
    const uint32_t normal = moved + (rebias << 23);
    const uint32_t lowest = (rebias + 1) << 23;
    const uint32_t subnormal =
        gyre_f32_bits(gyre_f32_from_bits(moved + lowest) - gyre_f32_from_bits(lowest));
    const uint32_t special = moved | 0x7f800000U;
    const uint32_t finite = gyre_blend(gyre_mask_below(mag, first_normal), subnormal, normal);
    return gyre_blend(gyre_mask_below(mag, first_special), finite, special);
}

/* @magic: the f32 power of two whose last bit is the format's smallest subnormal, so that adding it
 * rounds there. @largest: of overflow. Not for NaNs. */
static GYRE_HOST_DEVICE inline uint32_t gyre_narrow(uint32_t mag, uint32_t shift, uint32_t rebias,
                                                    float magic, uint32_t largest)
{
    const uint32_t half_less_one = (1U << (shift - 1)) - 1;
    const uint32_t odd = (mag >> shift) & 1U;
    const uint32_t normal = (mag - (rebias << 23) + half_less_one + odd) >> shift;
    const uint32_t subnormal =
        gyre_f32_bits(gyre_f32_from_bits(mag) + magic) - gyre_f32_bits(magic);
    const uint32_t capped = gyre_blend(gyre_mask_below(largest, normal), largest, normal);
    return gyre_blend(gyre_mask_below(mag, (rebias + 1) << 23), subnormal, capped);
}

static GYRE_HOST_DEVICE inline float gyre_f16_to_f32(uint16_t bits)
{
    const uint32_t wide = gyre_widen(bits & 0x7fffU, 13, 112, 0x400, 0x7c00);
    return gyre_f32_from_bits(wide | (bits & 0x8000U) << 16);
}

static GYRE_HOST_DEVICE inline uint16_t gyre_f32_to_f16(float value)
{
    const uint32_t bits = gyre_f32_bits(value);
    const uint32_t mag = bits & 0x7fffffffU;
    const uint32_t number = gyre_narrow(mag, 13, 112, 0.5f, 0x7c00) | (bits >> 16 & 0x8000U);
    return (uint16_t)gyre_blend(gyre_mask_below(0x7f800000U, mag), GYRE_F16_NAN, number);
}

static GYRE_HOST_DEVICE inline float gyre_bf16_to_f32(uint16_t bits)
{
    return gyre_f32_from_bits((uint32_t)bits << 16);
}

static GYRE_HOST_DEVICE inline uint16_t gyre_f32_to_bf16(float value)
{
    const uint32_t bits = gyre_f32_bits(value);
    const uint32_t number = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
    const int is_nan = (int32_t)(bits & 0x7fffffffU) > 0x7f800000;
    return (uint16_t)(is_nan ? GYRE_BF16_NAN : number);
}

static GYRE_HOST_DEVICE inline float gyre_f8e4m3_to_f32(uint8_t bits)
{
    const uint32_t wide = gyre_widen(bits & 0x7fU, 20, 120, 0x08, 0x7f);
    return gyre_f32_from_bits(wide | (bits & 0x80U) << 24);
}

static GYRE_HOST_DEVICE inline uint8_t gyre_f32_to_f8e4m3(float value)
{
    const uint32_t bits = gyre_f32_bits(value);
    const uint32_t mag = bits & 0x7fffffffU;
    const uint32_t number = gyre_narrow(mag, 20, 120, 16384.0f, 0x7e) | (bits >> 24 & 0x80U);
    return (uint8_t)gyre_blend(gyre_mask_below(0x7f800000U, mag), GYRE_F8E4M3_NAN, number);
}

static GYRE_HOST_DEVICE inline float gyre_f8e5m2_to_f32(uint8_t bits)
{
    const uint32_t wide = gyre_widen(bits & 0x7fU, 21, 112, 0x04, 0x7c);
    return gyre_f32_from_bits(wide | (bits & 0x80U) << 24);
}

static GYRE_HOST_DEVICE inline uint8_t gyre_f32_to_f8e5m2(float value)
{
    const uint32_t bits = gyre_f32_bits(value);
    const uint32_t mag = bits & 0x7fffffffU;
    const uint32_t number = gyre_narrow(mag, 21, 112, 128.0f, 0x7b) | (bits >> 24 & 0x80U);
    return (uint8_t)gyre_blend(gyre_mask_below(0x7f800000U, mag), GYRE_F8E5M2_NAN, number);
}

/* X(dtype suffix, stored as, computed in, family of operations, load, store) */
#define GYRE_NUMERIC_SAME(value) (value)
#define GYRE_NUMERIC_TABLE(X)                                                   \
    X(INT8, int8_t, int8_t, i8, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME)           \
    X(UINT8, uint8_t, uint8_t, u8, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME)        \
    X(INT32, int32_t, int32_t, i32, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME)       \
    X(UINT32, uint32_t, uint32_t, u32, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME)    \
    X(INT64, int64_t, int64_t, i64, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME)       \
    X(UINT64, uint64_t, uint64_t, u64, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME)    \
    X(FLOAT16, uint16_t, float, f32, gyre_f16_to_f32, gyre_f32_to_f16)          \
    X(FLOAT32, float, float, f32, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME)         \
    X(FLOAT64, double, double, f64, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME)       \
    X(BFLOAT16, uint16_t, float, f32, gyre_bf16_to_f32, gyre_f32_to_bf16)       \
    X(FLOAT8_E4M3, uint8_t, float, f32, gyre_f8e4m3_to_f32, gyre_f32_to_f8e4m3) \
    X(FLOAT8_E5M2, uint8_t, float, f32, gyre_f8e5m2_to_f32, gyre_f32_to_f8e5m2)

/* At least 32 bits, unsigned, where wrapping is defined. */
#define GYRE_NUMERIC_INTEGER(family, type, unsigned_type)                                   \
    static GYRE_HOST_DEVICE inline type gyre_op_sum_##family(type a, type b)                \
    {                                                                                       \
        return (type)((unsigned_type)a + (unsigned_type)b);                                 \
    }                                                                                       \
    static GYRE_HOST_DEVICE inline type gyre_op_prod_##family(type a, type b)               \
    {                                                                                       \
        return (type)((unsigned_type)a * (unsigned_type)b);                                 \
    }                                                                                       \
    static GYRE_HOST_DEVICE inline type gyre_op_max_##family(type a, type b)                \
    {                                                                                       \
        return a > b ? a : b;                                                               \
    }                                                                                       \
    static GYRE_HOST_DEVICE inline type gyre_op_min_##family(type a, type b)                \
    {                                                                                       \
        return a < b ? a : b;                                                               \
    }                                                                                       \
    /* towards zero; the divisor may exceed 8 bits */                                       \
    static GYRE_HOST_DEVICE inline type gyre_op_divide_##family(type a, uint32_t divisor)   \
    {                                                                                       \
        return (type)(GYRE_NUMERIC_WIDE_##family(a) / GYRE_NUMERIC_WIDE_##family(divisor)); \
    }

#define GYRE_NUMERIC_WIDE_i8  (int64_t)
#define GYRE_NUMERIC_WIDE_u8  (uint64_t)
#define GYRE_NUMERIC_WIDE_i32 (int64_t)
#define GYRE_NUMERIC_WIDE_u32 (uint64_t)
#define GYRE_NUMERIC_WIDE_i64 (int64_t)
#define GYRE_NUMERIC_WIDE_u64 (uint64_t)

GYRE_NUMERIC_INTEGER(i8, int8_t, uint32_t)
GYRE_NUMERIC_INTEGER(u8, uint8_t, uint32_t)
GYRE_NUMERIC_INTEGER(i32, int32_t, uint32_t)
GYRE_NUMERIC_INTEGER(u32, uint32_t, uint32_t)
GYRE_NUMERIC_INTEGER(i64, int64_t, uint64_t)
GYRE_NUMERIC_INTEGER(u64, uint64_t, uint64_t)

/* Masks, because gcc makes branches of conditional expressions on floats. Only zeros of both signs
 * are equal and differ in bits: AND and OR choose there. */
#define GYRE_NUMERIC_FLOAT(family, type, bits_type, nan)                                      \
    static GYRE_HOST_DEVICE inline type gyre_op_sum_##family(type a, type b)                  \
    {                                                                                         \
        return a + b;                                                                         \
    }                                                                                         \
    static GYRE_HOST_DEVICE inline type gyre_op_prod_##family(type a, type b)                 \
    {                                                                                         \
        return a * b;                                                                         \
    }                                                                                         \
    static GYRE_HOST_DEVICE inline type gyre_op_max_##family(type a, type b)                  \
    {                                                                                         \
        const bits_type a_bits = gyre_##family##_bits(a);                                     \
        const bits_type b_bits = gyre_##family##_bits(b);                                     \
        const bits_type above = (bits_type)0 - (bits_type)(a > b);                            \
        const bits_type below = (bits_type)0 - (bits_type)(a < b);                            \
        const bits_type nans = (bits_type)0 - (bits_type)((a != a) | (b != b));               \
        const bits_type larger = (above & a_bits) | (~above & b_bits & (below | a_bits));     \
        return gyre_##family##_from_bits((nans & nan) | (~nans & larger));                    \
    }                                                                                         \
    static GYRE_HOST_DEVICE inline type gyre_op_min_##family(type a, type b)                  \
    {                                                                                         \
        const bits_type a_bits = gyre_##family##_bits(a);                                     \
        const bits_type b_bits = gyre_##family##_bits(b);                                     \
        const bits_type above = (bits_type)0 - (bits_type)(a > b);                            \
        const bits_type below = (bits_type)0 - (bits_type)(a < b);                            \
        const bits_type nans = (bits_type)0 - (bits_type)((a != a) | (b != b));               \
        const bits_type smaller = (below & a_bits) | (~below & (b_bits | (~above & a_bits))); \
        return gyre_##family##_from_bits((nans & nan) | (~nans & smaller));                   \
    }

GYRE_NUMERIC_FLOAT(f32, float, uint32_t, GYRE_F32_NAN)
GYRE_NUMERIC_FLOAT(f64, double, uint64_t, GYRE_F64_NAN)

#endif
