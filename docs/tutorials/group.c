/* SPDX-License-Identifier: Apache-2.0
 *
 * A group: a send and a receive that wait for each other run at the same time.
 */
#include "docs/tutorials/ranks.h"

enum { N_RANKS = 3 };

/* Alone, the send of each rank could wait for a receive that the next rank makes only after its own
 * send. In a group all calls begin together. */
void run_rank(int rank, gyre_comm *comm)
{
    const int next = (rank + 1) % N_RANKS, before = (rank + N_RANKS - 1) % N_RANKS;
    int32_t sent = 100 + rank, received = -1;
    must(gyre_group_start());
    must(gyre_send(&sent, 1, GYRE_INT32, next, comm, NULL));
    must(gyre_recv(&received, 1, GYRE_INT32, before, comm, NULL));
    must(gyre_group_end());
    wait_for_stream();
    printf("rank %d sent %d to rank %d and got %d from rank %d\n", rank, (int)sent, next,
           (int)received, before);
}

int main(void)
{
    run_ranks(N_RANKS);
    return 0;
}
