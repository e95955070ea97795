/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator: four ranks find each other by a unique id, and sum a number each.
 */
#include <gyre.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static gyre_unique_id id; /* of all ranks; between processes, send it by any means */

static void must(gyre_status status)
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
    config.device_kind = GYRE_DEVICE_HOST;
    must(gyre_comm_init_rank(&comm, 4, &id, rank, &config)); /* waits for all ranks */

    float number = (float)(rank + 1);
    must(gyre_all_reduce(&number, &number, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL)); /* enqueues */
    must(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));                          /* waits */
    printf("rank %d: the sum is %g\n", rank, (double)number);
    must(gyre_comm_destroy(comm));
    return NULL;
}

int main(void)
{
    static const int ranks[4] = {0, 1, 2, 3};
    pthread_t threads[4];
    must(gyre_get_unique_id(&id));
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, run_rank, (void *)&ranks[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
