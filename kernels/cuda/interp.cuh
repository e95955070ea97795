/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter kernel: one block is one worker of one channel. Included by the interp_*.cu
 * files, each of which instantiates it for some element types, so that they compile in parallel.
 */
#ifndef GYRE_KERNELS_CUDA_INTERP_CUH
#define GYRE_KERNELS_CUDA_INTERP_CUH

#include "kernels/cuda/kernel_table.h"
#include "kernels/cuda/ll.cuh"
#include "kernels/cuda/ll128.cuh"
#include "kernels/cuda/simple.cuh"

/* Threads of the largest block: with more, 65536 registers would not be 96 each. */
#define MAX_BLOCK_THREADS 640

template <int PROTO, int DTYPE, int OP>
static __device__ __forceinline__ void run_block(const struct gyre_cuda_common &common,
                                                 const struct gyre_cuda_work &work,
                                                 const unsigned char *program)
{
    const struct block block =
        open_block<PROTO>(common, work, program, blockIdx.x - work.first_block);
    if (!block.is_aborted) {
        if constexpr (PROTO == GYRE_PROTO_SIMPLE)
            run_simple<DTYPE, OP>(block);
        else if constexpr (PROTO == GYRE_PROTO_LL)
            run_lines<ll_step<DTYPE, OP>>(block);
        else
            run_lines<ll128_step<DTYPE, OP>>(block);
    }
    close_block(block);
}

template <int PROTO, int DTYPE, int OP>
__global__ void __launch_bounds__(MAX_BLOCK_THREADS, 1)
    interpret_one(const __grid_constant__ struct gyre_cuda_args_one args)
{
    run_block<PROTO, DTYPE, OP>(args.common, args.work,
                                args.is_inline != 0 ? args.program : args.work.program);
}

template <int PROTO>
__global__ void __launch_bounds__(MAX_BLOCK_THREADS, 1)
    interpret_many(const __grid_constant__ struct gyre_cuda_args_many args)
{
    uint32_t i = 0;
    while (i + 1 < args.common.n_works && args.works[i + 1].first_block <= blockIdx.x)
        i++;
    run_block<PROTO, DTYPE_NONE, GYRE_SUM>(args.common, args.works[i], args.works[i].program);
}

#define KERNEL(proto, dtype, op) (const void *)&interpret_one<GYRE_PROTO_##proto, dtype, op>
#define KERNELS_OF_PROTO(proto, dtype)                                     \
    {                                                                      \
        KERNEL(proto, dtype, GYRE_SUM), KERNEL(proto, dtype, GYRE_PROD),   \
            KERNEL(proto, dtype, GYRE_MAX), KERNEL(proto, dtype, GYRE_MIN) \
    }
/* Defines the table of one element type's kernels. */
#define DEFINE_KERNELS(id)                                                     \
    extern "C" const struct gyre_cuda_kernels gyre_cuda_kernels_##id = {       \
        {KERNELS_OF_PROTO(SIMPLE, GYRE_##id), KERNELS_OF_PROTO(LL, GYRE_##id), \
         KERNELS_OF_PROTO(LL128, GYRE_##id)}};

#endif
