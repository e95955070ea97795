/* SPDX-License-Identifier: Apache-2.0
 *
 * Valid as C11 and as CUDA. Every partial result is exact, so the order does not change the
 * expected bits:
 * - integers wrap; products take odd factors, which never become 0;
 * - floats, sum: integers whose absolute sum is exact in the type; with too many ranks a window of
 *   ranks contributes +-1 and the others 0;
 * - floats, product: factors 2 and 1/2 from at most three ranks each, +-1 from the others;
 * - floats, average: contributions are multiplied by f, 1/n rounded to the type. If f is no power
 *   of two, two ranks contribute the same power of two and the others 0. Nothing is negative,
 *   because an underflow must not leave a -0.
 * All zeros are +0. The period is a prime, so that a wrong offset shows.
 */
#ifndef GYRE_BENCH_CHECK_PATTERN_VALUES_H
#define GYRE_BENCH_CHECK_PATTERN_VALUES_H

#include "kernels/numeric.h"
#include "bench/check/pattern.h"

#define GYRE_PATTERN_PERIOD 4093U

/* In place of a rank. */
#define GYRE_PATTERN_REDUCED UINT32_MAX

/* Odd multipliers carry bits up, shifts bring them down. */
static GYRE_HOST_DEVICE inline uint32_t gyre_pattern_mix(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t word = a * 0x9e3779b9U + b;
    word = (word ^ word >> 16) * 0xa3b19535U + c;
    word = (word ^ word >> 13) * 0xc45a6d2bU;
    return word ^ word >> 16;
}

/* The type holds 0 .. n exactly. */
static GYRE_HOST_DEVICE inline uint32_t gyre_pattern_exact_limit(gyre_dtype dtype)
{
    switch (dtype) {
    case GYRE_FLOAT16:
        return 2048;
    case GYRE_BFLOAT16:
        return 256;
    case GYRE_FLOAT8_E4M3:
        return 16;
    case GYRE_FLOAT8_E5M2:
        return 8;
    default:
        return 1U << 24;
    }
}

static GYRE_HOST_DEVICE inline int gyre_pattern_in_window(uint32_t n_ranks, uint32_t rank,
                                                          uint32_t hash, uint32_t n_wide)
{
    return (rank + n_ranks - hash % n_ranks) % n_ranks < n_wide;
}

/* Before any factor; exact in the type. */
static GYRE_HOST_DEVICE inline float gyre_pattern_float(const struct gyre_pattern *pattern,
                                                        uint32_t rank, uint32_t element)
{
    const uint32_t n = pattern->n_ranks;
    const uint32_t own = gyre_pattern_mix(pattern->seed, rank + 1, element);
    const uint32_t common = gyre_pattern_mix(pattern->seed, 0, element);
    const uint32_t limit = gyre_pattern_exact_limit(pattern->dtype);
    const int is_average = pattern->op == GYRE_AVG;
    if (pattern->op == GYRE_PROD) {
        const float sign = (own & 1U) != 0 ? -1.0f : 1.0f;
        const float twice = gyre_pattern_in_window(n, rank, common, 3) ? 2.0f : 1.0f;
        const float half = gyre_pattern_in_window(n, rank, common >> 12, 3) ? 0.5f : 1.0f;
        return sign * twice * half;
    }
    if (is_average && (n & (n - 1)) != 0)
        return gyre_pattern_in_window(n, rank, common, 2) ? (float)(1U << common % 5 % 3) : 0.0f;
    uint32_t largest = pattern->op == GYRE_SUM || is_average ? limit / n : limit;
    if (largest > 127)
        largest = 127;
    if (largest == 0) {
        if (!gyre_pattern_in_window(n, rank, common, limit))
            return 0.0f;
        largest = 1;
    }
    if (is_average)
        return (float)(own % (largest + 1));
    return (float)(own % (2 * largest + 1)) - (float)largest;
}

static GYRE_HOST_DEVICE inline uint64_t gyre_pattern_float_bits(gyre_dtype dtype, float value)
{
    switch (dtype) {
    case GYRE_FLOAT16:
        return gyre_f32_to_f16(value);
    case GYRE_BFLOAT16:
        return gyre_f32_to_bf16(value);
    case GYRE_FLOAT8_E4M3:
        return gyre_f32_to_f8e4m3(value);
    case GYRE_FLOAT8_E5M2:
        return gyre_f32_to_f8e5m2(value);
    case GYRE_FLOAT64:
        return gyre_f64_bits((double)value);
    default:
        return gyre_f32_bits(value);
    }
}

/* Users keep the type's low bytes. */
static GYRE_HOST_DEVICE inline uint64_t gyre_pattern_integer(const struct gyre_pattern *pattern,
                                                             uint32_t rank, uint32_t element)
{
    const uint32_t low = gyre_pattern_mix(pattern->seed, rank + 1, element);
    const uint32_t high = gyre_pattern_mix(pattern->seed ^ 0x6c8e9cf5U, rank + 1, element);
    return ((uint64_t)high << 32 | low) | (pattern->op == GYRE_PROD ? 1U : 0U);
}

