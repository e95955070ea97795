/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/executor.h"

#include "kernels/cuda/host/kernel_rows.h"
#include "kernels/numeric.h"

#include <stdlib.h>

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

uint32_t gyre_executor_fused_tiles(gyre_device_kind kind, const struct gyre_fused_call *call)
{
    return kind == GYRE_DEVICE_CUDA ? gyre_kernel_most_tiles(call) : 0;
}

struct gyre_run gyre_executor_run(gyre_device_kind kind, const struct gyre_fused_call *call)
{
    struct gyre_fused_call loaded = *call;
    struct gyre_run run = {.row = 0};
    loaded.n_threads = GYRE_CUDA_LINE_THREADS;
    if (kind == GYRE_DEVICE_CUDA)
        gyre_kernel_choose(&loaded, &run);
    return run;
}

gyre_status gyre_fail_unreachable(int peer, int rank)
{
    return gyre_fail(
        GYRE_ERROR_REMOTE,
        "rank %d destroyed its communicator; a one-sided call of rank %d can no longer "
        "reach it",
        peer, rank);
}

gyre_status gyre_ready_check(const struct gyre_ready *ready, const struct gyre_ready_needs *needs)
{
    const struct gyre_split *split = &ready->split;
    if (split->n_channels != needs->n_channels || split->n_chunks != needs->n_chunks)
        return gyre_fail(
            GYRE_ERROR_INTERNAL,
            "a split of %u channels, %u chunks for a program of %u channels, %u chunks",
            split->n_channels, split->n_chunks, needs->n_channels, needs->n_chunks);
    if (ready->reduction.dtype >= GYRE_N_DTYPES || ready->reduction.op > GYRE_MIN)
        return gyre_fail(GYRE_ERROR_INTERNAL, "no executor has operation %u on type %u",
                         ready->reduction.op, ready->reduction.dtype);
    const uint64_t tile_bytes =
        (uint64_t)split->tile_elems * gyre_dtype_bytes((gyre_dtype)ready->reduction.dtype);
    if (split->unit_elems == 0 || tile_bytes == 0)
        return gyre_fail(GYRE_ERROR_INTERNAL, "a split of %u elements a tile, %u a unit",
                         split->tile_elems, split->unit_elems);
    if (tile_bytes > needs->most_tile_bytes)
        return gyre_fail(GYRE_ERROR_INTERNAL, "a tile of %llu bytes does not fit a slot of %llu",
                         (unsigned long long)tile_bytes,
                         (unsigned long long)needs->most_tile_bytes);
    return GYRE_SUCCESS;
}

void gyre_ready_free(struct gyre_ready *ready)
{
    free(ready);
}

uint64_t gyre_premultiply_scalar(gyre_dtype dtype, uint32_t n)
{
    /* 1/n in f32, cut off, the last bit set if inexact: to at most 11 bits it rounds as 1/n does.
     */
    const double exact = 1.0 / (double)n;
    const float nearest = (float)exact;
    const uint32_t bits = gyre_f32_bits(nearest);
    const float inverse = (double)nearest == exact
                              ? nearest
                              : gyre_f32_from_bits(((double)nearest > exact ? bits - 1 : bits) | 1);
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
        return gyre_f32_bits(1.0f / (float)n);
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
    return 1;
}
