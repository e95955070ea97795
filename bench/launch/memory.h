/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of a host's memory a run takes at least, before it takes any. Ranks in host memory only:
 * a GPU's allocator refuses by itself what does not fit.
 */
#ifndef GYRE_BENCH_MEMORY_H
#define GYRE_BENCH_MEMORY_H

#include "bench/driver/options.h"
#include "bench/launch/launcher.h"

/* What the ranks of one host take together, in bytes. */
struct bench_memory {
    uint64_t n_ranks; /* of this host */
    uint64_t buffers_bytes;
    uint64_t comms_bytes;
};

/** bench_memory_predict - a lower bound: a run that it refuses would not have ended well.
 * @n_ranks: of the run. @n_ranks_here: of them on this host. @n_local: of them in this process.
 * Pure, apart from GYRE_BUFFSIZE and its like in the environment. */
struct bench_memory bench_memory_predict(const struct bench_kind *kind,
                                         const struct bench_options *options, uint64_t n_ranks,
                                         uint64_t n_ranks_here, uint64_t n_local);

/** bench_memory_find_free - what processes can still get: free memory and swap, or what the control
 * groups of this process leave where that is less.
 * @root: "" or a test's folder, in which proc and sys are.
 * @what_out: static words that name the limit. Returns UINT64_MAX where nothing is known. */
uint64_t bench_memory_find_free(const char *root, const char **what_out);

/** bench_memory_check - do they fit? @free_bytes, @what: from bench_memory_find_free.
 * Errors: OUT_OF_MEMORY with both figures and with a number of bytes or ranks that would fit. */
gyre_status bench_memory_check(const struct bench_memory *memory,
                               const struct bench_options *options, uint64_t free_bytes,
                               const char *what);

/** bench_memory_agree - the check on each host, by the first of its processes. All processes
 * together; all fail when one host has too little.
 * @n_local: ranks of this process. */
gyre_status bench_memory_agree(struct bench_launcher *launcher, const struct bench_kind *kind,
                               const struct bench_options *options, int n_local);

#endif
