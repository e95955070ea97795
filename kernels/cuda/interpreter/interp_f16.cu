/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter for float16 and bfloat16. */
#include "kernels/cuda/interpreter/interp.cuh"

DEFINE_FLOAT_KERNELS_AND_EXCHANGES(FLOAT16)
DEFINE_FLOAT_KERNELS_AND_EXCHANGES(BFLOAT16)
