/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of all processes. After each phase ranks tell each other whether they succeeded, so
 * that none waits for one that gave up.
 */
#ifndef GYRE_BENCH_RANKS_H
#define GYRE_BENCH_RANKS_H

#include "bench/launch/launcher.h"

#include <pthread.h>

/* Shared by one process's ranks. */
struct bench_ranks {
    struct bench_launcher *launcher;
    int n_local;
    pthread_barrier_t barrier;
    const void **mine;       /* contributions by local rank, stable between barriers */
    unsigned char *gathered; /* written by local rank 0 between barriers */
    size_t n_gathered_bytes;
    gyre_status status; /* of the last gather, written by local rank 0 between barriers */
    char cause[GYRE_CAUSE_MAX_BYTES];
};

struct bench_self {
    struct bench_ranks *ranks;
    int local; /* index in this process, 0 is the main thread */
    int rank;
    int n_ranks;
};

/** @n_local: the same in all processes. */
gyre_status bench_ranks_open(struct bench_launcher *launcher, int n_local,
                             struct bench_ranks *ranks_out);
void bench_ranks_close(struct bench_ranks *ranks);

/** Collective. @all_out: by rank, NULL = only a barrier. Errors: REMOTE on every rank of a process
 * that lost another one. */
gyre_status bench_ranks_all_gather(const struct bench_self *self, const void *mine, size_t n_bytes,
                                   void *all_out);

gyre_status bench_ranks_barrier(const struct bench_self *self);

/** SUCCESS if every rank passed SUCCESS. A failed rank gets its own status back, others REMOTE with
 * the first failed rank. Collective. */
gyre_status bench_ranks_agree(const struct bench_self *self, gyre_status status);

/** @failed_out: the first failed rank, -1 = none or, with an error, a lost process. */
gyre_status bench_ranks_agree_on(const struct bench_self *self, gyre_status status,
                                 int *failed_out);

#endif
