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
};

/** gyre_cuda_fused_function - the function of a fused launch.
 * @launch: launch->kernel fits the call. */
const void *gyre_cuda_fused_function(const struct gyre_cuda_fused_launch *launch,
                                     const struct gyre_cuda_fused_instance *instance);

/** gyre_cuda_interpreter_function - the interpreter for (protocol, type, operation), or for copies
 * only. NULL if there is none.
 * @copies: of programs that reduce nothing; dtype and op are ignored.
 * @many: takes struct gyre_cuda_args_many; copies only. */
const void *gyre_cuda_interpreter_function(enum gyre_proto proto, bool copies, bool many,
                                           unsigned dtype, unsigned op);

#endif
