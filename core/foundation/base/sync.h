/* SPDX-License-Identifier: Apache-2.0
 *
 * Every word shared with another thread, process, GPU or NIC is accessed by these functions, named
 * for their memory ordering (model: liburing's barrier.h). An acquire load pairs with the release
 * store whose value it reads.
 */
#ifndef GYRE_BASE_SYNC_H
#define GYRE_BASE_SYNC_H

#include <stdbool.h>
#include <stdint.h>
#include <sched.h>

static inline uint64_t gyre_load_acquire_u64(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline uint64_t gyre_load_relaxed_u64(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void gyre_store_release_u64(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline void gyre_store_relaxed_u64(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline uint32_t gyre_load_acquire_u32(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline uint32_t gyre_load_relaxed_u32(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void gyre_store_relaxed_u32(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline void gyre_store_release_u32(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline uint64_t gyre_fetch_add_u64(uint64_t *word, uint64_t value)
{
    return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}

static inline uint32_t gyre_fetch_add_u32(uint32_t *word, uint32_t value)
{
    return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}

static inline bool gyre_compare_exchange_u32(uint32_t *word, uint32_t expected, uint32_t desired)
{
    return __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

static inline void gyre_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

#endif
