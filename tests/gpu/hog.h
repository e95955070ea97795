/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel that keeps multiprocessors from all others.
 */
#ifndef GYRE_TESTS_GPU_HOG_H
#define GYRE_TESTS_GPU_HOG_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kernel's argument. */
struct hog_args {
    const volatile uint32_t *is_over;
    uint32_t *n_started;
};

extern const void *const hog_kernel;

/** Blocks on the current GPU, each with all shared memory of a multiprocessor, until the word is
 * not 0, at most 250 seconds. @n_started: counts the blocks that run. Both words: pinned host
 * memory. */
cudaError_t hog_start(int n_blocks, const uint32_t *is_over, uint32_t *n_started,
                      cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
