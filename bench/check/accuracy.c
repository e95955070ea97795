/* SPDX-License-Identifier: Apache-2.0
 *
 * On the host, because the code under test must not compute its own expected values.
 */
#include "bench/check/pattern.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"
#include "core/foundation/model/schedule.h"
#include "bench/check/pattern_values.h"

#include <float.h>
#include <math.h>

#define BLOCK_ELEMS       4096
#define N_BINADES         24 /* f32's mantissa */
#define LARGEST_BINADE    12 /* where the type has them */
#define F32_ROUNDOFF      0x1p-24
#define F64_MANTISSA_BITS 52
#define F64_BIAS          1023
#define SECOND_WORD_KEY   0x6c8e9cf5U

struct format {
    int n_mantissa_bits; /* 0 = not floating-point */
    int min_exponent;
    int max_exponent;
};

static struct format format_of(gyre_dtype dtype)
{
    switch (dtype) {
    case GYRE_FLOAT16:
        return (struct format){10, -14, 15};
    case GYRE_BFLOAT16:
        return (struct format){7, -126, 127};
    case GYRE_FLOAT32:
        return (struct format){23, -126, 127};
    case GYRE_FLOAT64:
        return (struct format){52, -1022, 1023};
    case GYRE_FLOAT8_E4M3:
        return (struct format){3, -6, 8};
    case GYRE_FLOAT8_E5M2:
        return (struct format){2, -14, 15};
    default:
        return (struct format){0, 0, 0};
    }
}

double gyre_accuracy_bound(gyre_dtype dtype, uint32_t n_ranks)
{
    const struct format format = format_of(dtype);
    if (format.n_mantissa_bits == 0 || n_ranks == 0)
        return 0;
    double n_roundoffs = ldexp(n_ranks - 1.0, -format.n_mantissa_bits - 1);
    if (gyre_dtype_bytes(dtype) < 4)
        n_roundoffs += (n_ranks - 1.0) * F32_ROUNDOFF;
    return n_roundoffs < 1 ? n_roundoffs / (1 - n_roundoffs) : INFINITY;
}

/* Inputs are drawn from [2^e, 2^(e+1)), lowest <= e < lowest + n. */
struct binades {
    int lowest;
    uint32_t n;
};

/* n_ranks times the largest input stays below 2^max_exponent, hence finite. */
static struct binades binades_of(const struct gyre_accuracy_inputs *inputs)
{
    const struct format format = format_of(inputs->dtype);
    int highest = format.max_exponent - 1;
    for (uint32_t n = 1; n < inputs->n_ranks; n *= 2)
        highest--;
    if (highest > LARGEST_BINADE)
        highest = LARGEST_BINADE;
    int lowest = highest - N_BINADES + 1;
    if (lowest < format.min_exponent)
        lowest = format.min_exponent;
    return (struct binades){lowest, (uint32_t)(highest - lowest + 1)};
}

static gyre_status check_inputs(const struct gyre_accuracy_inputs *inputs, uint32_t rank)
{
    if ((unsigned)inputs->dtype >= GYRE_N_DTYPES || !gyre_dtype_is_float(inputs->dtype))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "accuracy is of floating-point types, not of type %d", (int)inputs->dtype);
    if (rank >= inputs->n_ranks || inputs->n_ranks > GYRE_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "no inputs of rank %u of %u", rank,
                         inputs->n_ranks);
    return GYRE_SUCCESS;
}

static void store(gyre_dtype dtype, double value, unsigned char *to)
{
    switch (dtype) {
#define STORE(id, stored, type, family, load, store)    \
    case GYRE_##id: {                                   \
        const stored bits = (stored)store((type)value); \
        memcpy(to, &bits, sizeof(bits));                \
        break;                                          \
    }
        GYRE_NUMERIC_TABLE(STORE)
#undef STORE
    }
}

static double load(gyre_dtype dtype, const unsigned char *from)
{
    switch (dtype) {
#define LOAD(id, stored, type, family, load, store) \
    case GYRE_##id: {                               \
        stored bits;                                \
        memcpy(&bits, from, sizeof(bits));          \
        return (double)load(bits);                  \
    }
        GYRE_NUMERIC_TABLE(LOAD)
#undef LOAD
    }
    return NAN;
}

static double input_of(const struct gyre_accuracy_inputs *inputs, const struct binades *binades,
                       uint32_t rank, uint32_t element)
{
    const uint32_t high = gyre_pattern_mix(inputs->seed, rank + 1, element);
    const uint32_t low = gyre_pattern_mix(inputs->seed ^ SECOND_WORD_KEY, rank + 1, element);
    const uint64_t mantissa = ((uint64_t)high << 32 | low) >> (64 - F64_MANTISSA_BITS);
    const int exponent = binades->lowest + (int)((low >> 1 & 0x3ffU) % binades->n);
    const double value =
        gyre_f64_from_bits((uint64_t)(low & 1U) << 63 |
                           (uint64_t)(F64_BIAS + exponent) << F64_MANTISSA_BITS | mantissa);
    unsigned char bits[8];
    store(inputs->dtype, value, bits);
    return load(inputs->dtype, bits);
}

gyre_status gyre_accuracy_fill(struct gyre_device *device,
                               const struct gyre_accuracy_inputs *inputs, uint32_t rank,
                               uint64_t count, void *buffer)
{
    unsigned char block[BLOCK_ELEMS * 8];
    GYRE_TRY(check_inputs(inputs, rank));
    const struct binades binades = binades_of(inputs);
    const uint64_t element = gyre_dtype_bytes(inputs->dtype);
    for (uint64_t done = 0; done < count; done += BLOCK_ELEMS) {
        const uint64_t n = gyre_min_u64(BLOCK_ELEMS, count - done);
        for (uint64_t i = 0; i < n; i++)
            store(inputs->dtype, input_of(inputs, &binades, rank, (uint32_t)(done + i)),
                  block + i * element);
        GYRE_TRY(device->ops->copy(device, (unsigned char *)buffer + done * element, block,
                                   n * element));
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_accuracy_check(struct gyre_device *device,
                                const struct gyre_accuracy_inputs *inputs, uint64_t count,
                                const void *buffer, struct gyre_accuracy_error *error)
{
    unsigned char block[BLOCK_ELEMS * 8];
    GYRE_TRY(check_inputs(inputs, 0));
    const struct binades binades = binades_of(inputs);
    const uint64_t element = gyre_dtype_bytes(inputs->dtype);
    for (uint64_t done = 0; done < count; done += BLOCK_ELEMS) {
        const uint64_t n = gyre_min_u64(BLOCK_ELEMS, count - done);
        GYRE_TRY(device->ops->copy(device, block, (const unsigned char *)buffer + done * element,
                                   n * element));
        for (uint64_t i = 0; i < n; i++) {
            /* What each addition to `high` loses is known exactly (Knuth's TwoSum) and kept in
             * `low`; float64 cannot judge itself. */
            double high = 0, low = 0, magnitude = 0;
            for (uint32_t rank = 0; rank < inputs->n_ranks; rank++) {
                const double x = input_of(inputs, &binades, rank, (uint32_t)(done + i));
                const double sum = high + x;
                const double x_part = sum - high;
                low += (high - (sum - x_part)) + (x - x_part);
                high = sum;
                magnitude += fabs(x);
            }
            const double result = load(inputs->dtype, block + i * element);
            double one = fabs((result - high) - low) / magnitude;
            one = one <= DBL_MAX ? one : INFINITY; /* false of a NaN */
            error->max = one > error->max ? one : error->max;
            error->sum += one;
        }
        error->n_elems += n;
    }
    return GYRE_SUCCESS;
}
