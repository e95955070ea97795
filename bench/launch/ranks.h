/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a run: the threads of all processes. At the end of each phase every rank tells the
 * others whether it succeeded, so that no rank waits for one that gave up.
 */
#ifndef GYRE_BENCH_RANKS_H
#define GYRE_BENCH_RANKS_H

#include "bench/launch/launcher.h"

#include <pthread.h>

/* Shared by the ranks of one process. */
struct bench_ranks {
    struct bench_launcher *launcher;
    int n_local;
    pthread_barrier_t barrier;
    const void **mine;       /* by local rank: its contribution; stable between barriers */
    unsigned char *gathered; /* written by local rank 0 between barriers */
    size_t n_gathered_bytes;
    gyre_status status; /* of the last gather; written by local rank 0 between barriers */
    char cause[GYRE_CAUSE_MAX_BYTES];
};

struct bench_member {
    struct bench_ranks *ranks;
    int local; /* index in this process; local rank 0 runs on the main thread */
    int rank;
    int n_ranks;
};

/** bench_ranks_open / close - @n_local: the same in all processes. */
gyre_status bench_ranks_open(struct bench_launcher *launcher, int n_local,
                             struct bench_ranks *ranks_out);
void bench_ranks_close(struct bench_ranks *ranks);

/** bench_ranks_all_gather - collective. @all_out: by rank. NULL = a barrier only. Errors: REMOTE
 * when a process is gone; every rank of this process gets it. */
gyre_status bench_ranks_all_gather(const struct bench_member *member, const void *mine,
                                   size_t n_bytes, void *all_out);

gyre_status bench_ranks_barrier(const struct bench_member *member);

/** bench_ranks_agree - SUCCESS if every rank passed SUCCESS. A rank that failed gets its own status
 * back, the others REMOTE with the number of the first rank that failed. Collective. */
gyre_status bench_ranks_agree(const struct bench_member *member, gyre_status status);

/** bench_ranks_agree_on - @failed_out: the first rank that reported a failure, or -1; with an
 * error, -1 means that another process is gone. */
gyre_status bench_ranks_agree_on(const struct bench_member *member, gyre_status status,
                                 int *failed_out);

#endif
