/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of line protocols are compiled twice: full ones can record a launch and use connections
 * that a proxy serves; lean ones can do neither, because small calls pay for every instruction that
 * is fetched (docs/lab_notes.md). Sends and receives are lean only, and SIMPLE is full only.
 * GYRE_CUDA_LEAN says which of the two a file compiles.
 */
#ifndef GYRE_KERNELS_CUDA_LEAN_CUH
#define GYRE_KERNELS_CUDA_LEAN_CUH

#include "kernels/cuda/host/program.h"

#ifndef GYRE_CUDA_LEAN
#define GYRE_CUDA_LEAN 0
#endif

static constexpr bool knows_proxies = GYRE_CUDA_LEAN == 0;

static __device__ __forceinline__ bool is_recorded(const struct gyre_cuda_common &common)
{
    return GYRE_CUDA_LEAN == 0 && common.recording.recorder != nullptr;
}

static __device__ __forceinline__ bool records_steps(const struct gyre_cuda_common &common)
{
    return GYRE_CUDA_LEAN == 0 && common.recording.records_steps != 0;
}

#endif
