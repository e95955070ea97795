/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter for float8_e4m3 and float8_e5m2. */
#include "kernels/cuda/interpreter/interp.cuh"

DEFINE_KERNELS(FLOAT8_E4M3)
DEFINE_KERNELS(FLOAT8_E5M2)
