/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter for int32 and uint32. */
#include "kernels/cuda/interpreter/interp.cuh"

DEFINE_KERNELS(INT32)
DEFINE_KERNELS(UINT32)
