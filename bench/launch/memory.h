/* SPDX-License-Identifier: Apache-2.0
 *
 * Refuses runs that do not fit host memory. A GPU's allocator refuses by itself.
 */
#ifndef GYRE_BENCH_MEMORY_H
#define GYRE_BENCH_MEMORY_H

#include "bench/driver/options.h"
#include "bench/launch/launcher.h"

/** A lower bound for one host, so that only runs that would fail are refused. Pure. @n_ranks: of
 * the whole run. */
uint64_t bench_memory_needed(const struct bench_options *options, uint64_t n_ranks,
                             uint64_t n_ranks_here);

/** Free memory and swap of the host, or what control groups leave if that is less. UINT64_MAX =
 * unknown. @root: "", or holds proc and sys. @what_out: static name of the limit. */
uint64_t bench_memory_find_free(const char *root, const char **what_out);

/** @free_bytes, @what: from bench_memory_find_free(). Errors: OUT_OF_MEMORY with both figures. */
gyre_status bench_memory_check(uint64_t n_ranks_here, uint64_t needed_bytes, uint64_t free_bytes,
                               const char *what);

/** Checked by each host's first process. Collective over processes, which all fail together.
 * @n_local: ranks a process. */
gyre_status bench_memory_agree(struct bench_launcher *launcher, const struct bench_options *options,
                               int n_local);

#endif
