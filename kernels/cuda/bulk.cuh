/* SPDX-License-Identifier: Apache-2.0
 *
 * SIMPLE's workers where a program only copies and everything is a multiple of 16 bytes: one warp,
 * the mover, drives the bulk copy engine of its multiprocessor (TMA, from Hopper on). Chunks come
 * from global memory into a ring of stages in shared memory and go from there to all outputs, with
 * several loads and several stores under way. No register holds data, no step has to drain before
 * the next one begins, and a few blocks fill a link.
 *
 * Ordering. What a peer wrote is visible to the mover once the waiter saw the flag (sync.cuh) and
 * announced the step through shared memory; fence.proxy.async then orders it before the bulk loads,
 * which read through another proxy (PTX ISA, "Async proxy"). A bulk group that
 * cp.async.bulk.wait_group waited for has been written and is visible to the mover ("Completion
 * mechanisms for cp.async.bulk"); the barrier to the poster and its fence and store make that
 * visible to the peer, as with stores of workers.
 */
#ifndef GYRE_KERNELS_CUDA_BULK_CUH
#define GYRE_KERNELS_CUDA_BULK_CUH

#include "kernels/cuda/move.cuh"

/* Loads under way are the stages that stores do not hold: 96 KiB a block, 64 KiB of stores. */
#define BULK_STAGES 10
#define BULK_STORES 4

static_assert(BULK_STAGES * GYRE_CUDA_BULK_CHUNK_BYTES == GYRE_CUDA_BULK_BYTES,
              "as the host sizes it");

#if __CUDA_ARCH__ >= 900

static __device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

static __device__ __forceinline__ void bulk_barrier_init(uint64_t *barrier)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier))
                 : "memory");
}

static __device__ __forceinline__ void bulk_fence()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

static __device__ __forceinline__ void bulk_load(void *stage, const unsigned char *from,
                                                 uint32_t n_bytes, uint64_t *barrier)
{
    const uint32_t at = shared_address(barrier);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(n_bytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(stage)),
                 "l"(from), "r"(n_bytes), "r"(at)
                 : "memory");
}

static __device__ __forceinline__ void bulk_await_load(uint64_t *barrier, uint32_t parity)
{
    uint32_t is_done = 0;
    while (is_done == 0)
        asm volatile("{\n\t"
                     ".reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t"
                     "}"
                     : "=r"(is_done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
}

static __device__ __forceinline__ void bulk_store(unsigned char *to, const void *stage,
                                                  uint32_t n_bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(stage)), "r"(n_bytes)
                 : "memory");
}

static __device__ __forceinline__ void bulk_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* At most N groups of this thread are still under way. */
template <int N> static __device__ __forceinline__ void bulk_await_stores()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

#else /* never launched: the host asks what the kernel was compiled for */

static __device__ void bulk_barrier_init(uint64_t *) {}
static __device__ void bulk_fence() {}
static __device__ void bulk_load(void *, const unsigned char *, uint32_t, uint64_t *) {}
static __device__ void bulk_await_load(uint64_t *, uint32_t) {}
static __device__ void bulk_store(unsigned char *, const void *, uint32_t) {}
static __device__ void bulk_commit() {}
template <int N> static __device__ void bulk_await_stores() {}

#endif

struct bulk_shared {
    uint64_t loaded[BULK_STAGES]; /* mbarriers */
    uint32_t n_ready;             /* steps that the waiter announced */
};

/* A place in the sequence of chunks of all steps. */
struct bulk_cursor {
    uint32_t step;
    uint32_t at; /* bytes of it that are behind */
    uint32_t n;  /* chunks that are behind */
};

/* One thread, before the block's barrier. */
static __device__ __forceinline__ void bulk_open(struct bulk_shared *bulk)
{
    for (int i = 0; i < BULK_STAGES; i++)
        bulk_barrier_init(&bulk->loaded[i]);
    bulk_fence();
    bulk->n_ready = 0;
}

/* The waiter's first lane: what the step's `struct move` says is there. */
static __device__ __forceinline__ void bulk_announce(struct bulk_shared *bulk, uint32_t n_ready)
{
    __threadfence_block();
    *(volatile uint32_t *)&bulk->n_ready = n_ready;
}

static __device__ __forceinline__ bool bulk_is_ready(const struct bulk_shared *bulk, uint32_t step)
{
    const bool is_ready = *(const volatile uint32_t *)&bulk->n_ready > step;
    __threadfence_block();
    return __all_sync(0xffffffffU, is_ready) != 0;
}

static __device__ __forceinline__ bool bulk_is_over(const struct move &move, uint32_t at)
{
    return move.is_stopped != 0 || at >= move.n_bytes;
}

static __device__ __forceinline__ void bulk_go_on(struct bulk_cursor *cursor,
                                                  const struct move &move)
{
    cursor->at += GYRE_CUDA_BULK_CHUNK_BYTES;
    cursor->n++;
    if (bulk_is_over(move, cursor->at)) {
        cursor->step++;
        cursor->at = 0;
    }
}

static __device__ __forceinline__ void bulk_skip(struct bulk_cursor *cursor)
{
    cursor->step++;
    cursor->at = 0;
}

/* The chunk at the cursor into its stage. */
static __device__ __forceinline__ void bulk_begin_load(struct bulk_shared *bulk,
                                                       unsigned char *stages,
                                                       const struct bulk_cursor &cursor,
                                                       const struct move &move)
{
    const uint32_t stage = cursor.n % BULK_STAGES;
    if (cursor.at == 0)
        bulk_fence();
    bulk_load(stages + stage * GYRE_CUDA_BULK_CHUNK_BYTES, move.ins[0] + cursor.at,
              min(move.n_bytes - cursor.at, GYRE_CUDA_BULK_CHUNK_BYTES), &bulk->loaded[stage]);
}

/* The chunk at the cursor, loaded, to all outputs, as one group. */
static __device__ __forceinline__ void
bulk_begin_stores(unsigned char *stages, const struct bulk_cursor &cursor, const struct move &move)
{
    const unsigned char *stage = stages + cursor.n % BULK_STAGES * GYRE_CUDA_BULK_CHUNK_BYTES;
    const uint32_t n_bytes = min(move.n_bytes - cursor.at, GYRE_CUDA_BULK_CHUNK_BYTES);
    for (uint32_t o = 0; o < move.n_outs; o++)
        bulk_store(move.outs[o] + cursor.at, stage, n_bytes);
    bulk_commit();
}

#endif
