/* SPDX-License-Identifier: Apache-2.0
 *
 * Weak memory for one block of the stand-in GPU, for docs/course/protocols.cu: stores wait in a
 * buffer of their block and reach memory in any order, and plain loads may be answered by a cache
 * that nobody keeps true. A fence empties the buffer, an acquire load the cache.
 *
 * It is weaker than the processors of the host and stronger than PTX's model: a thread's fence also
 * covers what other threads of its block stored without a barrier, and loads are not made early.
 */
#ifndef GYRE_TESTS_STAND_IN_GPU_WEAK_H
#define GYRE_TESTS_STAND_IN_GPU_WEAK_H

#include "tests/stand_in_gpu/block.h"

#include <stddef.h>
#include <stdint.h>

#define __device__
#define __global__
#define threadIdx (stand_in_place.thread)
#define blockIdx  (stand_in_place.block)

enum {
    WEAK_STORES = 48,  /* of a block, until one must reach memory */
    WEAK_WORDS = 2048, /* of a block's cache */
    WHOLE_BYTES = 128,
    WHOLE_STORES = WHOLE_BYTES / 8
};

struct weak_store {
    uint64_t *to;
    uint64_t value;
    bool is_whole; /* reaches memory together with the others of its 128 bytes */
};

/* A block is a thread of the host. */
static _Thread_local struct {
    struct weak_store stores[WEAK_STORES + 1];
    int n_stores;
    struct {
        const uint64_t *of;
        uint64_t value, time;
    } cache[WEAK_WORDS];
    uint64_t time; /* entries of earlier times are gone */
    uint64_t random;
} weak_block;

static inline uint32_t weak_random(uint32_t n)
{
    weak_block.random = weak_block.random * 6364136223846793005U + 2 * blockIdx.x + 1;
    return (uint32_t)(weak_block.random >> 33) % n;
}

static inline void weak_perform(int at)
{
    __atomic_store_n(weak_block.stores[at].to, weak_block.stores[at].value, __ATOMIC_RELEASE);
    weak_block.n_stores--;
    for (; at < weak_block.n_stores; at++)
        weak_block.stores[at] = weak_block.stores[at + 1];
}

/* One store of the buffer reaches memory, the oldest of its word. With all others of its 128 bytes,
 * or not yet, if it is one of those. */
static inline void weak_perform_one(int at)
{
    const uintptr_t line = (uintptr_t)weak_block.stores[at].to / WHOLE_BYTES;
    int n_of_line = 0;
    if (!weak_block.stores[at].is_whole) {
        for (int i = 0; i < at; i++)
            if (weak_block.stores[i].to == weak_block.stores[at].to)
                at = i;
        weak_perform(at);
        return;
    }
    for (int i = 0; i < weak_block.n_stores; i++)
        n_of_line += weak_block.stores[i].is_whole &&
                     (uintptr_t)weak_block.stores[i].to / WHOLE_BYTES == line;
    for (int i = 0; i < weak_block.n_stores && n_of_line == WHOLE_STORES;) {
        if (weak_block.stores[i].is_whole &&
            (uintptr_t)weak_block.stores[i].to / WHOLE_BYTES == line)
            weak_perform(i);
        else
            i++;
    }
}

static inline void weak_perform_some(void)
{
    if (weak_block.n_stores > 0 && weak_random(4) == 0)
        weak_perform_one((int)weak_random((uint32_t)weak_block.n_stores));
    while (weak_block.n_stores >= WEAK_STORES)
        weak_perform_one((int)weak_random((uint32_t)weak_block.n_stores));
}

static inline void weak_store(uint64_t *to, uint64_t value, bool is_whole)
{
    weak_block.stores[weak_block.n_stores++] = (struct weak_store){to, value, is_whole};
    weak_perform_some();
}

/* What this block stored last, else what is in memory. */
static inline uint64_t weak_load(const uint64_t *from)
{
    for (int i = weak_block.n_stores - 1; i >= 0; i--)
        if (weak_block.stores[i].to == from)
            return weak_block.stores[i].value;
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}

/* ---- what kernels/cuda/device/ptx.cuh has on a GPU ---- */

static inline void store_relaxed_sys(uint64_t *to, uint64_t value)
{
    weak_store(to, value, false);
}

static inline uint64_t load_relaxed_sys(const uint64_t *from)
{
    stand_in_polled(from);
    weak_perform_some();
    return weak_load(from);
}

static inline uint64_t load_acquire_sys(const uint64_t *from)
{
    weak_block.time++;
    return load_relaxed_sys(from);
}

static inline void fence_acq_rel_sys(void)
{
    while (weak_block.n_stores > 0)
        weak_perform(0);
}

typedef struct {
    uint64_t x, y;
} ulonglong2;

static inline ulonglong2 load_line(const void *line)
{
    const uint64_t *words = (const uint64_t *)line;
    const uint64_t y = load_relaxed_sys(&words[1]);
    return (ulonglong2){weak_load(&words[0]), y};
}

static inline void store_line(void *line, uint64_t x, uint64_t y)
{
    weak_store((uint64_t *)line, x, false);
    weak_store((uint64_t *)line + 1, y, false);
}

/* ---- what CUDA C++ has on a GPU ---- */

static inline void store_weak(uint64_t *to, uint64_t value)
{
    weak_store(to, value, false);
}

static inline uint64_t load_weak(const uint64_t *from)
{
    const size_t at = (uintptr_t)from / sizeof(*from) % WEAK_WORDS;
    if (weak_block.cache[at].of != from || weak_block.cache[at].time != weak_block.time) {
        weak_block.cache[at].of = from;
        weak_block.cache[at].value = weak_load(from);
        weak_block.cache[at].time = weak_block.time;
    }
    return weak_block.cache[at].value;
}

static inline void store_line_of_8_lanes(void *line, uint64_t x, uint64_t y)
{
    weak_store((uint64_t *)line, x, true);
    weak_store((uint64_t *)line + 1, y, true);
}

static inline void __syncthreads(void)
{
    (void)stand_in_barrier(0, 0, false);
}

static inline void __syncwarp(void)
{
    (void)stand_in_warp_shuffle(0, __FILE__, __LINE__);
}

static inline unsigned long long atomicAdd(unsigned long long *word, unsigned long long value)
{
    return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}

#endif
