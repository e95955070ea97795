/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter for float16 and bfloat16. */
#include "kernels/cuda/interp.cuh"

DEFINE_KERNELS(FLOAT16)
DEFINE_KERNELS(BFLOAT16)
