/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/runtime/kernels.h"

#include "core/foundation/base/util.h"

/* [is_lean][type] */
static const struct gyre_cuda_kernels *const by_dtype[2][GYRE_N_DTYPES] = {
    {
#define ROW(id, name, bytes, is_float) [GYRE_##id] = &gyre_cuda_kernels_##id,
        GYRE_DTYPE_TABLE(ROW)
#undef ROW
    },
    {
#define ROW(id, name, bytes, is_float) [GYRE_##id] = &gyre_cuda_lean_kernels_##id,
        GYRE_DTYPE_TABLE(ROW)
#undef ROW
    },
};

static const struct gyre_cuda_copy_kernels *const copying[2] = {&gyre_cuda_kernels_copy,
                                                                &gyre_cuda_lean_kernels_copy};

static bool has_lean(enum gyre_proto proto)
{
    return proto != GYRE_PROTO_SIMPLE;
}

const void *gyre_cuda_interpreter_function(enum gyre_proto proto, bool copies, unsigned dtype,
                                           unsigned op, bool is_lean)
{
    const bool lean = is_lean && has_lean(proto);
    if (copies)
        return copying[lean]->one[proto];
    return dtype < GYRE_N_DTYPES && op <= GYRE_MIN ? by_dtype[lean][dtype]->by_op[proto][op] : NULL;
}

const void *gyre_cuda_copier_function(enum gyre_proto proto, uint32_t n_works, bool is_lean)
{
    const struct gyre_cuda_copy_kernels *kernels = copying[is_lean && has_lean(proto)];
    return n_works <= GYRE_CUDA_FEW_WORKS ? kernels->few[proto] : kernels->many[proto];
}

const void *gyre_cuda_mixer_function(uint32_t n_works)
{
    return n_works <= GYRE_CUDA_FEW_WORKS ? gyre_cuda_kernels_copy.mixed_few
                                          : gyre_cuda_kernels_copy.mixed;
}

static uint32_t lamport_kind(enum gyre_fused_pattern pattern)
{
    return pattern == GYRE_FUSED_TWO_SHOT   ? GYRE_CUDA_LAMPORT_GATHERS
           : pattern == GYRE_FUSED_ONE_SHOT ? GYRE_CUDA_LAMPORT_SAME
                                            : GYRE_CUDA_LAMPORT_APART;
}

const void *gyre_cuda_fused_function(const struct gyre_run *run, const struct gyre_fused_call *call,
                                     const struct gyre_reduction *reduction, bool is_lean)
{
    const struct gyre_kernel_row *row = &gyre_kernel_rows[run->row - 1];
    const bool lean = is_lean && has_lean(call->proto);
    const struct {
        uint32_t n, value;
    } axes[GYRE_N_AXES] = {
        [GYRE_AXIS_OP] = {GYRE_MIN + 1, reduction->op},
        [GYRE_AXIS_UNROLL] = {3, run->unroll == GYRE_CUDA_UNROLL        ? 0
                                 : run->unroll == GYRE_CUDA_DEEP_UNROLL ? 1
                                                                        : 2},
        [GYRE_AXIS_PEERS] = {GYRE_CUDA_PEERS_KERNELS, gyre_cuda_peers_class(call->n_peers)},
        [GYRE_AXIS_KIND] = {GYRE_CUDA_LAMPORT_KINDS, lamport_kind(call->pattern)},
        [GYRE_AXIS_EXACT] = {2, run->is_exact},
        [GYRE_AXIS_PLACED] = {2, call->is_placed},
    };
    const void *table =
        row->copies ? (const void *)copying[lean] : (const void *)by_dtype[lean][reduction->dtype];
    uint32_t instance = 0;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(row->axes) && row->axes[i] != GYRE_AXIS_NONE; i++)
        instance = instance * axes[row->axes[i]].n + axes[row->axes[i]].value;
    return ((const void *const *)table)[row->first + instance];
}
