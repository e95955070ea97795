/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of a kernel on one thread of the host. Each of its threads is a fiber, which runs until
 * it waits for other threads. Lanes of a warp run in ascending order. Valid as C11 and as C++.
 */
#ifndef GYRE_TESTS_STAND_IN_GPU_BLOCK_H
#define GYRE_TESTS_STAND_IN_GPU_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define STAND_IN_THREAD_LOCAL thread_local
#else
#define STAND_IN_THREAD_LOCAL _Thread_local
#endif

enum {
    STAND_IN_WARP_LANES = 32,
    STAND_IN_MAX_THREADS = 1024, /* of a block */
    STAND_IN_N_BARRIERS = 16,
    STAND_IN_SHARED_BYTES = 227 * 1024 /* that a launch can ask for */
};

/* The running fiber's: CUDA's built-in variables. Blocks have one dimension, grids have two. */
struct stand_in_index {
    uint32_t x, y;
};

struct stand_in_place {
    struct stand_in_index thread;
    struct stand_in_index block;
    struct stand_in_index n_threads;
    struct stand_in_index n_blocks;
};

extern STAND_IN_THREAD_LOCAL struct stand_in_place stand_in_place;

/** The running thread has read a word that others write. At the second time others run first. */
void stand_in_polled(const void *word);

/** Other threads and blocks run first. */
void stand_in_yield(void);

/** As bar.sync. @n_threads: wait or arrive there; 0 = all that have not ended. Returns how many
 * voted true. */
uint32_t stand_in_barrier(unsigned id, uint32_t n_threads, bool vote);

/** Without waiting. */
void stand_in_barrier_arrive(unsigned id, uint32_t n_threads);

/** With all lanes of this warp. Ends the process if they meet in different lines. @file, @line: the
 * place in the kernel, of static storage. Returns 32 values, valid until the next call but one; 0
 * for lanes that have ended. */
const uint64_t *stand_in_warp_shuffle(uint64_t value, const char *file, int line);

#ifdef __cplusplus
}
#endif

#endif
