/* SPDX-License-Identifier: Apache-2.0
 *
 * Accuracy: inputs are what the header says, true sums have no error, and a wrong digit has its
 * own.
 */
#include "kernels/accuracy.h"
#include "kernels/host/reduce.h"
#include "tests/support/check.h"

#include <float.h>
#include <math.h>

enum { COUNT = 9001 };

/* Half the machine epsilon, by the types' definitions. */
static const struct {
    gyre_dtype dtype;
    double roundoff;
} types[] = {
    {GYRE_FLOAT64, 0x1p-53}, {GYRE_FLOAT32, 0x1p-24},    {GYRE_FLOAT16, 0x1p-11},
    {GYRE_BFLOAT16, 0x1p-8}, {GYRE_FLOAT8_E4M3, 0x1p-4}, {GYRE_FLOAT8_E5M2, 0x1p-3},
};
#define N_TYPES (sizeof(types) / sizeof(types[0]))

static struct gyre_device *open_host(void)
{
    struct gyre_device *device = NULL;
    CHECK_OK(gyre_device_host.open(-1, &device));
    return device;
}

/* One step over all ranks (rounded once for narrow types), or one a rank, as along a ring. */
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
            else /* such inputs do round: what says 0 here measures nothing */
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

/* One rank's "sum" is its input, so whatever is added to it is the error. */
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
    CHECK_FAILS(gyre_accuracy_fill(device, &inputs, 0, 1, buffer), GYRE_ERROR_INVALID_ARGUMENT,
                "floating-point");
    inputs.dtype = GYRE_FLOAT32;
    CHECK_FAILS(gyre_accuracy_fill(device, &inputs, 2, 1, buffer), GYRE_ERROR_INVALID_ARGUMENT,
                "rank 2 of 2");
}
