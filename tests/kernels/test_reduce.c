/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/host_exec.h"
#include "kernels/numeric.h"
#include "tests/fuzz/random.h"
#include "tests/support/check.h"

#include <math.h>

__extension__ typedef __int128 int128;

enum { MAX_ELEMS = 5000, PAD_BYTES = 64, AREA_BYTES = MAX_ELEMS * 8 + 2 * PAD_BYTES };

static unsigned char in_areas[GYRE_STEP_MAX_INS][AREA_BYTES];
static unsigned char out_areas[GYRE_STEP_MAX_OUTS][AREA_BYTES];
static unsigned char before[GYRE_STEP_MAX_INS][AREA_BYTES];

static struct fuzz_rng rng;

static uint64_t get(const unsigned char *area, gyre_dtype dtype, size_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, area + i * gyre_dtype_bytes(dtype), gyre_dtype_bytes(dtype));
    return bits;
}

static double to_double(gyre_dtype dtype, uint64_t bits)
{
    switch (dtype) {
    case GYRE_FLOAT16:
        return (double)gyre_f16_to_f32((uint16_t)bits);
    case GYRE_BFLOAT16:
        return (double)gyre_bf16_to_f32((uint16_t)bits);
    case GYRE_FLOAT8_E4M3:
        return (double)gyre_f8e4m3_to_f32((uint8_t)bits);
    case GYRE_FLOAT8_E5M2:
        return (double)gyre_f8e5m2_to_f32((uint8_t)bits);
    case GYRE_FLOAT32:
        return (double)gyre_f32_from_bits((uint32_t)bits);
    default:
        return gyre_f64_from_bits(bits);
    }
}

static uint64_t from_double(gyre_dtype dtype, double value)
{
    switch (dtype) {
    case GYRE_FLOAT16:
        return gyre_f32_to_f16((float)value);
    case GYRE_BFLOAT16:
        return gyre_f32_to_bf16((float)value);
    case GYRE_FLOAT8_E4M3:
        return gyre_f32_to_f8e4m3((float)value);
    case GYRE_FLOAT8_E5M2:
        return gyre_f32_to_f8e5m2((float)value);
    case GYRE_FLOAT32:
        return gyre_f32_bits((float)value);
    default:
        return gyre_f64_bits(value);
    }
}

static double float_op(gyre_dtype dtype, int op, double a, double b)
{
    double result = 0;
    if (op == GYRE_SUM)
        result = a + b;
    else if (op == GYRE_PROD)
        result = a * b;
    else if (isnan(a) || isnan(b))
        return NAN;
    else if (a == b)
        result = (op == GYRE_MAX) == (signbit(a) != 0) ? b : a; /* +0 is above -0 */
    else
        result = (op == GYRE_MAX) == (a > b) ? a : b;
    return dtype == GYRE_FLOAT64 ? result : (double)(float)result;
}

static int128 to_integer(gyre_dtype dtype, uint64_t bits)
{
    const unsigned n_bits = 8 * gyre_dtype_bytes(dtype);
    const bool is_signed = dtype == GYRE_INT8 || dtype == GYRE_INT32 || dtype == GYRE_INT64;
    if (n_bits < 64)
        bits &= (1ULL << n_bits) - 1;
    if (is_signed && (bits >> (n_bits - 1) & 1) != 0)
        return (int128)bits - ((int128)1 << n_bits);
    return (int128)bits;
}

static uint64_t integer_op(gyre_dtype dtype, int op, uint64_t a, uint64_t b)
{
    const int128 x = to_integer(dtype, a);
    const int128 y = to_integer(dtype, b);
    if (op == GYRE_SUM)
        return (uint64_t)(x + y);
    if (op == GYRE_PROD)
        return a * b; /* the low bits do not depend on signs */
    return (op == GYRE_MAX) == (x > y) ? a : b;
}

