/* SPDX-License-Identifier: Apache-2.0
 *
 * What the thread of one rank does: it joins the communicator, measures the table of sizes or does
 * what stands in its place (--predict, --accuracy, the work of tune), and leaves.
 */
#ifndef GYRE_BENCH_RANK_THREAD_H
#define GYRE_BENCH_RANK_THREAD_H

#include "bench/driver/rank.h"

#include <limits.h>

/* Of one process. The threads of its ranks share it. */
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
    gyre_comm **comms;   /* NULL = ranks are in several processes */
    bool has_sweep_rows; /* written by local rank 0 */
    int exit_status;     /* written by local rank 0 */
    int interrupted_by;  /* written by local rank 0; 0 = none */
};

/** bench_rank_thread - collective over all ranks. Failures are printed and set run->exit_status.
 * @local: index in this process; 0 runs on the main thread. */
void bench_rank_thread(struct bench_run *run, int local);

/* ---- --sweep: the combinations of the lists of --algo, --proto and --channels -------------- */

/* "" = the list was not given, and the tuner chooses. */
struct bench_combination {
    char algo[32];
    char proto[32];
    char channels[32];
};

/** bench_combination_find - the word for channels changes first, then that for protocols. False
 * past the last one. Pure. */
bool bench_combination_find(const struct bench_options *options, int i,
                            struct bench_combination *combination_out);

/** bench_combination_path - "dir/r.json" becomes "dir/r.ring-ll-4.json", or "dir/r.ll.json" if only
 * --proto was given. Pure. Errors: INVALID_ARGUMENT (the name is too long). */
gyre_status bench_combination_path(const char *path, const struct bench_combination *combination,
                                   char path_out[PATH_MAX]);

#endif
