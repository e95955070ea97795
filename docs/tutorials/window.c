/* SPDX-License-Identifier: Apache-2.0
 *
 * A window: a buffer on every rank that all ranks can write to. Results need no copy.
 */
#include "docs/tutorials/ranks.h"

enum { N_RANKS = 3, COUNT = 100000 };

/* GYRE_DEBUG=INFO GYRE_DEBUG_SUBSYS=TUNING says "placed" where a result is written in place. */
void run_rank(int rank, gyre_comm *comm)
{
    gyre_window window;
    int32_t *mine, *all;
    int n_wrong = 0;
    must(gyre_mem_alloc((void **)&mine, COUNT * sizeof(*mine), GYRE_DEVICE_HOST, -1));
    must(gyre_mem_alloc((void **)&all, N_RANKS * COUNT * sizeof(*all), GYRE_DEVICE_HOST, -1));
    for (int i = 0; i < COUNT; i++)
        mine[i] = rank * COUNT + i;
    /* Collective: every rank registers its own buffer. */
    must(gyre_window_register(comm, all, N_RANKS * COUNT * sizeof(*all), &window));
    must(gyre_all_gather(mine, all, COUNT, GYRE_INT32, comm, NULL));
    wait_for_stream();
    for (int i = 0; i < N_RANKS * COUNT; i++)
        n_wrong += all[i] != i;
    printf("rank %d: %d of %d numbers are wrong\n", rank, n_wrong, N_RANKS * COUNT);
    must(gyre_window_deregister(comm, window)); /* collective, too; then the buffer may be freed */
    must(gyre_mem_free(all, GYRE_DEVICE_HOST));
    must(gyre_mem_free(mine, GYRE_DEVICE_HOST));
}

int main(void)
{
    run_ranks(N_RANKS);
    return 0;
}
