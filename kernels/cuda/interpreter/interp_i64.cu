/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/interpreter/interp.cuh"

DEFINE_KERNELS(INT64)
DEFINE_KERNELS(UINT64)
