/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the functions of kernels that the pure host code chooses by protocol, type and row
 * (kernels/cuda/host/kernel_rows.h).
 */
#ifndef GYRE_KERNELS_CUDA_RUNTIME_KERNELS_H
#define GYRE_KERNELS_CUDA_RUNTIME_KERNELS_H

#include "kernels/cuda/host/kernel_rows.h"
#include "kernels/cuda/runtime/kernel_table.h"

/** gyre_cuda_fused_function - NULL for sends and receives that are not lean.
 * @run: the call's, with a fused kernel. @is_lean: as in gyre_cuda_interpreter_function(). */
const void *gyre_cuda_fused_function(const struct gyre_run *run, const struct gyre_fused_call *call,
                                     const struct gyre_reduction *reduction, bool is_lean);

/** gyre_cuda_interpreter_function - takes struct gyre_cuda_args_one. NULL if there is none.
 * @copies: of programs that reduce nothing; dtype and op are ignored.
 * @is_lean: not recorded, and no connection has a proxy. No difference in SIMPLE. */
const void *gyre_cuda_interpreter_function(enum gyre_proto proto, bool copies, unsigned dtype,
                                           unsigned op, bool is_lean);

/** gyre_cuda_copier_function - of works that only copy. Takes struct gyre_cuda_args_few where
 * they fit, or struct gyre_cuda_args_many. */
const void *gyre_cuda_copier_function(enum gyre_proto proto, uint32_t n_works, bool is_lean);

/** gyre_cuda_mixer_function - of works of several protocols. Takes struct
 * gyre_cuda_args_mixed_few or struct gyre_cuda_args_mixed. */
const void *gyre_cuda_mixer_function(uint32_t n_works);

#endif
