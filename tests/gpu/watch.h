/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel that waits for flags in GPU memory and looks whether the data before them are there.
 */
#ifndef GYRE_TESTS_GPU_WATCH_H
#define GYRE_TESTS_GPU_WATCH_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Pinned host memory. */
struct watch_report {
    uint64_t n_seen;  /* flags so far */
    uint64_t n_wrong; /* words of data that did not have the flag's value when the flag had it */
};

/** watch_start - for each round from 1 on: wait until *flag is the round's number, look at all data
 * words, and report. Ends after n_rounds, or ten seconds without a flag. All words are in memory of
 * the current GPU. */
cudaError_t watch_start(const uint64_t *data, uint64_t n_words, const uint64_t *flag,
                        uint64_t n_rounds, struct watch_report *report, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
