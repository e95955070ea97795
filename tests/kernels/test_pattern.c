/* SPDX-License-Identifier: Apache-2.0
 *
 * Patterns: what check_reduced expects is what the reduction loops give in any order of ranks, and
 * a check finds every wrong element.
 */
#include "kernels/pattern.h"
#include "kernels/pattern_values.h"
#include "kernels/host/reduce.h"
#include "tests/support/check.h"

enum { MAX_COUNT = 9001, MAX_BYTES = MAX_COUNT * 8 };

static struct gyre_device *open_host(void)
{
    struct gyre_device *device = NULL;
    CHECK_OK(gyre_device_host.open(-1, &device));
    return device;
}

/* How the plan would carry out the operation. */
static struct gyre_reduction reduction_of(const struct gyre_pattern *pattern)
{
    struct gyre_reduction reduction = {.dtype = (uint8_t)pattern->dtype,
                                       .op = (uint8_t)pattern->op};
    if (pattern->op != GYRE_AVG)
        return reduction;
    reduction.op = GYRE_SUM;
    if (gyre_dtype_is_float(pattern->dtype)) {
        reduction.premultiply = 1;
        reduction.scalar = gyre_premultiply_scalar(pattern->dtype, pattern->n_ranks);
    } else {
        reduction.divisor = pattern->n_ranks;
    }
    return reduction;
}

/* result = rank `first`'s input, then the inputs of the other ranks in steps of `stride`, one at a
 * time: every partial
 * result is rounded to the type, as along a ring. */
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

/* Would a reduction that counts one rank twice and leaves another out be noticed? */
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
    CHECK_FAILS(gyre_pattern_fill(device, &pattern, 4, 0, 1, &value), GYRE_ERROR_INVALID_ARGUMENT,
                "rank 4 of 4");
    pattern.n_ranks = 0;
    CHECK_FAILS(gyre_pattern_fill(device, &pattern, 0, 0, 1, &value), GYRE_ERROR_INVALID_ARGUMENT,
                "rank 0 of 0");
}
