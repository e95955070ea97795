/* SPDX-License-Identifier: Apache-2.0
 *
 * A window: a buffer on every rank that all ranks can address. An all-gather whose result lies in
 * one is written straight to where it belongs. Three ranks, threads of this process.
 *   cc window.c $(pkg-config --cflags --libs gyre) -pthread
 * GYRE_DEBUG=INFO GYRE_DEBUG_SUBSYS=TUNING says "placed" where that happens.
 */
#include <gyre.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_RANKS = 3, COUNT = 100000 };
static gyre_unique_id id;

static void check(gyre_status status)
{
    if (status == GYRE_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", gyre_status_name(status), gyre_last_error());
    exit(1);
}

static void *run_rank(void *argument)
{
    const int rank = *(const int *)argument;
    gyre_config config = GYRE_CONFIG_INIT;
    gyre_comm *comm;
    gyre_window window;
    int32_t *mine, *all;
    config.device_kind = GYRE_DEVICE_HOST;
    check(gyre_comm_init_rank(&comm, N_RANKS, &id, rank, &config));
    check(gyre_mem_alloc((void **)&mine, COUNT * sizeof(*mine), GYRE_DEVICE_HOST, -1));
    check(gyre_mem_alloc((void **)&all, N_RANKS * COUNT * sizeof(*all), GYRE_DEVICE_HOST, -1));
    for (int i = 0; i < COUNT; i++)
        mine[i] = rank * COUNT + i;

    /* Collective: every rank registers its own buffer. */
    check(gyre_window_register(comm, all, N_RANKS * COUNT * sizeof(*all), &window));
    check(gyre_all_gather(mine, all, COUNT, GYRE_INT32, comm, NULL));
    check(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    for (int i = 0; i < N_RANKS * COUNT; i++)
        if (all[i] != i)
            exit(1);
    check(gyre_window_deregister(comm, window)); /* collective too; then the buffer may be freed */

    printf("rank %d: all %d numbers are right\n", rank, N_RANKS * COUNT);
    check(gyre_comm_destroy(comm));
    check(gyre_mem_free(all, GYRE_DEVICE_HOST));
    check(gyre_mem_free(mine, GYRE_DEVICE_HOST));
    return NULL;
}

int main(void)
{
    static const int ranks[N_RANKS] = {0, 1, 2};
    pthread_t threads[N_RANKS];
    check(gyre_get_unique_id(&id));
    for (int i = 0; i < N_RANKS; i++)
        pthread_create(&threads[i], NULL, run_rank, (void *)&ranks[i]);
    for (int i = 0; i < N_RANKS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
