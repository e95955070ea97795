/* SPDX-License-Identifier: Apache-2.0
 *
 * All-reduce of 1 MiB over four ranks, which are threads of this process, in host memory.
 *   cc all_reduce.c $(pkg-config --cflags --libs gyre) -pthread
 */
#include <gyre.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_RANKS = 4, COUNT = 262144 };
static gyre_unique_id id; /* names the rendezvous of the ranks; made once, known to all of them */

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
    float *numbers = malloc(COUNT * sizeof(*numbers));
    for (int i = 0; i < COUNT && numbers != NULL; i++)
        numbers[i] = (float)(rank + 1);
    config.device_kind = GYRE_DEVICE_HOST;
    check(gyre_comm_init_rank(&comm, N_RANKS, &id, rank, &config));
    check(gyre_all_reduce(numbers, numbers, COUNT, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    check(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    printf("rank %d: 1 + 2 + 3 + 4 = %g\n", rank, (double)numbers[COUNT - 1]);
    check(gyre_comm_destroy(comm));
    free(numbers);
    return NULL;
}

int main(void)
{
    static const int ranks[N_RANKS] = {0, 1, 2, 3};
    pthread_t threads[N_RANKS];
    check(gyre_get_unique_id(&id));
    for (int i = 0; i < N_RANKS; i++)
        pthread_create(&threads[i], NULL, run_rank, (void *)&ranks[i]);
    for (int i = 0; i < N_RANKS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
