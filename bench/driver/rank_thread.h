/* SPDX-License-Identifier: Apache-2.0
 *
 * What one rank's thread does in a run, from joining the communicator to leaving it: the table of
 * sizes, or what stands in its place (--predict, --accuracy, a bench's own work).
 */
#ifndef GYRE_BENCH_RANK_THREAD_H
#define GYRE_BENCH_RANK_THREAD_H

#include "bench/driver/rank.h"

/* One process's part of a run; the threads of its ranks share it. */
struct bench_run {
    struct bench_options options;
    const struct bench_kind *kind;
    int argc;
    char **argv;
    struct bench_launcher launcher;
    struct bench_ranks ranks;
    struct gyre_filter_words allowed; /* by the options, or by the combination of --sweep */
    struct bench_progress *progress;
    gyre_unique_id id;
    gyre_comm **comms;  /* by local rank, when all ranks live here; else NULL */
    int exit_status;    /* written by local rank 0 */
    int interrupted_by; /* likewise; the signal that some process got, 0 = none */
};

/** bench_rank_thread - the whole life of one rank in this process. Collective over all ranks.
 * Failures are printed and end up in run->exit_status.
 * @local: index of the rank in this process; local rank 0 runs on the main thread. */
void bench_rank_thread(struct bench_run *run, int local);

#endif
