/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/decode.h"

#include "kernels/cuda/interpreter/interp.cuh"

#define N_ROUNDS  20
#define N_THREADS 512

/* Nothing else runs on the multiprocessor. */
static __device__ void time_simple(const struct block &block, uint64_t *marks)
{
    __shared__ struct simple_shared shared;
    marks[0] = global_ns();
    for (int round = 0; round < N_ROUNDS; round++)
        for (uint32_t s = 0; s < block.n_steps; s++) {
            (void)prepare(block, &block.steps[s], 0, threadIdx.x, &shared.moves[s % N_MOVES],
                          nullptr);
            __syncwarp();
        }
    marks[1] = global_ns();
    for (int round = 0; round < N_ROUNDS; round++)
        for (uint32_t s = 0; s < block.n_steps; s++)
            move_bytes<GYRE_FLOAT32, GYRE_SUM>(read_head(&shared.moves[s % N_MOVES]),
                                               shared.moves[s % N_MOVES], threadIdx.x, 32);
    marks[2] = global_ns();
}

template <class STEP> static __device__ void time_lines(const struct block &block, uint64_t *marks)
{
    struct line_slot *slots = (struct line_slot *)block.rest;
    marks[0] = global_ns();
    for (int round = 0; round < N_ROUNDS; round++)
        for (uint32_t s = 0; s < block.n_steps; s++) {
            resolve_step<STEP::proto>(block, &block.steps[s], 0, &slots[s % GYRE_CUDA_LINE_STEPS]);
            __syncwarp();
        }
    marks[1] = global_ns();
    for (int round = 0; round < N_ROUNDS; round++)
        for (uint32_t s = 0; s < block.n_steps; s++)
            (void)STEP::run(block, read_line_step(&slots[s % GYRE_CUDA_LINE_STEPS]));
    marks[2] = global_ns();
}

template <int PROTO>
__global__ void __launch_bounds__(N_THREADS, 1)
    decode_alone(const __grid_constant__ struct gyre_cuda_args_one args, struct decode_times *times)
{
    const struct block block = open_block<PROTO>(args.common, args.work, args.program, 0);
    uint64_t marks[3];
    if (threadIdx.x < 32) {
        if constexpr (PROTO == GYRE_PROTO_SIMPLE)
            time_simple(block, marks);
        else if constexpr (PROTO == GYRE_PROTO_LL)
            time_lines<ll_step<GYRE_FLOAT32, GYRE_SUM>>(block, marks);
        else if constexpr (PROTO == GYRE_PROTO_LL128)
            time_lines<ll128_step<GYRE_FLOAT32, GYRE_SUM>>(block, marks);
        else
            time_lines<lamport_step<GYRE_FLOAT32, GYRE_SUM>>(block, marks);
        const double n = (double)N_ROUNDS * block.n_steps;
        times->decode_ns = (double)(marks[1] - marks[0]) / n;
        times->dispatch_ns = (double)(marks[2] - marks[1]) / n;
    }
    close_block<PROTO>(block);
}

static const void *const kernels[GYRE_N_PROTOS] = {
    (const void *)&decode_alone<GYRE_PROTO_SIMPLE>,
    (const void *)&decode_alone<GYRE_PROTO_LL>,
    (const void *)&decode_alone<GYRE_PROTO_LL128>,
    (const void *)&decode_alone<GYRE_PROTO_LAMPORT>,
};

extern "C" cudaError_t decode_measure(const struct gyre_cuda_args_one *args, enum gyre_proto proto,
                                      uint32_t shared_bytes, cudaStream_t stream,
                                      struct decode_times *times_out)
{
    struct decode_times *times = NULL;
    struct gyre_cuda_args_one own = *args;
    cudaError_t error = cudaHostAlloc((void **)&times, sizeof(*times), cudaHostAllocMapped);
    if (error != cudaSuccess)
        return error;
    void *arguments[] = {&own, &times};
    own.common.n_blocks = own.common.n_places = own.common.n_reports = 1;
    error = cudaFuncSetAttribute(kernels[proto], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)shared_bytes);
    if (error == cudaSuccess)
        error = cudaLaunchKernel(kernels[proto], dim3(1), dim3(N_THREADS), arguments, shared_bytes,
                                 stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    *times_out = *times;
    (void)cudaFreeHost(times);
    return error;
}
