/* SPDX-License-Identifier: Apache-2.0
 *
 * A failure: rank 1 gives up. The others learn its name, and go on without it.
 */
#include "docs/tutorials/ranks.h"

void run_rank(int rank, gyre_comm *comm)
{
    const int lost = 1;
    float number = 1;
    gyre_comm *smaller;
    if (rank == lost) {
        must(gyre_comm_abort(comm)); /* as if its process had died */
        return;
    }
    gyre_status status = gyre_all_reduce(&number, &number, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL);
    if (status == GYRE_SUCCESS)
        status = gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST);
    printf("rank %d: %s\n", rank, gyre_status_name(status));
    /* The error's text names rank 1: gyre_comm_last_error(comm). */
    must(gyre_comm_shrink(comm, &lost, 1, GYRE_SHRINK_ABORT, &smaller, NULL));
    number = 1;
    must(gyre_all_reduce(&number, &number, 1, GYRE_FLOAT32, GYRE_SUM, smaller, NULL));
    wait_for_stream();
    printf("rank %d: %g ranks go on\n", rank, (double)number);
    must(gyre_comm_destroy(smaller));
}

int main(void)
{
    run_ranks(3);
    return 0;
}
