/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter kernel: one block is one worker of one channel.
 */
#ifndef GYRE_KERNELS_CUDA_INTERP_CUH
#define GYRE_KERNELS_CUDA_INTERP_CUH

#include "kernels/cuda/fused/fused_lamport.cuh"
#include "kernels/cuda/fused/fused_lines.cuh"
#include "kernels/cuda/fused/fused_twoshot.cuh"
#include "kernels/cuda/interpreter/ll128_steps.cuh"
#include "kernels/cuda/interpreter/per_thread_lines.cuh"
#include "kernels/cuda/interpreter/simple_steps.cuh"
#include "kernels/cuda/runtime/kernel_table.h"

/* Of 65536 registers, each of 512 threads can have 128 and each of 640 threads 96. */
#define MAX_BLOCK_THREADS(proto) ((proto) == GYRE_PROTO_SIMPLE ? 640 : 512)

template <int PROTO, int DTYPE, int OP>
static __device__ __forceinline__ void
run_block(const struct gyre_cuda_common &common, const struct gyre_cuda_work &work,
          const unsigned char *parameters, uint32_t block_of_work)
{
    const struct block block = open_block<PROTO>(common, work, parameters, block_of_work);
    if (!block.is_aborted) {
        if constexpr (PROTO == GYRE_PROTO_SIMPLE)
            run_simple<DTYPE, OP>(block);
        else if constexpr (PROTO == GYRE_PROTO_LL)
            run_lines<ll_step<DTYPE, OP>>(block);
        else if constexpr (PROTO == GYRE_PROTO_LL128)
            run_lines<ll128_step<DTYPE, OP>>(block);
        else
            run_lines<lamport_step<DTYPE, OP>>(block);
    }
    close_block<PROTO>(block);
}

/* Among the blocks that work. NO_PLACEMENT: the block has ended and is to return. */
template <int PROTO>
static __device__ __forceinline__ uint32_t number_block(const struct gyre_cuda_common &common)
{
    if constexpr (PROTO != GYRE_PROTO_SIMPLE)
        return blockIdx.x;
    await_last_launch();
    const uint32_t place = place_block(common);
    if (place == NO_PLACEMENT)
        end_unplaced_block(common);
    return place;
}

template <int PROTO, int DTYPE, int OP>
static __global__ void __launch_bounds__(MAX_BLOCK_THREADS(PROTO), 1)
    interpret_one(const __grid_constant__ struct gyre_cuda_args_one args)
{
    const uint32_t number = number_block<PROTO>(args.common);
    if (PROTO != GYRE_PROTO_SIMPLE || number != NO_PLACEMENT)
        run_block<PROTO, DTYPE, OP>(args.common, args.work, args.program, number);
}

/* @number: among the blocks that work. */
static __device__ __forceinline__ uint32_t find_work(const struct gyre_cuda_work *works,
                                                     uint32_t n_works, uint32_t number)
{
    uint32_t i = 0;
    while (i + 1 < n_works && works[i + 1].first_block <= number)
        i++;
    return i;
}

template <int PROTO, typename ARGS>
static __global__ void __launch_bounds__(MAX_BLOCK_THREADS(PROTO), 1)
    interpret_many(const __grid_constant__ ARGS args)
{
    const uint32_t number = number_block<PROTO>(args.common);
    if (PROTO == GYRE_PROTO_SIMPLE && number == NO_PLACEMENT)
        return;
    const uint32_t i = find_work(args.works, args.common.n_works, number);
    run_block<PROTO, DTYPE_NONE, GYRE_SUM>(args.common, args.works[i], nullptr,
                                           number - args.works[i].first_block);
}

#define KERNEL(proto, dtype, op) (const void *)&interpret_one<GYRE_PROTO_##proto, dtype, op>
#define KERNELS_OF_PROTO(proto, dtype)                                     \
    {                                                                      \
        KERNEL(proto, dtype, GYRE_SUM), KERNEL(proto, dtype, GYRE_PROD),   \
            KERNEL(proto, dtype, GYRE_MAX), KERNEL(proto, dtype, GYRE_MIN) \
    }
