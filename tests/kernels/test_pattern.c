/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/check/pattern.h"
#include "bench/check/pattern_values.h"
#include "core/engine/plan/plan.h"
#include "kernels/host/host_exec.h"
#include "tests/support/check.h"

#include <float.h>
#include <math.h>

enum { MAX_COUNT = 9001, MAX_BYTES = MAX_COUNT * 8 };

static struct gyre_device *open_host(void)
{
    struct gyre_device *device = NULL;
    CHECK_OK(gyre_device_host.open(-1, &device));
    return device;
}

static struct gyre_reduction reduction_of(const struct gyre_pattern *pattern)
{
    const struct gyre_call call = {
        .coll = GYRE_COLL_ALL_REDUCE, .dtype = pattern->dtype, .op = pattern->op};
    return gyre_call_reduction(&call, pattern->n_ranks);
}

/* Rank `first`'s input, then the other ranks' in steps of `stride`: every partial result is rounded
 * to the type, as along a ring. */
static void reduce_along(struct gyre_device *device, const struct gyre_pattern *pattern,
                         uint32_t first, uint32_t stride, uint64_t count, unsigned char *result,
                         unsigned char *input)
{
    const struct gyre_reduction reduction = reduction_of(pattern);
    for (uint32_t i = 0; i < pattern->n_ranks; i++) {
        const uint32_t rank =
            (uint32_t)(((uint64_t)first + (uint64_t)i * stride) % pattern->n_ranks);
        CHECK_OK(gyre_pattern_fill(device, pattern, rank, 0, count, i == 0 ? result : input));
        struct gyre_reduce_step step = {.reduction = &reduction, .n_outs = 1, .n_elems = count};
        step.outs[0] = result;
        step.ins[0] = result;
        step.ins[1] = input;
        step.n_ins = i == 0 ? 1 : 2;
        step.premultiply_mask = reduction.premultiply ? (i == 0 ? 1 : 2) : 0;
        step.divide = i + 1 == pattern->n_ranks && reduction.divisor > 1;
        gyre_reduce_run(&step);
    }
}

static void expect_right(struct gyre_device *device, const struct gyre_pattern *pattern,
                         uint64_t count, const void *buffer)
{
    struct gyre_pattern_errors errors = {1, 0, 0, 0};
    CHECK_OK(gyre_pattern_check_reduced(device, pattern, 0, count, buffer, &errors));
    CHECK_MSG(errors.n_wrong == 0,
              "%s %s of %u ranks: %" PRIu64 " wrong, element %" PRIu64 " is 0x%" PRIx64
              ", not 0x%" PRIx64,
              gyre_dtype_names[pattern->dtype], gyre_op_names[pattern->op], pattern->n_ranks,
              errors.n_wrong, errors.first_wrong, errors.got, errors.expected);
}

TEST_CASE("the expected reduction is right in every order")
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 128, 300, 512, 1000, 1024};
    static unsigned char result[MAX_BYTES];
    static unsigned char input[MAX_BYTES];
    struct gyre_device *device = open_host();
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        const uint32_t n = sizes[s];
        const uint64_t count = n > 64 ? 61 : 997;
        for (int dtype = 0; dtype < GYRE_N_DTYPES; dtype++) {
            for (int op = 0; op < GYRE_N_OPS; op++) {
                const struct gyre_pattern pattern = {(gyre_dtype)dtype, (gyre_op)op, n, n + 5};
                reduce_along(device, &pattern, 0, 1, count, result, input);
                expect_right(device, &pattern, count, result);
                reduce_along(device, &pattern, n - 1, n - 1, count, result, input);
                expect_right(device, &pattern, count, result);
                if (n % 7 != 0)
                    reduce_along(device, &pattern, n / 2, 7, count, result, input);
                expect_right(device, &pattern, count, result);
            }
        }
    }
}

TEST_CASE("any part of a pattern is the same pattern")
{
    static unsigned char whole[MAX_BYTES];
    static unsigned char part[MAX_BYTES];
    struct gyre_device *device = open_host();
    for (int dtype = 0; dtype < GYRE_N_DTYPES; dtype++) {
        const struct gyre_pattern pattern = {(gyre_dtype)dtype, GYRE_SUM, 3, 9};
        const unsigned elem_bytes = gyre_dtype_bytes((gyre_dtype)dtype);
        struct gyre_pattern_errors errors = {1, 0, 0, 0};
        CHECK_OK(gyre_pattern_fill(device, &pattern, 2, 0, MAX_COUNT, whole));
        CHECK_OK(gyre_pattern_fill(device, &pattern, 2, 4000, 5000, part));
        CHECK(memcmp(part, whole + 4000 * elem_bytes, (size_t)5000 * elem_bytes) == 0);
        CHECK_OK(gyre_pattern_check_copy(device, &pattern, 2, 4000, 5000, part, &errors));
        CHECK(errors.n_wrong == 0);
    }
}

