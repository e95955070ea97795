/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/calls/values.h"

#include "tests/fuzz/random.h"

#include <stdlib.h>
#include <string.h>

const struct fuzz_type fuzz_types[FUZZ_N_TYPES] = {
    [GYRE_INT8] = {"i8", 1, false, true, 127},
    [GYRE_UINT8] = {"u8", 1, false, false, 255},
    [GYRE_INT32] = {"i32", 4, false, true, 1 << 30},
    [GYRE_UINT32] = {"u32", 4, false, false, 1 << 30},
    [GYRE_INT64] = {"i64", 8, false, true, 1LL << 40},
    [GYRE_UINT64] = {"u64", 8, false, false, 1LL << 40},
    [GYRE_FLOAT16] = {"f16", 2, true, true, 1 << 11},
    [GYRE_FLOAT32] = {"f32", 4, true, true, 1 << 24},
    [GYRE_FLOAT64] = {"f64", 8, true, true, 1LL << 50},
    [GYRE_BFLOAT16] = {"bf16", 2, true, true, 1 << 8},
    [GYRE_FLOAT8_E4M3] = {"e4m3", 1, true, true, 1 << 4},
    [GYRE_FLOAT8_E5M2] = {"e5m2", 1, true, true, 1 << 3},
};
const char *const fuzz_op_names[FUZZ_N_OPS] = {"sum", "prod", "max", "min", "avg", "premul"};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static uint64_t cut(uint64_t bits, int type)
{
    const unsigned n_bytes = fuzz_types[type].n_bytes;
    return n_bytes == 8 ? bits : bits & ((1ULL << 8 * n_bytes) - 1);
}

/* In a format of 16 or 8 bits, from its bits as a float. */
static uint64_t encode_small(double value, unsigned exponent_bits, unsigned mantissa_bits)
{
    const float single = (float)value;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    const uint64_t sign = (uint64_t)(bits >> 31) << (exponent_bits + mantissa_bits);
    const int exponent = (int)(bits >> 23 & 255) - 127 + bias;
    const uint64_t mantissa = (bits & 0x7fffff) >> (23 - mantissa_bits);
    if (value == 0)
        return 0;
    if (exponent > 0)
        return sign | (uint64_t)exponent << mantissa_bits | mantissa;
    return sign | ((1ULL << mantissa_bits | mantissa) >> (1 - exponent)); /* subnormal */
}

static uint64_t encode_float(int type, double value)
{
    const float single = (float)value;
    uint64_t bits = 0;
    switch (type) {
    case GYRE_FLOAT16:
        return encode_small(value, 5, 10);
    case GYRE_BFLOAT16:
        return encode_small(value, 8, 7);
    case GYRE_FLOAT8_E4M3:
        return encode_small(value, 4, 3);
    case GYRE_FLOAT8_E5M2:
        return encode_small(value, 5, 2);
    case GYRE_FLOAT32:
        memcpy(&bits, &single, sizeof(single));
        return bits;
    default:
        memcpy(&bits, &value, sizeof(value));
        return bits;
    }
}

uint64_t fuzz_value_encode(int type, int64_t value)
{
    return fuzz_types[type].is_float ? encode_float(type, (double)value)
                                     : cut((uint64_t)value, type);
}

/* Extended to 64 bits. */
static int64_t extend(uint64_t bits, int type)
{
    switch (type) {
    case GYRE_INT8:
        return (int8_t)bits;
    case GYRE_UINT8:
        return (uint8_t)bits;
    case GYRE_INT32:
        return (int32_t)bits;
    case GYRE_UINT32:
        return (uint32_t)bits;
    default:
        return (int64_t)bits;
    }
}

/* Averages of floats multiply by 1/n first. Where n is not a power of two, an operand is n * q,
 * whose product with the rounded 1/n rounds to q. */
static int64_t multiple_of_n(const struct fuzz_values *values, uint64_t hash, size_t turn)
{
    const int64_t n = values->n_ranks, exact = fuzz_types[values->type].exact;
    const int64_t most = least(exact / n, 1 << 16);
    int64_t q = most < 1 ? 0 : (int64_t)(hash % (uint64_t)(2 * most + 1)) - most;
    if (fuzz_types[values->type].n_bytes == 1)
        q = turn < (size_t)exact && most >= 1 ? (hash & 1 ? 1 : -1) : 0;
    else if (llabs(q) * n > exact)
        q = 1;
    const bool is_whole = values->type == GYRE_FLOAT64
                              ? (double)(q * n) * (1.0 / (double)n) == (double)q
                              : (float)(q * n) * (1.0F / (float)n) == (float)q;
    return is_whole ? q * n : 0;
}