#define ONE_SHOT(dtype, op) (const void *)&fused_ll<dtype, op>
#define ONE_SHOTS(dtype)                                                                  \
    {                                                                                     \
        ONE_SHOT(dtype, GYRE_SUM), ONE_SHOT(dtype, GYRE_PROD), ONE_SHOT(dtype, GYRE_MAX), \
            ONE_SHOT(dtype, GYRE_MIN)                                                     \
    }
#define LINE_KERNEL(proto, dtype, unroll, scatters) \
    (const void *)&fused_lines<GYRE_PROTO_##proto, dtype, GYRE_SUM, unroll, scatters>
#define SUM_LINES(proto, dtype, unroll) LINE_KERNEL(proto, dtype, unroll, true)
#define LINE_KERNELS(dtype)                                                                \
    {                                                                                      \
        SUM_LINES(LL, dtype, GYRE_CUDA_UNROLL), SUM_LINES(LL128, dtype, GYRE_CUDA_UNROLL), \
            SUM_LINES(LL128, dtype, GYRE_CUDA_DEEP_UNROLL),                                \
            SUM_LINES(LL128, dtype, GYRE_CUDA_LONG_UNROLL)                                 \
    }
#define LAMPORT_KERNEL(dtype, peers, kind, exact_fit) \
    (const void *)&fused_lamport<dtype, peers, GYRE_CUDA_LAMPORT_##kind, exact_fit>
/* A one-shot's general form loads its input for each peer. */
#define LAMPORT_KERNELS_AMONG(dtype, peers)                                                     \
    {                                                                                           \
        {LAMPORT_KERNEL(dtype, peers, APART, false), LAMPORT_KERNEL(dtype, peers, SAME, true)}, \
            {LAMPORT_KERNEL(dtype, peers, APART, false),                                        \
             LAMPORT_KERNEL(dtype, peers, APART, true)},                                        \
            {LAMPORT_KERNEL(dtype, peers, GATHERS, false),                                      \
             LAMPORT_KERNEL(dtype, peers, GATHERS, true)},                                      \
    }
#define LAMPORT_KERNELS(dtype)                                            \
    {                                                                     \
        LAMPORT_KERNELS_AMONG(dtype, 1), LAMPORT_KERNELS_AMONG(dtype, 3), \
            LAMPORT_KERNELS_AMONG(dtype, 7)                               \
    }
#define TWOSHOT(dtype, peers)                                \
    {                                                        \
        (const void *)&fused_twoshot<dtype, peers, false>,   \
            (const void *)&fused_twoshot<dtype, peers, true> \
    }
#define TWOSHOTS(dtype)                                         \
    {                                                           \
        TWOSHOT(dtype, 1), TWOSHOT(dtype, 3), TWOSHOT(dtype, 7) \
    }
#if GYRE_CUDA_LEAN
#define TABLE(id)    gyre_cuda_lean_kernels_##id
#define IF_FULL(...) NONE_OF_THEM
#else
#define TABLE(id)    gyre_cuda_kernels_##id
#define IF_FULL(...) __VA_ARGS__
#endif
/* Fused kernels take 250 kB for each type, so only the most reduced types have them. */
#define DEFINE_TABLE(id, line_kernels, twoshots, lamport, lamport_sum) \
    extern "C" const struct gyre_cuda_kernels TABLE(id) = {            \
        ONE_SHOTS(GYRE_##id),                                          \
        line_kernels,                                                  \
        IF_FULL(twoshots),                                             \
        lamport,                                                       \
        {IF_FULL(KERNELS_OF_PROTO(SIMPLE, GYRE_##id)),                 \
         KERNELS_OF_PROTO(LL, GYRE_##id),                              \
         KERNELS_OF_PROTO(LL128, GYRE_##id),                           \
         {lamport_sum}}};
#define NONE_OF_THEM \
    {                \
    }
#define DEFINE_KERNELS(id) DEFINE_TABLE(id, NONE_OF_THEM, NONE_OF_THEM, NONE_OF_THEM, nullptr)
/* Types whose sums LAMPORT can carry. */
#define DEFINE_INTERPRETED_AND_FUSED(id)                                                       \
    DEFINE_TABLE(id, LINE_KERNELS(GYRE_##id), TWOSHOTS(GYRE_##id), LAMPORT_KERNELS(GYRE_##id), \
                 KERNEL(LAMPORT, GYRE_##id, GYRE_SUM))

#endif
