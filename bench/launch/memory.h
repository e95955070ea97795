/* SPDX-License-Identifier: Apache-2.0
 *
 * Refuses runs in host memory that do not fit. A GPU's allocator refuses them by itself.
 */
#ifndef GYRE_BENCH_MEMORY_H
#define GYRE_BENCH_MEMORY_H

#include "bench/driver/options.h"
#include "bench/launch/launcher.h"

/** bench_memory_needed - a lower bound for one host, so that a run that is refused would have
 * failed. Pure. @n_ranks: of the whole run. @n_ranks_here: on this host. */
uint64_t bench_memory_needed(const struct bench_options *options, uint64_t n_ranks,
                             uint64_t n_ranks_here);

/** bench_memory_find_free - free memory and swap of the host, or what the control groups of this
 * process leave if that is less. UINT64_MAX = unknown. @root: "" or a test's folder that contains
 * proc and sys. @what_out: a static text that names the limit. */
uint64_t bench_memory_find_free(const char *root, const char **what_out);

/** bench_memory_check - errors: OUT_OF_MEMORY with both figures. @free_bytes, @what: from
 * bench_memory_find_free(). */
gyre_status bench_memory_check(uint64_t n_ranks_here, uint64_t needed_bytes, uint64_t free_bytes,
                               const char *what);

/** bench_memory_agree - checked in the first process of each host. Collective over the processes,
 * which all fail if one host has too little memory. @n_local: ranks of each process. */
gyre_status bench_memory_agree(struct bench_launcher *launcher, const struct bench_options *options,
                               int n_local);

#endif
