/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter for int8 and uint8. */
#include "kernels/cuda/interpreter/interp.cuh"

DEFINE_KERNELS(INT8)
DEFINE_KERNELS(UINT8)
