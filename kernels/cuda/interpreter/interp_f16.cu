/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/interpreter/interp.cuh"

DEFINE_INTERPRETED_AND_FUSED(FLOAT16)
DEFINE_INTERPRETED_AND_FUSED(BFLOAT16)
