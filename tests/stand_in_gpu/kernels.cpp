/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/runtime/kernel_table.h"
#include "tests/stand_in_gpu/add_kernel.h"

/* @functions: an array of any number of dimensions. */
template <class ARGS, class ARRAY> static void add_all(const ARRAY &functions)
{
    const void *const *first = (const void *const *)&functions;
    for (size_t i = 0; i < sizeof(functions) / sizeof(*first); i++)
        stand_in_add<ARGS>(first[i]);
}

static void add_types(const struct gyre_cuda_kernels &kernels)
{
    add_all<struct gyre_cuda_args_fused>(kernels.one_shot);
    add_all<struct gyre_cuda_args_fused>(kernels.fused);
    add_all<struct gyre_cuda_args_fused>(kernels.twoshot);
    add_all<struct gyre_cuda_args_fused>(kernels.lamport);
    add_all<struct gyre_cuda_args_one>(kernels.by_op);
}

static void add_copies(const struct gyre_cuda_copy_kernels &kernels)
{
    add_all<struct gyre_cuda_args_fused>(kernels.fused);
    add_all<struct gyre_cuda_args_fused>(kernels.message);
    add_all<struct gyre_cuda_args_fused>(kernels.in_rows);
    add_all<struct gyre_cuda_args_one>(kernels.one);
    add_all<struct gyre_cuda_args_few>(kernels.few);
    add_all<struct gyre_cuda_args_many>(kernels.many);
    stand_in_add<struct gyre_cuda_args_mixed_few>(kernels.mixed_few);
    stand_in_add<struct gyre_cuda_args_mixed>(kernels.mixed);
    stand_in_add<struct gyre_cuda_args_fused>(kernels.placed);
}

__attribute__((constructor)) static void add_kernels()
{
#define ADD(id, name, bytes, is_float) \
    add_types(gyre_cuda_kernels_##id); \
    add_types(gyre_cuda_lean_kernels_##id);
    GYRE_DTYPE_TABLE(ADD)
#undef ADD
    add_copies(gyre_cuda_kernels_copy);
    add_copies(gyre_cuda_lean_kernels_copy);
    stand_in_add<struct gyre_cuda_args_sync>(gyre_cuda_kernel_sync);
    stand_in_add<struct gyre_cuda_args_copy>(gyre_cuda_kernel_copy_within);
    stand_in_add<struct gyre_cuda_args_signal>(gyre_cuda_kernel_signal);
    stand_in_add<struct gyre_cuda_args_await>(gyre_cuda_kernel_await);
    stand_in_add<struct gyre_cuda_clock_words *>(gyre_cuda_kernel_clock);
}

/* A name for the linker, so that a program with gyre's static library has this file. */
extern "C" void stand_in_kernels_of_gyre() {}
