/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/limits/limits_kernels.h"

#include "core/foundation/device/cuda_error.h"

/* 132 blocks of this shape stored 364 GB/s to the next GPU (4x H200, CUDA 13.0, 2026-11). */
#define THREADS 512
#define UNROLL  4 /* loads in flight */

/* A flag arrives within a few polls, untouched by looks at the clock. */
#define POLLS_PER_LOOK 64U

/* Untimed, until both kernels run. */
#define WARM_ROUNDS 100U

/* 192 of a block's 227 KiB of shared memory on sm_90. STORING chunks may still be read by stores
 * when the next load is issued. */
#define STAGES    12U
#define STORING   4U
#define TMA_BYTES (STAGES * BENCH_TMA_BYTES)

static __device__ __forceinline__ uint32_t load_relaxed_sys(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

static __device__ __forceinline__ void store_relaxed_sys(uint32_t *word, uint32_t value)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

static __device__ __forceinline__ uint64_t clock_ns()
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

struct wait_clock {
    uint32_t n_polls;
    uint64_t begin_ns; /* 0 = no look yet */
};

/* After an empty poll. */
static __device__ __forceinline__ bool is_overdue(struct wait_clock *clock,
                                                  struct bench_flag_page *flags)
{
    if (++clock->n_polls % POLLS_PER_LOOK != 0)
        return false;
    const uint64_t now = clock_ns();
    if (clock->begin_ns == 0)
        clock->begin_ns = now;
    if (now - clock->begin_ns < BENCH_KERNEL_WAIT_NS)
        return false;
    store_relaxed_sys(&flags->is_overdue, 1);
    return true;
}

/* False if overdue. */
static __device__ __forceinline__ bool wait_for(const uint32_t *word, uint32_t value,
                                                struct bench_flag_page *flags)
{
    struct wait_clock clock = {0, 0};
    while (load_relaxed_sys(word) != value)
        if (is_overdue(&clock, flags))
            return false;
    return true;
}

static __global__ void wait_for_host(struct bench_flag_page *flags)
{
    (void)wait_for(&flags->may_start, 1, flags);
}

static __global__ void nothing() {}

static __global__ void ping_pong(const __grid_constant__ struct bench_ping_pong side)
{
    uint64_t begin_ns = 0;
    for (uint32_t round = 1; round <= WARM_ROUNDS + side.n_rounds; round++) {
        if (side.begins)
            store_relaxed_sys(side.theirs, round);
        if (!wait_for(side.mine, round, side.flags))
            return;
        if (!side.begins)
            store_relaxed_sys(side.theirs, round);
        if (round == WARM_ROUNDS)
            begin_ns = clock_ns();
    }
    if (side.begins)
        side.flags->ping_pong_ns = clock_ns() - begin_ns;
}

static __global__ void __launch_bounds__(THREADS)
    copy_lines(uint4 *__restrict__ to, const uint4 *__restrict__ from, uint64_t n_lines)
{
    const uint64_t stride = (uint64_t)gridDim.x * THREADS;
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    for (; i + (UNROLL - 1) * stride < n_lines; i += UNROLL * stride) {
        uint4 lines[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            lines[k] = from[i + k * stride];
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            to[i + k * stride] = lines[k];
    }
    for (; i < n_lines; i += stride)
        to[i] = from[i];
}

/* From the next GPU on, so that no GPU is written by all others at once. */
static __global__ void __launch_bounds__(THREADS)
    scatter_lines(const __grid_constant__ struct bench_scatter scatter)
{
    const uint64_t stride = (uint64_t)gridDim.x * THREADS;
    const uint64_t n_lines = scatter.piece_bytes / sizeof(uint4);
    const uint4 *from = (const uint4 *)scatter.from;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < n_lines;
         i += UNROLL * stride)
        for (uint32_t step = 1; step < scatter.n_gpus; step++) {
            const uint32_t peer = (scatter.gpu + step) % scatter.n_gpus;
            uint4 *to = (uint4 *)scatter.to[peer];
            uint4 lines[UNROLL];
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                if (i + k * stride < n_lines)
                    lines[k] = from[peer * n_lines + i + k * stride];
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                if (i + k * stride < n_lines)
                    to[i + k * stride] = lines[k];
        }
}

#if __CUDA_ARCH__ >= 900

static __device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* The barrier completes when a load has filled the chunk. */
struct stage {
    uint32_t chunk;
    uint32_t barrier;
};

static __device__ __forceinline__ void start_load(struct stage stage, const char *from)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(stage.barrier),
                 "r"(BENCH_TMA_BYTES)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(stage.chunk),
                 "l"(from), "r"(BENCH_TMA_BYTES), "r"(stage.barrier)
                 : "memory");
}

