/* SPDX-License-Identifier: Apache-2.0
 *
 * Over the same host memory. A rank is a process, which calls MPI as bench/launch/launcher_mpi.c
 * does.
 */
#include "bench/engines/compare.h"
#include "core/foundation/base/util.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* MPI_DATATYPE_NULL = MPI has no such type. */
static MPI_Datatype type_of(gyre_dtype dtype)
{
    const struct {
        gyre_dtype dtype;
        MPI_Datatype type;
    } types[] = {{GYRE_INT8, MPI_INT8_T},   {GYRE_UINT8, MPI_UINT8_T},
                 {GYRE_INT32, MPI_INT32_T}, {GYRE_UINT32, MPI_UINT32_T},
                 {GYRE_INT64, MPI_INT64_T}, {GYRE_UINT64, MPI_UINT64_T},
                 {GYRE_FLOAT32, MPI_FLOAT}, {GYRE_FLOAT64, MPI_DOUBLE}};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(types); i++)
        if (types[i].dtype == dtype)
            return types[i].type;
    return MPI_DATATYPE_NULL;
}

static MPI_Op op_of(gyre_op op)
{
    return op == GYRE_SUM    ? MPI_SUM
           : op == GYRE_PROD ? MPI_PROD
           : op == GYRE_MAX  ? MPI_MAX
           : op == GYRE_MIN  ? MPI_MIN
                             : MPI_OP_NULL;
}

static gyre_status mpi_open(const struct bench_rank *rank, void **state_out)
{
    if (rank->self.ranks->launcher->ops != &bench_launcher_mpi)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--compare mpi: start the bench with mpirun");
    if (rank->self.ranks->n_local != 1)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "--compare mpi: each rank of MPI is a process; leave -g and -t at 1");
    if (rank->device_kind != GYRE_DEVICE_HOST)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "--compare mpi works in host memory only: give --device host");
    *state_out = NULL;
    return GYRE_SUCCESS;
}

static gyre_status mpi_version(void *state, char *text_out, size_t n_bytes)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int n_text;
    (void)state;
    MPI_Get_library_version(text, &n_text);
    text[strcspn(text, ",\n")] = '\0'; /* the package's description */
    snprintf(text_out, n_bytes, "%s", text);
    return GYRE_SUCCESS;
}

static int mpi_modes(void *state, struct bench_mode *modes_out)
{
    (void)state;
    modes_out[0] = (struct bench_mode){"plain", NULL};
    return 1;
}

static gyre_status mpi_check(void *state, const struct bench_call *call)
{
    (void)state;
    if (call->what.count > INT_MAX)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "MPI's counts are at most %d", INT_MAX);
    if (type_of(call->what.dtype) == MPI_DATATYPE_NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "MPI has no type %s",
                         gyre_dtype_names[call->what.dtype]);
    if (gyre_collectives[call->what.coll].reduces && op_of(call->what.op) == MPI_OP_NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "MPI has no operation %s",
                         gyre_op_names[call->what.op]);
    return GYRE_SUCCESS;
}

static gyre_status mpi_run(void *state, const struct bench_call *call)
{
    const MPI_Comm world = MPI_COMM_WORLD;
    const MPI_Datatype type = type_of(call->what.dtype);
    const MPI_Op op = op_of(call->what.op);
    const void *send = call->send;
    void *recv = call->recv;
    const int count = (int)call->what.count, root = call->what.root;
    int rank, n_ranks;
    (void)state;
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &n_ranks);
    switch (call->what.coll) {
    case GYRE_COLL_ALL_REDUCE:
        MPI_Allreduce(send, recv, count, type, op, world);
        break;
    case GYRE_COLL_BROADCAST:
        /* gyre's root also writes its receive buffer, so MPI's root must do the same work. */
        MPI_Bcast(rank == root ? (void *)(uintptr_t)send : recv, count, type, root, world);
        if (rank == root && recv != send)
            memcpy(recv, send, call->what.n_bytes);
        break;
    case GYRE_COLL_REDUCE:
        MPI_Reduce(send, recv, count, type, op, root, world);
        break;
    case GYRE_COLL_ALL_GATHER:
        MPI_Allgather(send, count, type, recv, count, type, world);
        break;
    case GYRE_COLL_REDUCE_SCATTER:
        MPI_Reduce_scatter_block(send, recv, count, type, op, world);
        break;
    case GYRE_COLL_ALL_TO_ALL:
        MPI_Alltoall(send, count, type, recv, count, type, world);
        break;
    case GYRE_COLL_GATHER:
        MPI_Gather(send, count, type, recv, count, type, root, world);
        break;
    case GYRE_COLL_SCATTER:
        MPI_Scatter(send, count, type, recv, count, type, root, world);
        break;
    default:
        MPI_Sendrecv(send, count, type, (rank + 1) % n_ranks, 0, recv, count, type,
                     (rank + n_ranks - 1) % n_ranks, 0, world, MPI_STATUS_IGNORE);
        break;
    }
    return GYRE_SUCCESS;
}

static gyre_status mpi_wait(void *state)
{
    (void)state;
    return GYRE_SUCCESS; /* mpi_run() has waited */
}

/* Open MPI 4.1.4 on AMD EPYC, 2026-11: 100 + 100 in int8 gave 127, and -56 without op/avx. */
static const char *mpi_wrong_value_hint(const struct bench_call *call)
{
    const bool is_byte = gyre_dtype_bytes(call->what.dtype) == 1;
    const bool is_sum = gyre_collectives[call->what.coll].reduces && call->what.op == GYRE_SUM;
    return is_byte && is_sum ? " (Open MPI's op/avx saturates where sums of 8-bit integers should "
                               "wrap: try mpirun --mca op ^avx)"
                             : "";
}

static void mpi_close(void *state)
{
    (void)state;
}

const struct bench_engine_ops bench_engine_mpi = {
    .name = "mpi",
    .open = mpi_open,
    .version = mpi_version,
    .modes = mpi_modes,
    .check = mpi_check,
    .run = mpi_run,
    .wait = mpi_wait,
    .wrong_value_hint = mpi_wrong_value_hint,
    .close = mpi_close,
};
