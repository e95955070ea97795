/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's thread joins the communicator, measures the sizes or does --predict, --accuracy or tune,
 * and leaves.
 */
#ifndef GYRE_BENCH_RANK_THREAD_H
#define GYRE_BENCH_RANK_THREAD_H

#include "bench/driver/rank.h"

#include <limits.h>

/* Shared by one process's rank threads. */
struct bench_run {
    struct bench_options options;
    const struct bench_kind *kind;
    int argc;
    char **argv;
    struct bench_launcher launcher;
    struct bench_ranks ranks;
    struct gyre_filter_words allowed;
    struct bench_progress *progress;
    struct bench_dump *dump;
    gyre_unique_id id;
    gyre_comm **comms;   /* NULL = several processes */
    bool has_sweep_rows; /* written by local rank 0 */
    int exit_status;     /* written by local rank 0 */
    int interrupted_by;  /* written by local rank 0; 0 = none */
};

/** Collective. Failures are printed and set run->exit_status. @local: in this process, 0 is the
 * main thread. */
void bench_rank_thread(struct bench_run *run, int local);

/* "" = list not given, tuner's choice. */
struct bench_combination {
    char algo[32];
    char proto[32];
    char channels[32];
};

/** The word for channels changes first, then that for protocols. False past the last combination.
 * Pure. */
bool bench_combination_find(const struct bench_options *options, int i,
                            struct bench_combination *combination_out);

/** "dir/r.json" becomes "dir/r.ring-ll-4.json", or "dir/r.ll.json" with --proto alone. Pure.
 * Errors: INVALID_ARGUMENT (name too long). */
gyre_status bench_combination_path(const char *path, const struct bench_combination *combination,
                                   char path_out[PATH_MAX]);

#endif
