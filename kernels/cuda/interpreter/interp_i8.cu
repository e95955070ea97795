/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/interpreter/interp.cuh"

DEFINE_KERNELS(INT8)
DEFINE_KERNELS(UINT8)
