/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/interpreter/interp.cuh"

DEFINE_KERNELS(FLOAT8_E4M3)
DEFINE_KERNELS(FLOAT8_E5M2)
