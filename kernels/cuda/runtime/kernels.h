/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_KERNELS_CUDA_RUNTIME_KERNELS_H
#define GYRE_KERNELS_CUDA_RUNTIME_KERNELS_H

#include "kernels/cuda/host/kernel_rows.h"
#include "kernels/cuda/runtime/kernel_table.h"

/** gyre_cuda_fused_function - NULL for sends and receives that are not lean. */
const void *gyre_cuda_fused_function(const struct gyre_run *run, const struct gyre_fused_call *call,
                                     const struct gyre_reduction *reduction, bool is_lean);

/** gyre_cuda_interpreter_function - takes struct gyre_cuda_args_one. NULL if there is none.
 * @copies: ignores dtype and op. @is_lean: not recorded, without proxies. */
const void *gyre_cuda_interpreter_function(enum gyre_proto proto, bool copies, unsigned dtype,
                                           unsigned op, bool is_lean);

/** gyre_cuda_copier_function - takes struct gyre_cuda_args_few if it fits, else args_many. */
const void *gyre_cuda_copier_function(enum gyre_proto proto, uint32_t n_works, bool is_lean);

/** gyre_cuda_mixer_function - takes struct gyre_cuda_args_mixed_few or args_mixed. */
const void *gyre_cuda_mixer_function(uint32_t n_works);

#endif
