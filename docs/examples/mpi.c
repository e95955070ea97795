/* SPDX-License-Identifier: Apache-2.0
 *
 * All-reduce over processes that mpirun started, in host memory. MPI carries the unique id and
 * nothing else.
 *   mpicc mpi.c $(pkg-config --cflags --libs gyre) && mpirun -np 4 ./a.out
 */
#include <gyre.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void check(gyre_status status)
{
    if (status == GYRE_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", gyre_status_name(status), gyre_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    int rank, n_ranks;
    gyre_unique_id id;
    gyre_comm *comm;
    gyre_config config = GYRE_CONFIG_INIT;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    if (rank == 0)
        check(gyre_get_unique_id(&id));
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);

    config.device_kind = GYRE_DEVICE_HOST;
    check(gyre_comm_init_rank(&comm, n_ranks, &id, rank, &config));
    double number = rank + 1;
    check(gyre_all_reduce(&number, &number, 1, GYRE_FLOAT64, GYRE_SUM, comm, NULL));
    check(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    const bool is_right = number == n_ranks * (n_ranks + 1) / 2.0;
    printf("rank %d of %d: %g\n", rank, n_ranks, number);
    check(gyre_comm_destroy(comm));
    MPI_Finalize();
    return is_right ? 0 : 1;
}
