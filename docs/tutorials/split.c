/* SPDX-License-Identifier: Apache-2.0
 *
 * Split: six ranks form a communicator of the even ones and one of the odd ones.
 */
#include "docs/tutorials/ranks.h"

void run_rank(int rank, gyre_comm *comm)
{
    const int color = rank % 2; /* ranks of one colour form one communicator */
    const int key = -rank;      /* which orders them: here the highest comes first */
    gyre_comm *half;
    int half_rank;
    int32_t sum = rank;
    must(gyre_comm_split(comm, color, key, &half, NULL));
    must(gyre_comm_rank(half, &half_rank));
    must(gyre_all_reduce(&sum, &sum, 1, GYRE_INT32, GYRE_SUM, half, NULL));
    wait_for_stream();
    printf("rank %d is rank %d of the %s ones, whose sum is %d\n", rank, half_rank,
           color == 0 ? "even" : "odd", (int)sum);
    must(gyre_comm_destroy(half));
}

int main(void)
{
    run_ranks(6);
    return 0;
}