static uint64_t expected(const struct gyre_reduce_step *step, size_t i)
{
    const gyre_dtype dtype = (gyre_dtype)step->reduction->dtype;
    const bool is_float = gyre_dtype_is_float(dtype);
    const unsigned n_bits = 8 * gyre_dtype_bytes(dtype);
    const uint64_t mask = n_bits < 64 ? (1ULL << n_bits) - 1 : UINT64_MAX;
    const uint64_t scalar = step->reduction->scalar;
    double float_result = 0;
    uint64_t result = 0;
    for (uint32_t k = 0; k < step->n_ins; k++) {
        uint64_t bits =
            get(before[k] + ((const unsigned char *)step->ins[k] - in_areas[k]), dtype, i);
        if ((step->premultiply_mask >> k & 1) != 0 && is_float)
            bits = from_double(dtype, float_op(dtype, GYRE_PROD, to_double(dtype, bits),
                                               to_double(dtype, scalar)));
        else if ((step->premultiply_mask >> k & 1) != 0)
            bits = (bits * scalar) & mask;
        if (is_float)
            float_result =
                k == 0 ? to_double(dtype, bits)
                       : float_op(dtype, step->reduction->op, float_result, to_double(dtype, bits));
        result = k == 0 ? bits : integer_op(dtype, step->reduction->op, result, bits) & mask;
    }
    if (is_float)
        return step->n_ins == 1 ? result : from_double(dtype, float_result);
    if (step->divide)
        result = (uint64_t)(to_integer(dtype, result) / step->reduction->divisor) & mask;
    return result;
}

static bool is_same(gyre_dtype dtype, uint64_t a, uint64_t b)
{
    if (dtype != GYRE_FLOAT32 && dtype != GYRE_FLOAT64)
        return a == b;
    return a == b || (isnan(to_double(dtype, a)) && isnan(to_double(dtype, b)));
}

static void check_step(struct gyre_reduce_step *step, const char *what)
{
    const gyre_dtype dtype = (gyre_dtype)step->reduction->dtype;
    const unsigned elem_bytes = gyre_dtype_bytes(dtype);
    for (uint32_t k = 0; k < step->n_ins; k++) {
        for (size_t i = 0; i < AREA_BYTES; i += 8) {
            const uint64_t bits = fuzz_next(&rng);
            memcpy(in_areas[k] + i, &bits, 8);
        }
        memcpy(before[k], in_areas[k], AREA_BYTES);
    }
    gyre_reduce_run(step);
    uint64_t n_wrong = 0;
    for (size_t i = 0; i < step->n_elems; i++) {
        const uint64_t right = expected(step, i);
        for (uint32_t k = 0; k < step->n_outs; k++)
            n_wrong += !is_same(dtype, get(step->outs[k], dtype, i), right);
    }
    CHECK_MSG(n_wrong == 0, "%s: %s %s, %u ins, %u outs, %" PRIu64 " elements: %" PRIu64 " wrong",
              what, gyre_dtype_names[dtype], gyre_op_names[step->reduction->op], step->n_ins,
              step->n_outs, step->n_elems, n_wrong);
    for (uint32_t k = 0; k < step->n_outs; k++) {
        const unsigned char *after = (unsigned char *)step->outs[k] + step->n_elems * elem_bytes;
        if ((unsigned char *)step->outs[k] >= out_areas[0] &&
            (unsigned char *)step->outs[k] < out_areas[GYRE_STEP_MAX_OUTS - 1] + AREA_BYTES)
            CHECK_MSG(after[0] == 0xa5 && ((unsigned char *)step->outs[k])[-1] == 0xa5,
                      "%s: %s wrote outside of output %u", what, gyre_dtype_names[dtype], k);
    }
}

static struct gyre_reduce_step make_step(const struct gyre_reduction *reduction, uint32_t n_ins,
                                         uint32_t n_outs, uint64_t n_elems, unsigned offset)
{
    struct gyre_reduce_step step = {.reduction = reduction};
    memset(out_areas, 0xa5, sizeof(out_areas));
    step.n_ins = n_ins;
    step.n_outs = n_outs;
    step.n_elems = n_elems;
    for (uint32_t k = 0; k < n_ins; k++)
        step.ins[k] = in_areas[k] + PAD_BYTES + offset * (k + 1) % 16;
    for (uint32_t k = 0; k < n_outs; k++)
        step.outs[k] = out_areas[k] + PAD_BYTES + offset * (k + 2) % 16;
    return step;
}