static __device__ __forceinline__ void start_store(char *to, struct stage stage)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(stage.chunk), "r"(BENCH_TMA_BYTES)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* @parity: of the barrier's phase, 0 for the stage's first load. False if overdue. */
static __device__ __forceinline__ bool wait_load(struct stage stage, uint32_t parity,
                                                 struct bench_flag_page *flags)
{
    struct wait_clock clock = {0, 0};
    uint32_t is_done = 0;
    while (!is_done) {
        asm volatile("{\n"
                     ".reg .pred done;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, done;\n"
                     "}"
                     : "=r"(is_done)
                     : "r"(stage.barrier), "r"(parity)
                     : "memory");
        if (!is_done && is_overdue(&clock, flags))
            return false;
    }
    return true;
}

#endif

/* Chunk k of a block is `block + k * blocks`. Loads run STAGES - STORING chunks ahead of stores.
 * Only bulk copies access chunks, so the barrier orders enough (PTX ISA, "Async proxy"). */
static __global__ void copy_by_tma(char *to, const char *from, uint64_t n_chunks,
                                   struct bench_flag_page *flags)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char chunks[];
    __shared__ __align__(8) uint64_t barriers[STAGES];
    const uint32_t first_chunk = shared_address(chunks), first_barrier = shared_address(barriers);
    const uint64_t step_bytes = (uint64_t)gridDim.x * BENCH_TMA_BYTES;
    const uint64_t n_mine = (n_chunks + gridDim.x - 1 - blockIdx.x) / gridDim.x;
    from += blockIdx.x * (uint64_t)BENCH_TMA_BYTES;
    to += blockIdx.x * (uint64_t)BENCH_TMA_BYTES;
    for (uint32_t i = 0; i < STAGES; i++)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(first_barrier + i * 8)
                     : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    for (uint64_t k = 0; k < n_mine + STAGES - STORING; k++) {
        if (k >= STAGES - STORING) {
            const uint64_t done = k - (STAGES - STORING);
            const uint32_t i = (uint32_t)(done % STAGES);
            const struct stage stage = {first_chunk + i * BENCH_TMA_BYTES, first_barrier + i * 8};
            if (!wait_load(stage, (uint32_t)(done / STAGES) & 1, flags))
                break;
            start_store(to + done * step_bytes, stage);
            asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(STORING) : "memory");
        }
        if (k < n_mine) {
            const uint32_t i = (uint32_t)(k % STAGES);
            start_load({first_chunk + i * BENCH_TMA_BYTES, first_barrier + i * 8},
                       from + k * step_bytes);
        }
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

static gyre_status launched(const char *kernel)
{
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? GYRE_SUCCESS : gyre_cuda_fail(error, kernel);
}

extern "C" gyre_status bench_kernels_load(uint32_t arch)
{
    const void *const kernels[] = {(const void *)wait_for_host, (const void *)nothing,
                                   (const void *)ping_pong,     (const void *)copy_lines,
                                   (const void *)scatter_lines, (const void *)copy_by_tma};
    struct cudaFuncAttributes attributes;
    for (const void *kernel : kernels)
        GYRE_CUDA_TRY(cudaFuncGetAttributes(&attributes, kernel));
    if (arch >= 90)
        GYRE_CUDA_TRY(cudaFuncSetAttribute((const void *)copy_by_tma,
                                           cudaFuncAttributeMaxDynamicSharedMemorySize, TMA_BYTES));
    return GYRE_SUCCESS;
}

extern "C" gyre_status bench_enqueue_sync(struct bench_flag_page *flags, gyre_stream stream)
{
    wait_for_host<<<1, 1, 0, (cudaStream_t)stream>>>(flags);
    return launched("the sync kernel");
}

extern "C" gyre_status bench_enqueue_copy(const struct bench_copy *copy, gyre_stream stream)
{
    copy_lines<<<copy->n_blocks, THREADS, 0, (cudaStream_t)stream>>>(
        (uint4 *)copy->to, (const uint4 *)copy->from, copy->n_bytes / sizeof(uint4));
    return launched("a copy by SMs");
}

extern "C" gyre_status bench_enqueue_scatter(const struct bench_scatter *scatter, uint32_t n_blocks,
                                             gyre_stream stream)
{
    scatter_lines<<<n_blocks, THREADS, 0, (cudaStream_t)stream>>>(*scatter);
    return launched("a scatter by SMs");
}

extern "C" gyre_status bench_enqueue_tma_copy(const struct bench_copy *copy,
                                              struct bench_flag_page *flags, gyre_stream stream)
{
    copy_by_tma<<<copy->n_blocks, 1, TMA_BYTES, (cudaStream_t)stream>>>(
        (char *)copy->to, (const char *)copy->from, copy->n_bytes / BENCH_TMA_BYTES, flags);
    return launched("a copy by TMA");
}

extern "C" gyre_status bench_enqueue_ping_pong(const struct bench_ping_pong *side,
                                               gyre_stream stream)
{
    ping_pong<<<1, 1, 0, (cudaStream_t)stream>>>(*side);
    return launched("ping-pong");
}

extern "C" gyre_status bench_enqueue_nothing(gyre_stream stream)
{
    nothing<<<1, 32, 0, (cudaStream_t)stream>>>();
    return launched("an empty kernel");
}
