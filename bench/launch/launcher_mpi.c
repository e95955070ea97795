/* SPDX-License-Identifier: Apache-2.0
 *
 * Only the main thread calls MPI. MPI's default error handler ends the job with a message, so
 * results need no check.
 */
#include "bench/launch/launcher.h"

#include "core/foundation/base/util.h"

#include <limits.h>
#include <mpi.h>
#include <time.h>

/* MPI's waits keep a core busy that measured ranks need. So a wait polls briefly, then naps. */
#define BUSY_NS 100000
#define NAP_NS  20000

static gyre_status mpi_open(struct bench_launcher *launcher)
{
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &launcher->process);
    MPI_Comm_size(MPI_COMM_WORLD, &launcher->n_processes);
    const gyre_launch *launch = &launcher->launch;
    if (launch->n_ranks != launcher->n_processes) {
        MPI_Finalize();
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%s started %d processes, but MPI sees %d: this bench was built with "
                         "another MPI, or PMIX_RANK was inherited and no PMIx server is there; "
                         "start with this MPI's mpirun or srun --mpi=pmix, or unset PMIX_RANK and "
                         "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
                         launch->name, launch->n_ranks, launcher->n_processes);
    }
    return GYRE_SUCCESS;
}

static void wait_for(MPI_Request *request)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    const uint64_t start_ns = gyre_now_ns();
    int is_done = 0;
    MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
    while (!is_done) {
        if (gyre_now_ns() - start_ns > BUSY_NS)
            nanosleep(&nap, NULL);
        MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
    }
}

static gyre_status mpi_all_gather(struct bench_launcher *launcher, const void *mine, size_t n_bytes,
                                  void *all_out)
{
    (void)launcher;
    if (n_bytes > INT_MAX)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%zu bytes from one process are too many for a gather", n_bytes);
    MPI_Request request;
    MPI_Iallgather(mine, (int)n_bytes, MPI_BYTE, all_out, (int)n_bytes, MPI_BYTE, MPI_COMM_WORLD,
                   &request);
    wait_for(&request);
    /* Naps end at different moments. Now all are awake and leave together, before times are
     * taken. */
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    wait_for(&request);
    return GYRE_SUCCESS;
}

static void mpi_close(struct bench_launcher *launcher)
{
    (void)launcher;
    MPI_Finalize();
}

const struct bench_launcher_ops bench_launcher_mpi = {
    .name = "mpi",
    .open = mpi_open,
    .all_gather = mpi_all_gather,
    .close = mpi_close,
};
