/* SPDX-License-Identifier: Apache-2.0
 *
 * A process's threads gather through memory, then local rank 0, the main thread, over the launcher.
 */
#include "bench/launch/launcher.h"

#include "core/gyre_model.h"

#include <stdlib.h>
#include <string.h>

gyre_status bench_ranks_open(struct bench_launcher *launcher, int n_local,
                             struct bench_ranks *ranks_out)
{
    *ranks_out = (struct bench_ranks){.launcher = launcher, .n_local = n_local};
    if (n_local * launcher->n_processes > GYRE_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%d processes of %d ranks each are more than %d ranks, which is the limit",
                         launcher->n_processes, n_local, GYRE_MAX_RANKS);
    ranks_out->mine = calloc((size_t)n_local, sizeof(*ranks_out->mine));
    if (ranks_out->mine == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", n_local);
    pthread_barrier_init(&ranks_out->barrier, NULL, (unsigned)n_local);
    return GYRE_SUCCESS;
}

void bench_ranks_close(struct bench_ranks *ranks)
{
    pthread_barrier_destroy(&ranks->barrier);
    free(ranks->mine);
    free(ranks->gathered);
}

static gyre_status gather_from_processes(struct bench_ranks *ranks, size_t n_bytes)
{
    const size_t n_mine_bytes = n_bytes * (size_t)ranks->n_local;
    const size_t n_all_bytes = n_mine_bytes * (size_t)ranks->launcher->n_processes;
    if (n_all_bytes + n_mine_bytes > ranks->n_gathered_bytes) {
        free(ranks->gathered);
        ranks->gathered = malloc(n_all_bytes + n_mine_bytes);
        ranks->n_gathered_bytes = ranks->gathered == NULL ? 0 : n_all_bytes + n_mine_bytes;
        if (ranks->gathered == NULL)
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes to gather",
                             n_all_bytes);
    }
    unsigned char *mine = ranks->gathered + n_all_bytes;
    for (int i = 0; i < ranks->n_local; i++)
        memcpy(mine + (size_t)i * n_bytes, ranks->mine[i], n_bytes);
    return ranks->launcher->ops->all_gather(ranks->launcher, mine, n_mine_bytes, ranks->gathered);
}

gyre_status bench_ranks_all_gather(const struct bench_self *self, const void *mine, size_t n_bytes,
                                   void *all_out)
{
    struct bench_ranks *ranks = self->ranks;
    ranks->mine[self->local] = mine;
    pthread_barrier_wait(&ranks->barrier);
    if (self->local == 0) {
        ranks->status = gather_from_processes(ranks, n_bytes);
        memcpy(ranks->cause, gyre_cause(), sizeof(ranks->cause));
    }
    pthread_barrier_wait(&ranks->barrier);
    const gyre_status status = ranks->status;
    if (status == GYRE_SUCCESS && all_out != NULL)
        memcpy(all_out, ranks->gathered, n_bytes * (size_t)self->n_ranks);
    else if (status != GYRE_SUCCESS)
        gyre_set_cause(ranks->cause);
    /* no rank starts the next gather while another reads this one */
    pthread_barrier_wait(&ranks->barrier);
    return status;
}

gyre_status bench_ranks_barrier(const struct bench_self *self)
{
    const uint8_t nothing = 0;
    return bench_ranks_all_gather(self, &nothing, sizeof(nothing), NULL);
}

gyre_status bench_ranks_agree(const struct bench_self *self, gyre_status status)
{
    int failed;
    return bench_ranks_agree_on(self, status, &failed);
}

gyre_status bench_ranks_agree_on(const struct bench_self *self, gyre_status status, int *failed_out)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    memcpy(cause, gyre_cause(), sizeof(cause));
    uint8_t all[GYRE_MAX_RANKS];
    const uint8_t mine = (uint8_t)status;
    const gyre_status gathered = bench_ranks_all_gather(self, &mine, sizeof(mine), all);
    int failed = -1;
    for (int i = self->n_ranks - 1; gathered == GYRE_SUCCESS && i >= 0; i--)
        if (all[i] != GYRE_SUCCESS)
            failed = i;
    const gyre_status theirs = failed < 0 ? GYRE_SUCCESS : (gyre_status)all[failed];
    *failed_out = failed;
    if (status != GYRE_SUCCESS) {
        gyre_set_cause(cause);
        return status;
    }
    if (gathered != GYRE_SUCCESS)
        return gathered;
    if (failed >= 0)
        return gyre_fail(GYRE_ERROR_REMOTE, "rank %d failed: %s", failed, gyre_status_name(theirs));
    return GYRE_SUCCESS;
}
