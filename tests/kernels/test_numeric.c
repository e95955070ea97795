/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/numeric.h"
#include "kernels/executor.h"
#include "tests/support/check.h"

#include <math.h>

struct format {
    const char *name;
    int n_mantissa;
    int bias;
    unsigned n_codes;
    unsigned first_special; /* magnitude of infinity, or of the only NaN */
    bool has_infinity;
    bool saturates;
    unsigned nan;
    float (*widen)(unsigned bits);
    unsigned (*narrow)(float value);
};

#define FORMAT(name, code_type)                       \
    static float widen_##name(unsigned bits)          \
    {                                                 \
        return gyre_##name##_to_f32((code_type)bits); \
    }                                                 \
    static unsigned narrow_##name(float value)        \
    {                                                 \
        return gyre_f32_to_##name(value);             \
    }

FORMAT(f16, uint16_t)
FORMAT(bf16, uint16_t)
FORMAT(f8e4m3, uint8_t)
FORMAT(f8e5m2, uint8_t)

static const struct format formats[] = {
    {"f16", 10, 15, 65536, 0x7c00, true, false, 0x7fff, widen_f16, narrow_f16},
    {"bf16", 7, 127, 65536, 0x7f80, true, false, 0x7fff, widen_bf16, narrow_bf16},
    {"e4m3", 3, 7, 256, 0x7f, false, true, 0x7f, widen_f8e4m3, narrow_f8e4m3},
    {"e5m2", 2, 15, 256, 0x7c, true, true, 0x7f, widen_f8e5m2, narrow_f8e5m2},
};
#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

static double value_of(const struct format *format, unsigned bits)
{
    const unsigned mag = bits & (format->n_codes / 2 - 1);
    const int exponent = (int)(mag >> format->n_mantissa);
    const double mantissa = (double)(mag & ((1U << format->n_mantissa) - 1));
    const double one = (double)(1U << format->n_mantissa);
    const double value = exponent == 0 ? ldexp(mantissa / one, 1 - format->bias)
                                       : ldexp(1 + mantissa / one, exponent - format->bias);
    return mag != bits ? -value : value;
}

static unsigned code_of(const struct format *format, double value)
{
    const unsigned sign = signbit(value) ? format->n_codes / 2 : 0;
    const unsigned largest = format->first_special - 1;
    if (isnan(value))
        return format->nan;
    const double mag = fabs(value);
    if (mag == 0)
        return sign;
    int exponent;
    (void)frexp(mag, &exponent); /* mag = f * 2^exponent, 0.5 <= f < 1 */
    int lowest_bit = exponent - 1 - format->n_mantissa;
    if (isinf(mag) || exponent > 200)
        lowest_bit = 200;
    if (lowest_bit < 1 - format->bias - format->n_mantissa)
        lowest_bit = 1 - format->bias - format->n_mantissa;
    const double rounded = ldexp(rint(ldexp(mag, -lowest_bit)), lowest_bit);
    if (rounded > value_of(format, largest))
        return sign | (format->saturates ? largest : format->first_special);
    for (int e = 0;; e++) { /* search the code by its exponent */
        const double base = value_of(format, (unsigned)e << format->n_mantissa);
        const double next = ldexp(1, (e == 0 ? 1 : e + 1) - format->bias);
        if (rounded >= next)
            continue;
        const double unit = ldexp(1, (e == 0 ? 1 : e) - format->bias - format->n_mantissa);
        return sign | ((unsigned)e << format->n_mantissa) | (unsigned)((rounded - base) / unit);
    }
}

TEST_CASE("every code of a small float widens to its value and comes back")
{
    for (size_t f = 0; f < N_FORMATS; f++) {
        const struct format *format = &formats[f];
        const unsigned half = format->n_codes / 2;
        for (unsigned bits = 0; bits < format->n_codes; bits++) {
            const float got = format->widen(bits);
            const unsigned mag = bits & (half - 1);
            if (mag > format->first_special ||
                (mag == format->first_special && !format->has_infinity)) {
                CHECK_MSG(isnan(got), "%s 0x%x gave %g", format->name, bits, (double)got);
                CHECK_MSG(format->narrow(got) == format->nan, "%s 0x%x", format->name, bits);
                continue;
            }
            const double expected = mag < format->first_special ? value_of(format, bits)
                                    : bits < half               ? (double)INFINITY
                                                                : -(double)INFINITY;
            CHECK_MSG((double)got == expected && (signbit(got) != 0) == (bits >= half),
                      "%s 0x%x gave %g, not %g", format->name, bits, (double)got, expected);
            const unsigned back =
                mag == format->first_special && format->saturates ? bits - 1 : bits;
            CHECK_MSG(format->narrow(got) == back, "%s 0x%x came back as 0x%x", format->name, bits,
                      format->narrow(got));
        }
    }
}

static void check_narrow(const struct format *format, float value)
{
    const unsigned got = format->narrow(value);
    const unsigned expected = code_of(format, (double)value);
    CHECK_MSG(got == expected, "%s of %a gave 0x%x, not 0x%x", format->name, (double)value, got,
              expected);
}

