/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/interpreter/interp.cuh"

DEFINE_FLOAT_KERNELS_AND_EXCHANGES(FLOAT32)