TEST_CASE("a wrong element is found and named")
{
    static unsigned char buffer[MAX_BYTES];
    struct gyre_device *device = open_host();
    const struct gyre_pattern pattern = {GYRE_UINT32, GYRE_SUM, 4, 77};
    struct gyre_pattern_errors errors = {0, 0, 0, 0};
    uint32_t right;
    CHECK_OK(gyre_pattern_fill(device, &pattern, 1, 100, MAX_COUNT, buffer));
    memcpy(&right, buffer + 8000 * 4, 4);
    buffer[8000 * 4 + 3] ^= 0x40;
    buffer[9000 * 4] ^= 1;
    CHECK_OK(gyre_pattern_check_copy(device, &pattern, 1, 100, MAX_COUNT, buffer, &errors));
    CHECK(errors.n_wrong == 2 && errors.first_wrong == 8100);
    CHECK(errors.expected == right && errors.got == (right ^ 0x40000000U));
}

TEST_CASE("patterns tell ranks, seeds and places apart")
{
    for (int dtype = 0; dtype < GYRE_N_DTYPES; dtype++) {
        for (int op = 0; op < GYRE_N_OPS; op++) {
            const struct gyre_pattern pattern = {(gyre_dtype)dtype, (gyre_op)op, 8, 1};
            struct gyre_pattern other = pattern;
            other.seed = 2;
            uint32_t n_same_rank = 0;
            uint32_t n_same_seed = 0;
            uint32_t n_same_place = 0;
            for (uint64_t i = 0; i < 1000; i++) {
                const uint64_t value = gyre_pattern_value(&pattern, 3, i);
                n_same_rank += value == gyre_pattern_value(&pattern, 4, i);
                n_same_seed += value == gyre_pattern_value(&other, 3, i);
                n_same_place += value == gyre_pattern_value(&pattern, 3, i + 64);
            }
            CHECK_MSG(n_same_rank < 900 && n_same_seed < 900 && n_same_place < 900,
                      "%s %s: %u %u %u of 1000 are equal", gyre_dtype_names[dtype],
                      gyre_op_names[op], n_same_rank, n_same_seed, n_same_place);
        }
    }
}

TEST_CASE("a rank that is not there is refused")
{
    struct gyre_device *device = open_host();
    struct gyre_pattern pattern = {GYRE_FLOAT32, GYRE_SUM, 4, 1};
    float value = 0;
    CHECK_BAD_ARGUMENT(gyre_pattern_fill(device, &pattern, 4, 0, 1, &value), "rank 4 of 4");
    pattern.n_ranks = 0;
    CHECK_BAD_ARGUMENT(gyre_pattern_fill(device, &pattern, 0, 0, 1, &value), "rank 0 of 0");
}

enum { COUNT = 9001 };

static const struct {
    gyre_dtype dtype;
    double roundoff;
} types[] = {
    {GYRE_FLOAT64, 0x1p-53}, {GYRE_FLOAT32, 0x1p-24},    {GYRE_FLOAT16, 0x1p-11},
    {GYRE_BFLOAT16, 0x1p-8}, {GYRE_FLOAT8_E4M3, 0x1p-4}, {GYRE_FLOAT8_E5M2, 0x1p-3},
};
#define N_TYPES (sizeof(types) / sizeof(types[0]))

static void sum(struct gyre_device *device, const struct gyre_accuracy_inputs *inputs, bool is_ring,
                unsigned char *result)
{
    static unsigned char input[8][COUNT * 8];
    const struct gyre_reduction reduction = {
        .dtype = (uint8_t)inputs->dtype, .op = GYRE_SUM, .divisor = 1};
    struct gyre_reduce_step step = {.reduction = &reduction, .n_outs = 1, .n_elems = COUNT};
    step.outs[0] = result;
    for (uint32_t rank = 0; rank < inputs->n_ranks; rank++) {
        CHECK_OK(gyre_accuracy_fill(device, inputs, rank, COUNT, input[rank]));
        step.ins[is_ring ? rank > 0 : rank] = input[rank];
        if (is_ring && rank > 0)
            step.ins[0] = result;
        step.n_ins = is_ring ? 1 + (rank > 0) : inputs->n_ranks;
        if (is_ring || rank + 1 == inputs->n_ranks)
            gyre_reduce_run(&step);
    }
}

static struct gyre_accuracy_error
error_of(struct gyre_device *device, const struct gyre_accuracy_inputs *inputs, const void *result)
{
    struct gyre_accuracy_error error = {0, 0, 0};
    CHECK_OK(gyre_accuracy_check(device, inputs, COUNT, result, &error));
    CHECK(error.n_elems == COUNT);
    return error;
}

