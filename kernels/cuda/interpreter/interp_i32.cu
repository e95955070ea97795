/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/interpreter/interp.cuh"

DEFINE_KERNELS(INT32)
DEFINE_KERNELS(UINT32)
