/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tutorials share: ranks that are threads of this process, and an end where a call fails.
 */
#ifndef GYRE_TUTORIALS_RANKS_H
#define GYRE_TUTORIALS_RANKS_H

#include <gyre.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_RANKS 8

/** Every rank's part of the program. */
void run_rank(int rank, gyre_comm *comm);

static inline void must(gyre_status status)
{
    if (status == GYRE_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", gyre_status_name(status), gyre_last_error());
    exit(1);
}

/* NULL is the default stream; calls on it are carried out while somebody waits for it. */
static inline void wait_for_stream(void)
{
    must(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
}

struct rank_thread {
    int rank, n_ranks;
    const gyre_unique_id *id;
};

static inline void *rank_thread(void *argument)
{
    const struct rank_thread *own = (const struct rank_thread *)argument;
    gyre_config config = GYRE_CONFIG_INIT;
    gyre_comm *comm;
    config.device_kind = GYRE_DEVICE_HOST;
    must(gyre_comm_init_rank(&comm, own->n_ranks, own->id, own->rank, &config));
    run_rank(own->rank, comm);
    must(gyre_comm_destroy(comm));
    return NULL;
}

static inline void run_ranks(int n_ranks)
{
    struct rank_thread ranks[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    gyre_unique_id id;
    must(gyre_get_unique_id(&id));
    for (int i = 0; i < n_ranks; i++) {
        ranks[i] = (struct rank_thread){i, n_ranks, &id};
        if (pthread_create(&threads[i], NULL, rank_thread, &ranks[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < n_ranks; i++)
        pthread_join(threads[i], NULL);
}

#endif
