/* SPDX-License-Identifier: Apache-2.0
 *
 * Included by reduce.c once for each instruction set: no include guard. LOOPS_TARGET is the
 * function attribute, LOOPS_NAME(x) adds a suffix, LOOPS_TABLE names the table.
 */

/* An input may be the output: no dependence between iterations, but the compiler cannot know. */
#if defined(__clang__)
#define LOOPS_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOOPS_VECTORISE _Pragma("GCC ivdep")
#endif

/* two inputs, the hot case of rings */
#define LOOPS_PAIR(id, op, type, family, load, store)                                              \
    LOOPS_TARGET static void LOOPS_NAME(pair_##op##_##id)(void *out, const void *a, const void *b, \
                                                          size_t n_elems)                          \
    {                                                                                              \
        stored_##id *to = out;                                                                     \
        const stored_##id *x = a;                                                                  \
        const stored_##id *y = b;                                                                  \
        LOOPS_VECTORISE                                                                            \
        for (size_t i = 0; i < n_elems; i++)                                                       \
            to[i] = store(gyre_op_##op##_##family(load(x[i]), load(y[i])));                        \
    }

/* Intermediate results stay in the computing type. */
#define LOOPS_CHAIN(id, op, type, family, load, store)                                             \
    LOOPS_TARGET static void LOOPS_NAME(start_##op##_##id)(void *out, const void *a,               \
                                                           const void *b, size_t n_elems)          \
    {                                                                                              \
        type *to = out;                                                                            \
        const stored_##id *x = a;                                                                  \
        const stored_##id *y = b;                                                                  \
        LOOPS_VECTORISE                                                                            \
        for (size_t i = 0; i < n_elems; i++)                                                       \
            to[i] = gyre_op_##op##_##family(load(x[i]), load(y[i]));                               \
    }                                                                                              \
    LOOPS_TARGET static void LOOPS_NAME(more_##op##_##id)(void *out, const void *a, const void *b, \
                                                          size_t n_elems)                          \
    {                                                                                              \
        type *to = out;                                                                            \
        const type *x = a;                                                                         \
        const stored_##id *y = b;                                                                  \
        LOOPS_VECTORISE                                                                            \
        for (size_t i = 0; i < n_elems; i++)                                                       \
            to[i] = gyre_op_##op##_##family(x[i], load(y[i]));                                     \
    }                                                                                              \
    LOOPS_TARGET static void LOOPS_NAME(end_##op##_##id)(void *out, const void *a, const void *b,  \
                                                         size_t n_elems)                           \
    {                                                                                              \
        stored_##id *to = out;                                                                     \
        const type *x = a;                                                                         \
        const stored_##id *y = b;                                                                  \
        LOOPS_VECTORISE                                                                            \
        for (size_t i = 0; i < n_elems; i++)                                                       \
            to[i] = store(gyre_op_##op##_##family(x[i], load(y[i])));                              \
    }

#define LOOPS_SCALE(id, type, family, load, store)                                                 \
    LOOPS_TARGET static void LOOPS_NAME(scale_##id)(void *out, const void *in, const void *scalar, \
                                                    size_t n_elems)                                \
    {                                                                                              \
        stored_##id *to = out;                                                                     \
        const stored_##id *x = in;                                                                 \
        const type factor = load(*(const stored_##id *)scalar);                                    \
        LOOPS_VECTORISE                                                                            \
        for (size_t i = 0; i < n_elems; i++)                                                       \
            to[i] = store(gyre_op_prod_##family(load(x[i]), factor));                              \
    }

#define LOOPS_INTEGER(id, type, family)                                              \
    LOOPS_OPS(LOOPS_PAIR, id, type, family, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME)    \
    LOOPS_SCALE(id, type, family, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME)              \
    LOOPS_TARGET static void LOOPS_NAME(divide_##id)(void *in_out, uint32_t divisor, \
                                                     size_t n_elems)                 \
    {                                                                                \
        stored_##id *to = in_out;                                                    \
        for (size_t i = 0; i < n_elems; i++)                                         \
            to[i] = gyre_op_divide_##family(to[i], divisor);                         \
    }
#define LOOPS_WIDE(id, type, family)                                              \
    LOOPS_OPS(LOOPS_PAIR, id, type, family, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME) \
    LOOPS_SCALE(id, type, family, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME)
#define LOOPS_SMALL(id, load, store)                    \
    LOOPS_OPS(LOOPS_PAIR, id, float, f32, load, store)  \
    LOOPS_OPS(LOOPS_CHAIN, id, float, f32, load, store) \
    LOOPS_SCALE(id, float, f32, load, store)

LOOPS_INTEGER(INT8, int8_t, i8)
LOOPS_INTEGER(UINT8, uint8_t, u8)
LOOPS_INTEGER(INT32, int32_t, i32)
LOOPS_INTEGER(UINT32, uint32_t, u32)
LOOPS_INTEGER(INT64, int64_t, i64)
LOOPS_INTEGER(UINT64, uint64_t, u64)
LOOPS_WIDE(FLOAT32, float, f32)
LOOPS_WIDE(FLOAT64, double, f64)
LOOPS_SMALL(FLOAT16, gyre_f16_to_f32, gyre_f32_to_f16)
LOOPS_SMALL(BFLOAT16, gyre_bf16_to_f32, gyre_f32_to_bf16)
LOOPS_SMALL(FLOAT8_E4M3, gyre_f8e4m3_to_f32, gyre_f32_to_f8e4m3)
LOOPS_SMALL(FLOAT8_E5M2, gyre_f8e5m2_to_f32, gyre_f32_to_f8e5m2)

#define LOOPS_SAME_ROW(id, op)                                                                    \
    {                                                                                             \
        LOOPS_NAME(pair_##op##_##id), LOOPS_NAME(pair_##op##_##id), LOOPS_NAME(pair_##op##_##id), \
            LOOPS_NAME(pair_##op##_##id)                                                          \
    }
#define LOOPS_CHAIN_ROW(id, op)                                                                    \
    {                                                                                              \
        LOOPS_NAME(pair_##op##_##id), LOOPS_NAME(start_##op##_##id), LOOPS_NAME(more_##op##_##id), \
            LOOPS_NAME(end_##op##_##id)                                                            \
    }
#define LOOPS_ROWS(ROW, id)                                                                \
    {                                                                                      \
        [GYRE_SUM] = ROW(id, sum), [GYRE_PROD] = ROW(id, prod), [GYRE_MAX] = ROW(id, max), \
        [GYRE_MIN] = ROW(id, min)                                                          \
    }
#define LOOPS_INTEGER_ENTRY(id) \
    [GYRE_##id] = {LOOPS_ROWS(LOOPS_SAME_ROW, id), LOOPS_NAME(scale_##id), LOOPS_NAME(divide_##id)}
#define LOOPS_FLOAT_ENTRY(ROW, id) \
    [GYRE_##id] = {LOOPS_ROWS(ROW, id), LOOPS_NAME(scale_##id), divide_nothing}

static const struct type_loops LOOPS_TABLE[GYRE_N_DTYPES] = {
    LOOPS_INTEGER_ENTRY(INT8),
    LOOPS_INTEGER_ENTRY(UINT8),
    LOOPS_INTEGER_ENTRY(INT32),
    LOOPS_INTEGER_ENTRY(UINT32),
    LOOPS_INTEGER_ENTRY(INT64),
    LOOPS_INTEGER_ENTRY(UINT64),
    LOOPS_FLOAT_ENTRY(LOOPS_SAME_ROW, FLOAT32),
    LOOPS_FLOAT_ENTRY(LOOPS_SAME_ROW, FLOAT64),
    LOOPS_FLOAT_ENTRY(LOOPS_CHAIN_ROW, FLOAT16),
    LOOPS_FLOAT_ENTRY(LOOPS_CHAIN_ROW, BFLOAT16),
    LOOPS_FLOAT_ENTRY(LOOPS_CHAIN_ROW, FLOAT8_E4M3),
    LOOPS_FLOAT_ENTRY(LOOPS_CHAIN_ROW, FLOAT8_E5M2),
};

#undef LOOPS_VECTORISE
#undef LOOPS_PAIR
#undef LOOPS_CHAIN
#undef LOOPS_SCALE
#undef LOOPS_INTEGER
#undef LOOPS_WIDE
#undef LOOPS_SMALL
#undef LOOPS_SAME_ROW
#undef LOOPS_CHAIN_ROW
#undef LOOPS_ROWS
#undef LOOPS_INTEGER_ENTRY
#undef LOOPS_FLOAT_ENTRY
