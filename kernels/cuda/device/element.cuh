/* SPDX-License-Identifier: Apache-2.0
 *
 * numeric.h, with the GPU's own conversion instructions where they give the same bits (round to
 * nearest even, canonical NaN, satfinite for fp8).
 */
#ifndef GYRE_KERNELS_CUDA_ELEMENT_CUH
#define GYRE_KERNELS_CUDA_ELEMENT_CUH

#include "kernels/cuda/device/ptx.cuh"
#include "kernels/numeric.h"

/* X(dtype suffix, stored as, computed in, family of the operations, widen, narrow, divides) */
#define ELEMENT_TABLE(X)                                                        \
    X(INT8, int8_t, int8_t, i8, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME, 1)        \
    X(UINT8, uint8_t, uint8_t, u8, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME, 1)     \
    X(INT32, int32_t, int32_t, i32, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME, 1)    \
    X(UINT32, uint32_t, uint32_t, u32, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME, 1) \
    X(INT64, int64_t, int64_t, i64, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME, 1)    \
    X(UINT64, uint64_t, uint64_t, u64, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME, 1) \
    X(FLOAT16, uint16_t, float, f32, f16_widen, f16_narrow, 0)                  \
    X(FLOAT32, float, float, f32, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME, 0)      \
    X(FLOAT64, double, double, f64, GYRE_NUMERIC_SAME, GYRE_NUMERIC_SAME, 0)    \
    X(BFLOAT16, uint16_t, float, f32, gyre_bf16_to_f32, bf16_narrow, 0)         \
    X(FLOAT8_E4M3, uint8_t, float, f32, f8e4m3_widen, f8e4m3_narrow, 0)         \
    X(FLOAT8_E5M2, uint8_t, float, f32, f8e5m2_widen, f8e5m2_narrow, 0)

template <int DTYPE> struct element;

#define DIVIDE_0(family, value, divisor) (value)
#define DIVIDE_1(family, value, divisor) gyre_op_divide_##family(value, divisor)

#define ELEMENT(id, stored_t, computed_t, family, widen_, narrow_, divides)                        \
    template <> struct element<GYRE_##id> {                                                        \
        using stored = stored_t;                                                                   \
        using computed = computed_t;                                                               \
        static const bool can_divide = divides;                                                    \
        static __device__ __forceinline__ computed widen(stored value)                             \
        {                                                                                          \
            return widen_(value);                                                                  \
        }                                                                                          \
        static __device__ __forceinline__ stored narrow(computed value)                            \
        {                                                                                          \
            return narrow_(value);                                                                 \
        }                                                                                          \
        static __device__ __forceinline__ computed multiply(computed a, computed b)                \
        {                                                                                          \
            return gyre_op_prod_##family(a, b);                                                    \
        }                                                                                          \
        /* out of line: a 64-bit division is long code, and it runs once a call */                 \
        static __device__ __noinline__ computed divide(computed a, uint32_t divisor)               \
        {                                                                                          \
            (void)divisor;                                                                         \
            return DIVIDE_##divides(family, a, divisor);                                           \
        }                                                                                          \
        template <int OP> static __device__ __forceinline__ computed apply(computed a, computed b) \
        {                                                                                          \
            if (OP == GYRE_SUM)                                                                    \
                return gyre_op_sum_##family(a, b);                                                 \
            if (OP == GYRE_PROD)                                                                   \
                return gyre_op_prod_##family(a, b);                                                \
            return OP == GYRE_MAX ? gyre_op_max_##family(a, b) : gyre_op_min_##family(a, b);       \
        }                                                                                          \
    };
ELEMENT_TABLE(ELEMENT)
#undef ELEMENT

/* The same for all threads. */
struct arithmetic {
    uint64_t scalar;
    uint32_t scale_mask; /* bit i: input i is multiplied by the scalar, rounded to dtype */
    uint32_t divisor;    /* > 1: divides the result */
};

template <int BYTES> struct pack {
    uint32_t words[(BYTES + 3) / 4];
};

/* Adds packs in reduction order, in the computing type until end(). */
template <int DTYPE, int OP, int BYTES> struct reducer {
    using type = element<DTYPE>;
    using stored = typename type::stored;
    using computed = typename type::computed;
    static const int n = BYTES / (int)sizeof(stored);
    computed values[n];

    static __device__ __forceinline__ computed get(const pack<BYTES> &from, int i, bool scaled,
                                                   uint64_t scalar)
    {
        stored all[n];
        memcpy(all, &from, BYTES);
        computed value = type::widen(all[i]);
        if (scaled) {
            stored factor;
            memcpy(&factor, &scalar, sizeof(factor));
            value = type::widen(type::narrow(type::multiply(value, type::widen(factor))));
        }
        return value;
    }

    __device__ __forceinline__ void begin(const pack<BYTES> &from, bool scaled, uint64_t scalar)
    {
#pragma unroll
        for (int i = 0; i < n; i++)
            values[i] = get(from, i, scaled, scalar);
    }

    __device__ __forceinline__ void add(const pack<BYTES> &from, bool scaled, uint64_t scalar)
    {
#pragma unroll
        for (int i = 0; i < n; i++)
            values[i] = type::template apply<OP>(values[i], get(from, i, scaled, scalar));
    }

    __device__ __forceinline__ pack<BYTES> end(uint32_t divisor)
    {
        stored all[n];
        pack<BYTES> to;
        if (type::can_divide && divisor > 1) {
#pragma unroll
            for (int i = 0; i < n; i++)
                values[i] = type::divide(values[i], divisor);
        }
#pragma unroll
        for (int i = 0; i < n; i++)
            all[i] = type::narrow(values[i]);
        memcpy(&to, all, BYTES);
        return to;
    }
};

/* For kernels that only copy. */
#define DTYPE_NONE (-1)

#endif
