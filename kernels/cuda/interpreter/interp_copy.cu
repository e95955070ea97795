/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that only copy, and launches of several works that must not wait for each other.
 */
#include "kernels/cuda/fused/fused_message.cuh"
#include "kernels/cuda/fused/fused_placed.cuh"
#include "kernels/cuda/interpreter/interp.cuh"

#if GYRE_CUDA_LEAN == 0
/* Works of several protocols. The launch is one of SIMPLE: its blocks may choose their places, and
 * the last one reports for all. */
template <typename ARGS>
static __global__ void __launch_bounds__(MAX_BLOCK_THREADS(GYRE_PROTO_SIMPLE), 1)
    interpret_mixed(const __grid_constant__ ARGS args)
{
    const struct gyre_cuda_common &simple = args.commons[GYRE_PROTO_SIMPLE];
    const uint32_t number = number_block<GYRE_PROTO_SIMPLE>(simple);
    if (number == NO_PLACEMENT)
        return;
    const uint32_t i = find_work(args.works, simple.n_works, number);
    const struct gyre_cuda_work &work = args.works[i];
    const uint32_t block_of_work = number - work.first_block;
    if (args.protos[i] == GYRE_PROTO_SIMPLE)
        run_block<GYRE_PROTO_SIMPLE, DTYPE_NONE, GYRE_SUM>(simple, work, nullptr, block_of_work);
    else if (args.protos[i] == GYRE_PROTO_LL)
        run_block<GYRE_PROTO_LL, DTYPE_NONE, GYRE_SUM>(args.commons[GYRE_PROTO_LL], work, nullptr,
                                                       block_of_work);
    else
        run_block<GYRE_PROTO_LL128, DTYPE_NONE, GYRE_SUM>(args.commons[GYRE_PROTO_LL128], work,
                                                          nullptr, block_of_work);
}
#endif

#if GYRE_CUDA_LEAN
#define SIMPLE_OR_NONE(...) nullptr
#define LEAN_OR_NONE(...)   __VA_ARGS__
#else
#define SIMPLE_OR_NONE(...) __VA_ARGS__
#define LEAN_OR_NONE(...)   NONE_OF_THEM
#endif
#define MESSAGE(proto) (const void *)&fused_message<GYRE_PROTO_##proto>
#define MESSAGES                             \
    {                                        \
        nullptr, MESSAGE(LL), MESSAGE(LL128) \
    }
#define IN_ROWS                                                                 \
    {                                                                           \
        (const void *)&fused_in_rows<false>, (const void *)&fused_in_rows<true> \
    }
#define COPY_LINES(proto, unroll)                        \
    {                                                    \
        LINE_KERNEL(proto, DTYPE_NONE, unroll, false),   \
            LINE_KERNEL(proto, DTYPE_NONE, unroll, true) \
    }
#define COPY_KERNEL(proto) KERNEL(proto, DTYPE_NONE, GYRE_SUM)
#define COPY_KERNELS(args)                                                             \
    {                                                                                  \
        SIMPLE_OR_NONE((const void *)&interpret_many<GYRE_PROTO_SIMPLE, struct args>), \
            (const void *)&interpret_many<GYRE_PROTO_LL, struct args>,                 \
            (const void *)&interpret_many<GYRE_PROTO_LL128, struct args>               \
    }

extern "C" const struct gyre_cuda_copy_kernels TABLE(copy) = {
    {COPY_LINES(LL, GYRE_CUDA_UNROLL), COPY_LINES(LL128, GYRE_CUDA_UNROLL),
     NONE_OF_THEM, /* GYRE_CUDA_DEEP_UNROLL: two-shots */
     COPY_LINES(LL128, GYRE_CUDA_LONG_UNROLL)},
    LEAN_OR_NONE(MESSAGES),
    LEAN_OR_NONE(IN_ROWS),
    /* LAMPORT: for ranks that only send data which other ranks add */
    {SIMPLE_OR_NONE(COPY_KERNEL(SIMPLE)), COPY_KERNEL(LL), COPY_KERNEL(LL128),
     COPY_KERNEL(LAMPORT)},
    COPY_KERNELS(gyre_cuda_args_few),
    COPY_KERNELS(gyre_cuda_args_many),
    SIMPLE_OR_NONE((const void *)&interpret_mixed<struct gyre_cuda_args_mixed_few>),
    SIMPLE_OR_NONE((const void *)&interpret_mixed<struct gyre_cuda_args_mixed>),
    SIMPLE_OR_NONE((const void *)&fused_placed)};