TEST_CASE("inputs are spread over many powers of two")
{
    static float values[COUNT], others[COUNT];
    struct gyre_device *device = open_host();
    const struct gyre_accuracy_inputs inputs = {GYRE_FLOAT32, 4, 7};
    CHECK_OK(gyre_accuracy_fill(device, &inputs, 1, COUNT, values));
    CHECK_OK(gyre_accuracy_fill(device, &inputs, 2, COUNT, others));
    int n_of[24] = {0}, n_negative = 0, n_equal = 0;
    for (int i = 0; i < COUNT; i++) {
        const int exponent = ilogbf(values[i]);
        CHECK_MSG(exponent >= -11 && exponent <= 13, "%g", (double)values[i]);
        n_of[exponent > 12 ? 23 : exponent + 11]++; /* what was rounded up to 2^13 */
        n_negative += values[i] < 0;
        n_equal += values[i] == others[i];
    }
    for (int i = 0; i < 24; i++) /* 375 expected, standard deviation 19 */
        CHECK_MSG(n_of[i] > 275 && n_of[i] < 475, "2^%d: %d", i - 11, n_of[i]);
    CHECK_MSG(n_negative > 4200 && n_negative < 4800, "%d", n_negative);
    CHECK(n_equal < 5);
    CHECK_OK(gyre_accuracy_fill(device, &inputs, 1, COUNT, others));
    CHECK(memcmp(values, others, sizeof(values)) == 0); /* any rank computes the same */
}

TEST_CASE("sums of all types stay within the bound")
{
    static unsigned char result[COUNT * 8];
    struct gyre_device *device = open_host();
    for (size_t t = 0; t < N_TYPES; t++)
        for (uint32_t n = 1; n <= 8; n++) {
            const struct gyre_accuracy_inputs inputs = {types[t].dtype, n, n};
            const double bound = gyre_accuracy_bound(inputs.dtype, n);
            sum(device, &inputs, true, result);
            const struct gyre_accuracy_error ring = error_of(device, &inputs, result);
            CHECK_MSG(ring.max <= bound, "%s of %u: %g, bound %g", gyre_dtype_names[inputs.dtype],
                      n, ring.max, bound);
            if (n == 1)
                CHECK(ring.max == 0 && ring.sum == 0);
            else /* such inputs do round */
                CHECK_MSG(ring.max > types[t].roundoff / 2, "%s of %u: %g",
                          gyre_dtype_names[inputs.dtype], n, ring.max);
            sum(device, &inputs, false, result);
            const struct gyre_accuracy_error once = error_of(device, &inputs, result);
            if (gyre_dtype_bytes(inputs.dtype) < 4) /* f32 rounds a little, the type once */
                CHECK_MSG(once.max <= types[t].roundoff * 1.001 && once.sum <= ring.sum,
                          "%s of %u: %g", gyre_dtype_names[inputs.dtype], n, once.max);
        }
}

TEST_CASE("the bound is the book's")
{
    for (size_t t = 0; t < N_TYPES; t++) {
        const double u = types[t].roundoff;
        const double expected = 2 * u / (1 - 2 * u);
        const double bound = gyre_accuracy_bound(types[t].dtype, 3);
        CHECK_MSG(bound >= expected && bound < expected * 1.001, "%s: %g, not %g",
                  gyre_dtype_names[types[t].dtype], bound, expected);
    }
    CHECK(gyre_accuracy_bound(GYRE_FLOAT32, 1) == 0);
    CHECK(isinf(gyre_accuracy_bound(GYRE_FLOAT8_E5M2, 9)));
    CHECK(gyre_accuracy_bound(GYRE_INT32, 4) == 0);
}

TEST_CASE("a wrong digit is measured as what it is")
{
    static double result[COUNT];
    struct gyre_device *device = open_host();
    const struct gyre_accuracy_inputs inputs = {GYRE_FLOAT64, 1, 3};
    CHECK_OK(gyre_accuracy_fill(device, &inputs, 0, COUNT, result));
    result[COUNT - 1] *= 2;
    result[5000] *= 0.5;
    struct gyre_accuracy_error error = error_of(device, &inputs, result);
    CHECK_MSG(error.max == 1 && error.sum == 1.5, "%g, %g", error.max, error.sum);
    /* the last digit */
    CHECK_OK(gyre_accuracy_fill(device, &inputs, 0, COUNT, result));
    result[17] = nextafter(result[17], INFINITY);
    error = error_of(device, &inputs, result);
    CHECK_MSG(error.max > 0x1p-54 && error.max <= 0x1p-52, "%g", error.max);
    result[17] = NAN;
    CHECK(isinf(error_of(device, &inputs, result).max));
    result[17] = -INFINITY;
    CHECK(isinf(error_of(device, &inputs, result).max));
}

TEST_CASE("what has no accuracy is refused")
{
    unsigned char buffer[8];
    struct gyre_device *device = open_host();
    struct gyre_accuracy_inputs inputs = {GYRE_INT32, 2, 1};
    CHECK_BAD_ARGUMENT(gyre_accuracy_fill(device, &inputs, 0, 1, buffer), "floating-point");
    inputs.dtype = GYRE_FLOAT32;
    CHECK_BAD_ARGUMENT(gyre_accuracy_fill(device, &inputs, 2, 1, buffer), "rank 2 of 2");
}
