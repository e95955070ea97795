/* SPDX-License-Identifier: Apache-2.0
 *
 * What the runtime (runtime_*.c) asks of the multiprocessors (block.c, kernels.cpp).
 */
#ifndef GYRE_TESTS_STAND_IN_GPU_LAUNCH_H
#define GYRE_TESTS_STAND_IN_GPU_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct stand_in_launch {
    void (*call)(const void *function, const void *args); /* runs the function as one thread */
    const void *function;
    const void *args;   /* the only argument; alive until the launch has ended */
    uint32_t n_blocks;  /* of all rows */
    uint32_t n_rows;    /* of the grid */
    uint32_t n_threads; /* of a block */
    uint32_t gpu;       /* ordinal */
};

/** When programs and libraries are loaded (kernels.cpp). @args_bytes: of its only argument, a
 * struct or a pointer. */
void stand_in_add_kernel(const void *function, size_t args_bytes,
                         void (*call)(const void *function, const void *args));

/** @function: as given to cudaLaunchKernel(). False if not known. */
bool stand_in_find_kernel(const void *function, size_t *args_bytes_out,
                          void (**call_out)(const void *function, const void *args));

/** Returns when all threads have ended. Blocks that run at the same time need a thread of the host
 * each. */
void stand_in_run_block(const struct stand_in_launch *launch, uint32_t block);

#ifdef __cplusplus
}
#endif

#endif
