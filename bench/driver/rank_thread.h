/* SPDX-License-Identifier: Apache-2.0
 *
 * What the thread of one rank does in a run, from joining the communicator to leaving it. In
 * between it measures the table of sizes, or does what stands in place of the table (--predict,
 * --accuracy, the own work of a bench).
 */
#ifndef GYRE_BENCH_RANK_THREAD_H
#define GYRE_BENCH_RANK_THREAD_H

#include "bench/driver/rank.h"

/* One process's part of a run. The threads of its ranks share it. */
struct bench_run {
    struct bench_options options;
    const struct bench_kind *kind;
    int argc;
    char **argv;
    struct bench_launcher launcher;
    struct bench_ranks ranks;
    struct gyre_filter_words allowed; /* what --algo, --proto, --path or the combination allow */
    struct bench_progress *progress;
    struct bench_dump *dump;
    gyre_unique_id id;
    gyre_comm **comms;   /* by local rank if all ranks are in this process; else NULL */
    bool has_sweep_rows; /* written by local rank 0: the CSV of the whole sweep is begun */
    int exit_status;     /* written by local rank 0 */
    int interrupted_by;  /* written by local rank 0: the signal that some process got; 0 = none */
};

/** bench_rank_thread - the whole life of one rank of this process. Collective over all ranks.
 * Failures are printed and set run->exit_status.
 * @local: index of the rank in this process. Local rank 0 runs on the main thread. */
void bench_rank_thread(struct bench_run *run, int local);

#endif