static const uint64_t counts[] = {0, 1, 3, 15, 33, 257, 1023, 1025, 2050, 4999};
#define N_COUNTS (sizeof(counts) / sizeof(counts[0]))

TEST_CASE("every type, operation and fan-in is right")
{
    for (int dtype = 0; dtype < GYRE_N_DTYPES; dtype++) {
        for (int op = GYRE_SUM; op <= GYRE_MIN; op++) {
            const struct gyre_reduction reduction = {.dtype = (uint8_t)dtype, .op = (uint8_t)op};
            for (uint32_t n_ins = 1; n_ins <= GYRE_STEP_MAX_INS; n_ins++) {
                const uint64_t n_elems = counts[fuzz_below(&rng, N_COUNTS)];
                const uint32_t n_outs = 1 + (uint32_t)fuzz_below(&rng, GYRE_STEP_MAX_OUTS);
                const unsigned offset = (unsigned)fuzz_below(&rng, 16);
                struct gyre_reduce_step step =
                    make_step(&reduction, n_ins, n_outs, n_elems, offset);
                check_step(&step, "fan");
                step = make_step(&reduction, n_ins, 1, 1025, offset);
                check_step(&step, "one output");
            }
        }
    }
}

TEST_CASE("an output may be the very input")
{
    for (int dtype = 0; dtype < GYRE_N_DTYPES; dtype++) {
        for (uint32_t n_ins = 1; n_ins <= 4; n_ins++) {
            for (uint32_t k = 0; k < n_ins; k++) {
                const struct gyre_reduction reduction = {.dtype = (uint8_t)dtype, .op = GYRE_SUM};
                struct gyre_reduce_step step = make_step(&reduction, n_ins, 2, 2050, 3);
                step.outs[k % 2] = (void *)(uintptr_t)step.ins[k];
                check_step(&step, "two outputs, one in place");
                step.n_outs = 1;
                step.outs[0] = (void *)(uintptr_t)step.ins[k];
                check_step(&step, "in place");
            }
        }
    }
}

TEST_CASE("inputs are multiplied and rounded before they are reduced")
{
    for (int dtype = 0; dtype < GYRE_N_DTYPES; dtype++) {
        struct gyre_reduction reduction = {.dtype = (uint8_t)dtype, .premultiply = 1};
        reduction.scalar = gyre_dtype_is_float((gyre_dtype)dtype)
                               ? gyre_premultiply_scalar((gyre_dtype)dtype, 3)
                               : 7;
        for (uint32_t n_ins = 1; n_ins <= 5; n_ins++) {
            for (uint32_t mask = 1; mask < 1U << n_ins; mask++) {
                reduction.op = (uint8_t)(mask % 4);
                struct gyre_reduce_step step = make_step(&reduction, n_ins, 1 + mask % 2, 1025, 5);
                step.premultiply_mask = mask;
                check_step(&step, "pre-multiplied");
                step = make_step(&reduction, n_ins, 1, 1025, 0);
                step.premultiply_mask = mask;
                step.outs[0] = (void *)(uintptr_t)step.ins[n_ins - 1];
                check_step(&step, "pre-multiplied in place");
            }
        }
    }
}

TEST_CASE("integer averages divide the result towards zero")
{
    static const uint32_t divisors[] = {2, 3, 200, 1024};
    for (int dtype = GYRE_INT8; dtype <= GYRE_UINT64; dtype++) {
        for (uint32_t n_ins = 1; n_ins <= 4; n_ins++) {
            struct gyre_reduction reduction = {.dtype = (uint8_t)dtype, .op = GYRE_SUM};
            reduction.divisor = divisors[n_ins - 1];
            struct gyre_reduce_step step = make_step(&reduction, n_ins, 3, 1025, 1);
            step.divide = true;
            check_step(&step, "divided");
        }
    }
}
