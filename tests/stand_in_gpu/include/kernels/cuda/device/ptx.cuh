/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in for kernels/cuda/device/ptx.cuh. The weakest orders of the host's memory are
 * stronger than PTX's, so a missing fence is not found out here. A read of a word that others write
 * may let them run first.
 */
#ifndef GYRE_TESTS_STAND_IN_GPU_PTX_CUH
#define GYRE_TESTS_STAND_IN_GPU_PTX_CUH

#include "kernels/numeric.h"
#include "tests/stand_in_gpu/device.h"

static inline uint4 load_16_bytes(const void *from)
{
    return *(const uint4 *)from;
}

static inline uint2 load_8_bytes(const void *from)
{
    return *(const uint2 *)from;
}

static inline uint32_t load_4_bytes(const void *from)
{
    return *(const uint32_t *)from;
}

static inline uint16_t load_2_bytes(const void *from)
{
    return *(const uint16_t *)from;
}

static inline uint16_t load_1_byte(const void *from)
{
    return *(const uint8_t *)from;
}

static inline void store_16_bytes(void *to, uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    *(uint4 *)to = {x, y, z, w};
}

static inline void store_8_bytes(void *to, uint32_t x, uint32_t y)
{
    *(uint2 *)to = {x, y};
}

static inline void store_4_bytes(void *to, uint32_t value)
{
    *(uint32_t *)to = value;
}

static inline void store_2_bytes(void *to, uint16_t value)
{
    *(uint16_t *)to = value;
}

static inline void store_1_byte(void *to, uint16_t value)
{
    *(uint8_t *)to = (uint8_t)value;
}

static inline uint64_t load_acquire_sys(const uint64_t *word)
{
    stand_in_polled(word);
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline uint64_t load_relaxed_sys(const uint64_t *word)
{
    stand_in_polled(word);
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline uint32_t load_relaxed_sys(const uint32_t *word)
{
    stand_in_polled(word);
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void store_relaxed_sys(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline void store_relaxed_sys(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline void fence_acq_rel_sys()
{
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
}

static inline void fence_sc_sys()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Lanes store the parts of an LL128 line in ascending order, its flag last: a release there is what
 * NVLink promises for the line. */
static inline ulonglong2 load_line(const void *line)
{
    const uint64_t *words = (const uint64_t *)line;
    stand_in_polled(line);
    const uint64_t y = __atomic_load_n(&words[1], __ATOMIC_ACQUIRE);
    return {__atomic_load_n(&words[0], __ATOMIC_ACQUIRE), y};
}

static inline void store_line(void *line, uint64_t x, uint64_t y)
{
    uint64_t *words = (uint64_t *)line;
    __atomic_store_n(&words[0], x, __ATOMIC_RELEASE);
    __atomic_store_n(&words[1], y, __ATOMIC_RELEASE);
}

static inline void clear_line(void *line)
{
    store_line(line, 0, 0);
}

static inline uint64_t global_ns()
{
    struct timespec now;
    stand_in_yield();
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* A waiting block sleeps 0.05 to 0.5 ms between polls. */
#define ABORT_POLLS      16U
#define ABORT_HOST_POLLS 64U

static inline void await_last_launch() {}

static inline void allow_dependent_launch() {}

static inline void barrier_sync(int id, int n_threads)
{
    (void)stand_in_barrier((unsigned)id, (uint32_t)n_threads, false);
}

static inline void barrier_arrive(int id, int n_threads)
{
    stand_in_barrier_arrive((unsigned)id, (uint32_t)n_threads);
}

static inline void fence_proxy_async_shared() {}

static inline void bulk_store(void *to, const void *from, uint32_t n_bytes)
{
    memcpy(to, from, n_bytes);
}

static inline void bulk_await() {}

#define f16_widen     gyre_f16_to_f32
#define f16_narrow    gyre_f32_to_f16
#define bf16_narrow   gyre_f32_to_bf16
#define f8e4m3_widen  gyre_f8e4m3_to_f32
#define f8e4m3_narrow gyre_f32_to_f8e4m3
#define f8e5m2_widen  gyre_f8e5m2_to_f32
#define f8e5m2_narrow gyre_f32_to_f8e5m2

/* Each block has its own. */
static inline uint32_t multiprocessor()
{
    return blockIdx.x;
}

#endif
