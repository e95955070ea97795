/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses a row of the table of executors, and the one scalar that plans need from the numerics.
 */
#include "kernels/executor.h"

#include "kernels/numeric.h"

gyre_status gyre_executor_find(gyre_device_kind kind, const struct gyre_executor_ops **ops_out)
{
    if (kind == GYRE_DEVICE_HOST) {
        *ops_out = &gyre_executor_host;
        return GYRE_SUCCESS;
    }
    if (kind == GYRE_DEVICE_CUDA) {
#ifdef GYRE_WITH_CUDA
        *ops_out = &gyre_executor_cuda;
        return GYRE_SUCCESS;
#else
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "no executor for CUDA: this gyre was built without CUDA");
#endif
    }
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "no executor for device kind %d", (int)kind);
}

uint64_t gyre_premultiply_scalar(gyre_dtype dtype, uint32_t n)
{
    /* Rounding to f32 first changes no small type's result for any legal number of ranks: no 1/n is
     * so close to a midpoint of a type with up to 11 bits (test_numeric tries them all). */
    const float inverse = 1.0f / (float)n;
    switch (dtype) {
    case GYRE_FLOAT16:
        return gyre_f32_to_f16(inverse);
    case GYRE_BFLOAT16:
        return gyre_f32_to_bf16(inverse);
    case GYRE_FLOAT8_E4M3:
        return gyre_f32_to_f8e4m3(inverse);
    case GYRE_FLOAT8_E5M2:
        return gyre_f32_to_f8e5m2(inverse);
    case GYRE_FLOAT32:
        return gyre_f32_bits(inverse);
    case GYRE_FLOAT64:
        return gyre_f64_bits(1.0 / (double)n);
    case GYRE_INT8:
    case GYRE_UINT8:
    case GYRE_INT32:
    case GYRE_UINT32:
    case GYRE_INT64:
    case GYRE_UINT64:
        break;
    }
    return 1; /* integers are divided at the end instead */
}