static GYRE_HOST_DEVICE inline uint64_t gyre_pattern_value(const struct gyre_pattern *pattern,
                                                           uint32_t rank, uint64_t element)
{
    const uint32_t place = (uint32_t)(element % GYRE_PATTERN_PERIOD);
    if (gyre_dtype_is_float(pattern->dtype))
        return gyre_pattern_float_bits(pattern->dtype, gyre_pattern_float(pattern, rank, place));
    const unsigned n_bits = 8 * gyre_dtype_bytes(pattern->dtype);
    return gyre_pattern_integer(pattern, rank, place) & (~0ULL >> (64 - n_bits));
}

/* In double, which holds every type's value. */
static GYRE_HOST_DEVICE inline double gyre_pattern_average_factor(gyre_dtype dtype, uint32_t n)
{
    const float inverse = 1.0f / (float)n;
    switch (dtype) {
    case GYRE_FLOAT16:
        return (double)gyre_f16_to_f32(gyre_f32_to_f16(inverse));
    case GYRE_BFLOAT16:
        return (double)gyre_bf16_to_f32(gyre_f32_to_bf16(inverse));
    case GYRE_FLOAT8_E4M3:
        return (double)gyre_f8e4m3_to_f32(gyre_f32_to_f8e4m3(inverse));
    case GYRE_FLOAT8_E5M2:
        return (double)gyre_f8e5m2_to_f32(gyre_f32_to_f8e5m2(inverse));
    case GYRE_FLOAT64:
        return 1.0 / (double)n;
    default:
        return (double)inverse;
    }
}

static GYRE_HOST_DEVICE inline uint64_t
gyre_pattern_reduced_float(const struct gyre_pattern *pattern, uint32_t place)
{
    double result = (double)gyre_pattern_float(pattern, 0, place);
    for (uint32_t rank = 1; rank < pattern->n_ranks; rank++) {
        const double value = (double)gyre_pattern_float(pattern, rank, place);
        if (pattern->op == GYRE_PROD)
            result *= value;
        else if (pattern->op == GYRE_MAX)
            result = value > result ? value : result;
        else if (pattern->op == GYRE_MIN)
            result = value < result ? value : result;
        else
            result += value;
    }
    if (pattern->op == GYRE_AVG)
        result *= gyre_pattern_average_factor(pattern->dtype, pattern->n_ranks);
    if (pattern->dtype == GYRE_FLOAT64)
        return gyre_f64_bits(result);
    return gyre_pattern_float_bits(pattern->dtype, (float)result);
}

static GYRE_HOST_DEVICE inline int gyre_pattern_is_above(gyre_dtype dtype, uint64_t a, uint64_t b)
{
    const int is_signed = dtype == GYRE_INT8 || dtype == GYRE_INT32 || dtype == GYRE_INT64;
    const uint64_t flip = is_signed ? 1ULL << (8 * gyre_dtype_bytes(dtype) - 1) : 0;
    return (a ^ flip) > (b ^ flip);
}

static GYRE_HOST_DEVICE inline uint64_t
gyre_pattern_reduced_integer(const struct gyre_pattern *pattern, uint32_t place)
{
    const gyre_dtype dtype = pattern->dtype;
    const unsigned n_bits = 8 * gyre_dtype_bytes(dtype);
    const uint64_t mask = ~0ULL >> (64 - n_bits);
    uint64_t result = gyre_pattern_value(pattern, 0, place);
    for (uint32_t rank = 1; rank < pattern->n_ranks; rank++) {
        const uint64_t value = gyre_pattern_value(pattern, rank, place);
        if (pattern->op == GYRE_PROD)
            result *= value;
        else if (pattern->op == GYRE_MAX)
            result = gyre_pattern_is_above(dtype, value, result) ? value : result;
        else if (pattern->op == GYRE_MIN)
            result = gyre_pattern_is_above(dtype, result, value) ? value : result;
        else
            result += value;
    }
    result &= mask;
    if (pattern->op != GYRE_AVG)
        return result;
    const int is_signed = dtype == GYRE_INT8 || dtype == GYRE_INT32 || dtype == GYRE_INT64;
    if (!is_signed || (result >> (n_bits - 1)) == 0)
        return result / pattern->n_ranks;
    return (0 - ((0 - result) & mask) / pattern->n_ranks) & mask; /* towards zero */
}

static GYRE_HOST_DEVICE inline uint64_t gyre_pattern_reduced(const struct gyre_pattern *pattern,
                                                             uint64_t element)
{
    const uint32_t place = (uint32_t)(element % GYRE_PATTERN_PERIOD);
    return gyre_dtype_is_float(pattern->dtype) ? gyre_pattern_reduced_float(pattern, place)
                                               : gyre_pattern_reduced_integer(pattern, place);
}

#endif
