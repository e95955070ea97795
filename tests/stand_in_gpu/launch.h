/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stand-in's CUDA runtime (runtime_*.c) asks of its multiprocessors (block.c,
 * kernels.cpp).
 */
#ifndef GYRE_TESTS_STAND_IN_GPU_LAUNCH_H
#define GYRE_TESTS_STAND_IN_GPU_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One launch of a kernel. */
struct stand_in_launch {
    void (*call)(const void *function, const void *args); /* runs the function as one thread */
    const void *function;
    const void *args;   /* the kernel's only argument; alive until the launch has ended */
    uint32_t n_blocks;  /* of all rows */
    uint32_t n_rows;    /* of the grid */
    uint32_t n_threads; /* of a block */
    uint32_t gpu;       /* ordinal */
};

/** stand_in_add_kernel - make a kernel known. Programs and libraries do this when they are loaded
 * (kernels.cpp).
 * @args_bytes: size of its only argument, a struct or a pointer.
 * @call: for struct stand_in_launch. */
void stand_in_add_kernel(const void *function, size_t args_bytes,
                         void (*call)(const void *function, const void *args));

/** stand_in_find_kernel - look up a kernel.
 * @function: what the program gave to cudaLaunchKernel(): the address of a kernel.
 * Returns false if it is not known. */
bool stand_in_find_kernel(const void *function, size_t *args_bytes_out,
                          void (**call_out)(const void *function, const void *args));

/** stand_in_run_block - run all threads of one block on the calling thread of the host. Returns
 * when they have ended. Blocks that run at the same time need a thread of the host each. */
void stand_in_run_block(const struct stand_in_launch *launch, uint32_t block);

#ifdef __cplusplus
}
#endif

#endif