TEST_CASE("narrowing rounds to the nearest even code")
{
    for (size_t f = 0; f < N_FORMATS; f++) {
        const struct format *format = &formats[f];
        /* every code, every midpoint to the next, and their neighbours in f32 */
        for (unsigned bits = 0; bits + 1 < format->first_special; bits++) {
            const float here = (float)value_of(format, bits);
            const float middle = (float)((value_of(format, bits) + value_of(format, bits + 1)) / 2);
            const float points[] = {here, middle};
            for (int i = 0; i < 2; i++) {
                for (int sign = -1; sign <= 1; sign += 2) {
                    const float value = points[i] * (float)sign;
                    check_narrow(format, value);
                    check_narrow(format, nextafterf(value, INFINITY));
                    check_narrow(format, nextafterf(value, -INFINITY));
                }
            }
        }
        uint64_t state = 12345; /* and floats of all kinds */
        for (int i = 0; i < 2000000; i++) {
            state = state * 6364136223846793005ULL + 1442695040888963407ULL;
            check_narrow(format, gyre_f32_from_bits((uint32_t)(state >> 32)));
        }
        check_narrow(format, INFINITY);
        check_narrow(format, -INFINITY);
        check_narrow(format, NAN);
        check_narrow(format, -NAN);
        check_narrow(format, 3.4e38F);
    }
}

TEST_CASE("fp8 saturates at its largest finite value")
{
    CHECK(gyre_f32_to_f8e4m3(INFINITY) == 0x7e && gyre_f32_to_f8e4m3(-1e9F) == 0xfe);
    CHECK(gyre_f32_to_f8e5m2(INFINITY) == 0x7b && gyre_f32_to_f8e5m2(-1e9F) == 0xfb);
    CHECK(gyre_f8e4m3_to_f32(0x7e) == 448.0F && gyre_f8e5m2_to_f32(0x7b) == 57344.0F);
    CHECK(gyre_f32_to_f16(65520.0F) == 0x7c00 && gyre_f32_to_f16(65519.0F) == 0x7bff);
}

TEST_CASE("max and min order zeros and keep NaNs")
{
    const float values[] = {-INFINITY, -2, -0.0F, 0.0F, 1, 3, INFINITY, NAN};
    for (int i = 0; i < 8; i++) {
        for (int j = 0; j < 8; j++) {
            const float a = values[i];
            const float b = values[j];
            const float large = gyre_op_max_f32(a, b);
            const float small = gyre_op_min_f32(a, b);
            const double large64 = gyre_op_max_f64((double)a, (double)b);
            const double small64 = gyre_op_min_f64((double)a, (double)b);
            if (i == 7 || j == 7) {
                CHECK(isnan(large) && isnan(small) && isnan(large64) && isnan(small64));
                continue;
            }
            const float highest = values[i > j ? i : j]; /* the list is in order */
            const float lowest = values[i < j ? i : j];
            CHECK(gyre_f32_bits(large) == gyre_f32_bits(highest));
            CHECK(gyre_f32_bits(small) == gyre_f32_bits(lowest));
            CHECK(gyre_f64_bits(large64) == gyre_f64_bits((double)highest));
            CHECK(gyre_f64_bits(small64) == gyre_f64_bits((double)lowest));
        }
    }
}

TEST_CASE("integers wrap and divide towards zero")
{
    CHECK(gyre_op_sum_i8(127, 1) == -128);
    CHECK(gyre_op_prod_u8(16, 17) == 16);
    CHECK(gyre_op_sum_i32(INT32_MAX, 1) == INT32_MIN);
    CHECK(gyre_op_prod_i32(65536, 65537) == 65536);
    CHECK(gyre_op_sum_i64(INT64_MAX, 1) == INT64_MIN);
    CHECK(gyre_op_prod_u64(1ULL << 63, 3) == 1ULL << 63);
    CHECK(gyre_op_divide_i8(-128, 3) == -42 && gyre_op_divide_i8(-100, 1000) == 0);
    CHECK(gyre_op_divide_u8(255, 256) == 0 && gyre_op_divide_i64(-7, 2) == -3);
    CHECK(gyre_op_divide_u64(UINT64_MAX, 2) == UINT64_MAX / 2);
    CHECK(gyre_op_max_u32(1, UINT32_MAX) == UINT32_MAX && gyre_op_max_i32(1, -1) == 1);
}

TEST_CASE("the average's factor is 1/n rounded once")
{
    static const gyre_dtype dtypes[] = {GYRE_FLOAT16, GYRE_BFLOAT16, GYRE_FLOAT8_E4M3,
                                        GYRE_FLOAT8_E5M2};
    for (uint32_t n = 1; n <= GYRE_MAX_RANKS; n++) {
        for (size_t f = 0; f < N_FORMATS; f++)
            CHECK(gyre_premultiply_scalar(dtypes[f], n) == code_of(&formats[f], 1.0 / n));
        CHECK(gyre_premultiply_scalar(GYRE_FLOAT32, n) == gyre_f32_bits(1.0F / (float)n));
        CHECK(gyre_premultiply_scalar(GYRE_FLOAT64, n) == gyre_f64_bits(1.0 / n));
    }
    CHECK(gyre_premultiply_scalar(GYRE_INT32, 4) == 1);
}
