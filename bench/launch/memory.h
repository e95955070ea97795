/* SPDX-License-Identifier: Apache-2.0
 *
 * A prediction of the memory that a run needs on its host, and the refusal of runs that do not fit.
 * It covers ranks in host memory only. A GPU's allocator refuses by itself what does not fit.
 */
#ifndef GYRE_BENCH_MEMORY_H
#define GYRE_BENCH_MEMORY_H

#include "bench/driver/options.h"
#include "bench/launch/launcher.h"

/* The memory of all ranks of one host together, in bytes. */
struct bench_memory {
    uint64_t n_ranks; /* ranks on this host */
    uint64_t buffers_bytes;
    uint64_t comms_bytes;
};

/** bench_memory_predict - a lower bound on the memory, so that a run that is refused would have
 * failed. Pure, except that it reads the library's variables (GYRE_BUFFSIZE and others).
 * @n_ranks: ranks of the whole run. @n_ranks_here: ranks on this host. @n_local: ranks of this
 * process. */
struct bench_memory bench_memory_predict(const struct bench_kind *kind,
                                         const struct bench_options *options, uint64_t n_ranks,
                                         uint64_t n_ranks_here, uint64_t n_local);

/** bench_memory_find_free - the memory that processes can still get. This is the free memory and
 * swap of the host, or what the control groups of this process leave if that is less.
 * @root: "" or a test's folder that contains proc and sys.
 * @what_out: a static text that names the limit. Returns UINT64_MAX if nothing is known. */
uint64_t bench_memory_find_free(const char *root, const char **what_out);

/** bench_memory_check - compare a prediction with the free memory.
 * @free_bytes, @what: from bench_memory_find_free().
 * Errors: OUT_OF_MEMORY with both figures, and with a size or a number of ranks that would fit. */
gyre_status bench_memory_check(const struct bench_memory *memory,
                               const struct bench_options *options, uint64_t free_bytes,
                               const char *what);

/** bench_memory_agree - run the check in the first process of each host. Collective over the
 * processes, which all fail if one host has too little memory.
 * @n_local: number of ranks of each process. */
gyre_status bench_memory_agree(struct bench_launcher *launcher, const struct bench_kind *kind,
                               const struct bench_options *options, int n_local);

#endif
