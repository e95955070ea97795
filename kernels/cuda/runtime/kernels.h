/* SPDX-License-Identifier: Apache-2.0
 *
 * Which function on the GPU a launch runs. The pure host code chooses kernels by protocol, type and
 * the rows of kernels/cuda/host/fused.h; here they become functions.
 */
#ifndef GYRE_KERNELS_CUDA_RUNTIME_KERNELS_H
#define GYRE_KERNELS_CUDA_RUNTIME_KERNELS_H

#include "kernels/cuda/host/fused.h"
#include "kernels/cuda/runtime/kernel_table.h"

/* Which instance of a fused kernel a call needs, beside what the launch says. */
struct gyre_cuda_fused_instance {
    enum gyre_fused_pattern pattern;
    bool is_placed;
    uint32_t n_peers;
    unsigned dtype; /* gyre_dtype */
    unsigned op;    /* GYRE_SUM .. GYRE_MIN */
    bool is_lean;   /* as in gyre_cuda_interpreter_function() */
};

/** gyre_cuda_fused_function - the function of a fused launch. NULL for sends and receives that are
 * not lean.
 * @launch: launch->kernel fits the call. */
const void *gyre_cuda_fused_function(const struct gyre_cuda_fused_launch *launch,
                                     const struct gyre_cuda_fused_instance *instance);

/** gyre_cuda_interpreter_function - the interpreter for (protocol, type, operation), or for copies
 * only. NULL if there is none. It takes struct gyre_cuda_args_one.
 * @copies: of programs that reduce nothing; dtype and op are ignored.
 * @is_lean: the launch is not recorded, and no proxy serves a connection of the program. Kernels of
 * SIMPLE are the same for all launches. */
const void *gyre_cuda_interpreter_function(enum gyre_proto proto, bool copies, unsigned dtype,
                                           unsigned op, bool is_lean);

/** gyre_cuda_copier_function - the interpreter of so many works that only copy. It takes struct
 * gyre_cuda_args_few where the works fit, or struct gyre_cuda_args_many. */
const void *gyre_cuda_copier_function(enum gyre_proto proto, uint32_t n_works, bool is_lean);

/** gyre_cuda_mixer_function - likewise of works of several protocols. It takes struct
 * gyre_cuda_args_mixed_few or struct gyre_cuda_args_mixed. */
const void *gyre_cuda_mixer_function(uint32_t n_works);

#endif
