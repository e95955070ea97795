/* SPDX-License-Identifier: Apache-2.0
 *
 * Split: six ranks, threads of this process, form a communicator of the even ones and one of the
 * odd ones, and each sums over its own.
 *   cc split.c $(pkg-config --cflags --libs gyre) -pthread
 */
#include <gyre.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_RANKS = 6 };
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
    const int color = rank % 2; /* ranks of one colour form one communicator */
    const int key = -rank;      /* which orders them: here the highest comes first */
    gyre_config config = GYRE_CONFIG_INIT;
    gyre_comm *all, *half;
    int half_rank;
    config.device_kind = GYRE_DEVICE_HOST;
    check(gyre_comm_init_rank(&all, N_RANKS, &id, rank, &config));
    check(gyre_comm_split(all, color, key, &half, NULL));
    check(gyre_comm_rank(half, &half_rank));

    int32_t sum = rank;
    check(gyre_all_reduce(&sum, &sum, 1, GYRE_INT32, GYRE_SUM, half, NULL));
    check(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    printf("rank %d is rank %d of the %s ones, whose sum is %d\n", rank, half_rank,
           color == 0 ? "even" : "odd", (int)sum);
    if (sum != (color == 0 ? 0 + 2 + 4 : 1 + 3 + 5) || half_rank != (N_RANKS - 1 - rank) / 2)
        exit(1);
    check(gyre_comm_destroy(half));
    check(gyre_comm_destroy(all));
    return NULL;
}

int main(void)
{
    static const int ranks[N_RANKS] = {0, 1, 2, 3, 4, 5};
    pthread_t threads[N_RANKS];
    check(gyre_get_unique_id(&id));
    for (int i = 0; i < N_RANKS; i++)
        pthread_create(&threads[i], NULL, run_rank, (void *)&ranks[i]);
    for (int i = 0; i < N_RANKS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
