/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a run: threads of this process and of the others. All ranks go through the same
 * phases; at the end of each they tell each other how it went, so that none waits for one that
 * gave up.
 */
#ifndef GYRE_BENCH_RANKS_H
#define GYRE_BENCH_RANKS_H

#include "bench/launch/launcher.h"

#include <pthread.h>

struct bench_ranks {
    struct bench_launcher *launcher;
    int n_local;               /* ranks of each process */
    pthread_barrier_t barrier; /* of the local ranks */
    const void **mine;         /* by local rank: what it contributes; stable between barriers */
    unsigned char *gathered;   /* written by local rank 0 between barriers */
    size_t n_gathered_bytes;
    gyre_status status; /* of the last gather; written by local rank 0 between barriers */
    char cause[GYRE_CAUSE_MAX_BYTES];
};

struct bench_member {
    struct bench_ranks *ranks;
    int local; /* index in this process; local 0 is the main thread */
    int rank;
    int n_ranks;
};

/** bench_ranks_open / close - @n_local: ranks of this process, the same in all processes. */
gyre_status bench_ranks_open(struct bench_launcher *launcher, int n_local,
                             struct bench_ranks *ranks_out);
void bench_ranks_close(struct bench_ranks *ranks);

/** bench_ranks_all_gather - collective over all ranks.
 * @all_out: n_ranks * n_bytes, by rank; NULL = a barrier that gathers nothing.
 * Errors: REMOTE when a process is gone (on every rank of this process). */
gyre_status bench_ranks_all_gather(const struct bench_member *member, const void *mine,
                                   size_t n_bytes, void *all_out);

gyre_status bench_ranks_barrier(const struct bench_member *member);

/** bench_ranks_agree - collective: SUCCESS if every rank says SUCCESS; own failure if any; else
 * REMOTE naming the first rank that failed. */
gyre_status bench_ranks_agree(const struct bench_member *member, gyre_status status);

/** bench_ranks_agree_on - the same. @failed_out: the first rank that said it failed, or -1: none
 * did, and an error is that ranks cannot be heard any more. */
gyre_status bench_ranks_agree_on(const struct bench_member *member, gyre_status status,
                                 int *failed_out);

#endif
