/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA C++ for g++: what nvcc knows without an include, for every kernel file. Votes and shuffles
 * are of whole warps.
 */
#ifndef GYRE_TESTS_STAND_IN_GPU_DEVICE_H
#define GYRE_TESTS_STAND_IN_GPU_DEVICE_H

#include "tests/stand_in_gpu/block.h"

#include <cuda_runtime_api.h>
#include <string.h>
#include <time.h>
#include <type_traits>

/* A host thread runs one block at a time. */
#undef __shared__
#define __shared__ thread_local

/* A launch's shared memory is an array of this name. It is too long for thread-local storage, which
 * threads with short stacks have, too. */
#define shared_words (*stand_in_shared_words)

#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)

#define threadIdx (stand_in_place.thread)
#define blockIdx  (stand_in_place.block)
#define blockDim  (stand_in_place.n_threads)
#define gridDim   (stand_in_place.n_blocks)

template <class A, class B> static inline typename std::common_type<A, B>::type min(A a, B b)
{
    using both = typename std::common_type<A, B>::type;
    return (both)a < (both)b ? (both)a : (both)b;
}

template <class A, class B> static inline typename std::common_type<A, B>::type max(A a, B b)
{
    using both = typename std::common_type<A, B>::type;
    return (both)a > (both)b ? (both)a : (both)b;
}

static inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> (shift & 31U));
}

static inline void __syncthreads()
{
    (void)stand_in_barrier(0, 0, false);
}

static inline int __syncthreads_or(int vote)
{
    return stand_in_barrier(0, 0, vote != 0) != 0;
}

static inline int __syncthreads_and(int vote)
{
    return stand_in_barrier(0, 0, vote == 0) == 0;
}

static inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#define PLACE              const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define WARP_VALUES(value) stand_in_warp_shuffle(value, file, line)

static inline void __syncwarp(PLACE)
{
    (void)WARP_VALUES(0);
}

static inline uint32_t __ballot_sync(uint32_t, int vote, PLACE)
{
    const uint64_t *votes = WARP_VALUES(vote != 0);
    uint32_t all = 0;
    for (int lane = 0; lane < STAND_IN_WARP_LANES; lane++)
        all |= (uint32_t)votes[lane] << lane;
    return all;
}

static inline int __any_sync(uint32_t mask, int vote, PLACE)
{
    return __ballot_sync(mask, vote, file, line) != 0;
}

static inline int __all_sync(uint32_t mask, int vote, PLACE)
{
    return __ballot_sync(mask, !vote, file, line) == 0;
}

template <class T> static inline T __shfl_sync(uint32_t, T value, int from, PLACE)
{
    uint64_t bits = 0;
    static_assert(sizeof(T) <= sizeof(bits), "a shuffle moves up to 8 bytes");
    memcpy(&bits, &value, sizeof(T));
    memcpy(&value, &WARP_VALUES(bits)[from % STAND_IN_WARP_LANES], sizeof(T));
    return value;
}

static inline uint32_t __reduce_max_sync(uint32_t, uint32_t value, PLACE)
{
    const uint64_t *values = WARP_VALUES(value);
    uint32_t most = 0;
    for (int lane = 0; lane < STAND_IN_WARP_LANES; lane++)
        most = max(most, (uint32_t)values[lane]);
    return most;
}

static inline uint32_t __reduce_or_sync(uint32_t, uint32_t value, PLACE)
{
    const uint64_t *values = WARP_VALUES(value);
    uint32_t all = 0;
    for (int lane = 0; lane < STAND_IN_WARP_LANES; lane++)
        all |= (uint32_t)values[lane];
    return all;
}

#undef WARP_VALUES
#undef PLACE

template <class T, class V> static inline T atomicAdd(T *word, V value)
{
    return __atomic_fetch_add(word, (T)value, __ATOMIC_SEQ_CST);
}

template <class T, class V> static inline T atomicAdd_system(T *word, V value)
{
    return atomicAdd(word, value);
}

static inline uint32_t atomicOr(uint32_t *word, uint32_t bits)
{
    return __atomic_fetch_or(word, bits, __ATOMIC_SEQ_CST);
}

static inline unsigned long long atomicCAS(unsigned long long *word, unsigned long long expected,
                                           unsigned long long value)
{
    (void)__atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST);
    return expected;
}

static inline uint32_t atomicInc(uint32_t *word, uint32_t last)
{
    uint32_t before = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(word, &before, before >= last ? 0 : before + 1, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    return before;
}

static inline unsigned long long atomicMin(unsigned long long *word, unsigned long long value)
{
    unsigned long long before = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    while (before > value && !__atomic_compare_exchange_n(word, &before, value, false,
                                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    return before;
}

#endif