/* The sum over all ranks, multiplied by the scalar, stays within the exact integers. */
static int64_t bounded(const struct fuzz_values *values, uint64_t hash, size_t turn)
{
    const struct fuzz_type *type = &fuzz_types[values->type];
    const int64_t room = type->exact / llabs(values->scalar);
    const int64_t most = least(room / values->n_ranks, 1 << 20);
    const bool is_negative = type->is_signed && hash >> 63;
    int64_t value = 1 + (int64_t)(hash % (uint64_t)(most < 1 ? 1 : most));
    if (most < 1 && turn >= (size_t)room)
        value = 0;
    return is_negative ? -value : value;
}

static uint64_t hash_of(const struct fuzz_values *values, int rank, size_t i)
{
    return fuzz_mix(values->key + (uint64_t)rank * UINT64_C(0x51ed270b0a1f39c1) +
                    (uint64_t)i * UINT64_C(0x2545f4914f6cdd1d));
}

static int64_t operand(const struct fuzz_values *values, int rank, size_t i)
{
    const uint64_t hash = hash_of(values, rank, i);
    const struct fuzz_type *type = &fuzz_types[values->type];
    const int n = values->n_ranks;
    const size_t turn = ((size_t)rank + i) % (size_t)n;
    if (!type->is_float && values->op != GYRE_AVG) /* integers wrap alike in any order */
        return (int64_t)(hash >> (hash & 3 ? 0 : 57));
    if (values->op == GYRE_PROD) {
        /* 3, 2 or 1, so that the product of all ranks is at most 3 * 2^5. */
        const int64_t value = turn == 0 ? 3 : turn < 6 ? 1 + (int64_t)(hash & 1) : 1;
        return hash & 2 ? -value : value;
    }
    if (values->op == GYRE_MAX || values->op == GYRE_MIN)
        return (int64_t)(hash % (uint64_t)(2 * type->exact + 1)) - type->exact;
    if (values->op == GYRE_AVG && type->is_float && (n & (n - 1)) != 0)
        return multiple_of_n(values, hash, turn);
    return bounded(values, hash, turn);
}

uint64_t fuzz_value_sent(const struct fuzz_values *values, int rank, size_t i)
{
    if (values->is_reduction)
        return fuzz_value_encode(values->type, operand(values, rank, i));
    return cut(hash_of(values, rank, i), values->type);
}

static double reduce_float(const struct fuzz_values *values, size_t i)
{
    double total = 0;
    for (int rank = 0; rank < values->n_ranks; rank++) {
        const double value = (double)operand(values, rank, i) * (double)values->scalar;
        if (rank == 0)
            total = value;
        else if (values->op == GYRE_PROD)
            total *= value;
        else if (values->op == GYRE_MAX)
            total = value > total ? value : total;
        else if (values->op == GYRE_MIN)
            total = value < total ? value : total;
        else
            total += value;
    }
    return values->op == GYRE_AVG ? total / values->n_ranks : total;
}

static uint64_t reduce_integer(const struct fuzz_values *values, size_t i)
{
    const int type = values->type;
    uint64_t total = 0;
    for (int rank = 0; rank < values->n_ranks; rank++) {
        const uint64_t value = (uint64_t)extend((uint64_t)operand(values, rank, i), type);
        const bool is_less =
            type == GYRE_UINT64 ? value < total : (int64_t)value < extend(total, type);
        if (rank == 0)
            total = value * (uint64_t)values->scalar;
        else if (values->op == GYRE_PROD)
            total *= value;
        else if (values->op == GYRE_MAX)
            total = is_less ? total : value;
        else if (values->op == GYRE_MIN)
            total = is_less ? value : total;
        else
            total += value * (uint64_t)values->scalar;
    }
    if (values->op == GYRE_AVG) /* towards zero; `bounded` prevents wrapping */
        total = (uint64_t)(extend(total, type) / values->n_ranks);
    return cut(total, type);
}

uint64_t fuzz_value_reduced(const struct fuzz_values *values, size_t i)
{
    return fuzz_types[values->type].is_float ? encode_float(values->type, reduce_float(values, i))
                                             : reduce_integer(values, i);
}
