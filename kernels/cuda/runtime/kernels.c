/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/runtime/kernels.h"

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

static enum gyre_cuda_lines lines_of(const struct gyre_cuda_fused_launch *launch)
{
    if (launch->kernel->proto == GYRE_PROTO_LL)
        return GYRE_CUDA_LINES_LL;
    return launch->unroll == GYRE_CUDA_LONG_UNROLL   ? GYRE_CUDA_LINES_LL128_LONG
           : launch->unroll == GYRE_CUDA_DEEP_UNROLL ? GYRE_CUDA_LINES_LL128_DEEP
                                                     : GYRE_CUDA_LINES_LL128;
}

static enum gyre_cuda_lamport lamport_kind(enum gyre_fused_pattern pattern)
{
    return pattern == GYRE_FUSED_TWO_SHOT   ? GYRE_CUDA_LAMPORT_GATHERS
           : pattern == GYRE_FUSED_ONE_SHOT ? GYRE_CUDA_LAMPORT_SAME
                                            : GYRE_CUDA_LAMPORT_APART;
}

const void *gyre_cuda_fused_function(const struct gyre_cuda_fused_launch *launch,
                                     const struct gyre_cuda_fused_instance *instance)
{
    const bool lean = instance->is_lean && has_lean(launch->kernel->proto);
    const struct gyre_cuda_kernels *kernels = by_dtype[lean][instance->dtype];
    const uint32_t peers = gyre_cuda_peers_class(instance->n_peers);
    switch ((enum gyre_cuda_fused_id)(launch->kernel - gyre_cuda_fused_kernels)) {
    case GYRE_CUDA_FUSED_LL_ONE_SHOT:
        return kernels->one_shot[instance->op];
    case GYRE_CUDA_FUSED_LL_SUM:
    case GYRE_CUDA_FUSED_LL128_SUM:
        return kernels->fused[lines_of(launch)];
    case GYRE_CUDA_FUSED_LL_COPY:
    case GYRE_CUDA_FUSED_LL128_COPY:
        if (launch->n_rows > 1)
            return copying[lean]->in_rows[!gyre_fused_is_message(instance->pattern)];
        return gyre_fused_is_message(instance->pattern)
                   ? copying[lean]->message[launch->kernel->proto]
                   : copying[lean]->fused[lines_of(launch)];
    case GYRE_CUDA_FUSED_LAMPORT_SUM:
        return kernels->lamport[peers][lamport_kind(instance->pattern)][launch->is_exact];
    case GYRE_CUDA_FUSED_SIMPLE_TWO_SHOT:
        return kernels->twoshot[peers][instance->is_placed];
    case GYRE_CUDA_FUSED_SIMPLE_ALL_GATHER:
        return gyre_cuda_kernel_placed;
    case GYRE_CUDA_N_FUSED:
        break;
    }
    return NULL;
}
