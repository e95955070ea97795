/* SPDX-License-Identifier: Apache-2.0
 *
 * MPI as the compared engine (--compare mpi): its collectives over the same buffers in host memory.
 * Each rank is one process, and MPI is called from its main thread only. MPI's default error
 * handler ends the whole job with a message, so the results of MPI calls need no check.
 */
#include "bench/engines/engine.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static MPI_Datatype type_of(gyre_dtype dtype)
{
    switch (dtype) {
    case GYRE_INT8:
        return MPI_INT8_T;
    case GYRE_UINT8:
        return MPI_UINT8_T;
    case GYRE_INT32:
        return MPI_INT32_T;
    case GYRE_UINT32:
        return MPI_UINT32_T;
    case GYRE_INT64:
        return MPI_INT64_T;
    case GYRE_UINT64:
        return MPI_UINT64_T;
    case GYRE_FLOAT32:
        return MPI_FLOAT;
    case GYRE_FLOAT64:
        return MPI_DOUBLE;
    default:
        return MPI_DATATYPE_NULL;
    }
}

static MPI_Op op_of(gyre_op op)
{
    switch (op) {
    case GYRE_SUM:
        return MPI_SUM;
    case GYRE_PROD:
        return MPI_PROD;
    case GYRE_MAX:
        return MPI_MAX;
    case GYRE_MIN:
        return MPI_MIN;
    default:
        return MPI_OP_NULL;
    }
}

static gyre_status mpi_open(const struct bench_rank *rank, void **state_out)
{
    if (rank->member.ranks->launcher->ops != &bench_launcher_mpi)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--compare mpi: start the bench with mpirun");
    if (rank->member.ranks->n_local != 1)
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
    text[strcspn(text, ",\n")] = '\0'; /* the rest of the text describes the package */
    snprintf(text_out, n_bytes, "%s", text);
    return GYRE_SUCCESS;
}

static int mpi_modes(void *state, struct bench_mode *modes_out)
{
    (void)state;
    modes_out[0] = (struct bench_mode){"plain", NULL};
    return 1;
}

/* MPI's broadcast has one buffer: the input on the root, and the output on all other ranks. */
static void run_broadcast(const struct bench_call *call, int count, MPI_Datatype type)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    void *buffer = rank == call->what.root ? (void *)(uintptr_t)call->send : call->recv;
    MPI_Bcast(buffer, count, type, call->what.root, MPI_COMM_WORLD);
    /* gyre's root also writes its receive buffer, so MPI's root must do the same work */
    if (rank == call->what.root && call->recv != call->send)
        memcpy(call->recv, call->send, call->what.n_bytes);
}

static void run_send_recv(const struct bench_call *call, int count, MPI_Datatype type)
{
    int rank;
    int n_ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    MPI_Sendrecv(call->send, count, type, (rank + 1) % n_ranks, 0, call->recv, count, type,
                 (rank + n_ranks - 1) % n_ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void run_all_reduce(const struct bench_call *call, int count, MPI_Datatype type)
{
    MPI_Allreduce(call->send, call->recv, count, type, op_of(call->what.op), MPI_COMM_WORLD);
}

static void run_reduce(const struct bench_call *call, int count, MPI_Datatype type)
{
    MPI_Reduce(call->send, call->recv, count, type, op_of(call->what.op), call->what.root,
               MPI_COMM_WORLD);
}

static void run_all_gather(const struct bench_call *call, int count, MPI_Datatype type)
{
    MPI_Allgather(call->send, count, type, call->recv, count, type, MPI_COMM_WORLD);
}

static void run_reduce_scatter(const struct bench_call *call, int count, MPI_Datatype type)
{
    MPI_Reduce_scatter_block(call->send, call->recv, count, type, op_of(call->what.op),
                             MPI_COMM_WORLD);
}

static void run_all_to_all(const struct bench_call *call, int count, MPI_Datatype type)
{
    MPI_Alltoall(call->send, count, type, call->recv, count, type, MPI_COMM_WORLD);
}

static void run_gather(const struct bench_call *call, int count, MPI_Datatype type)
{
    MPI_Gather(call->send, count, type, call->recv, count, type, call->what.root, MPI_COMM_WORLD);
}

static void run_scatter(const struct bench_call *call, int count, MPI_Datatype type)
{
    MPI_Scatter(call->send, count, type, call->recv, count, type, call->what.root, MPI_COMM_WORLD);
}

/* Indexed by collective. */
static void (*const runs[GYRE_N_COLLECTIVES])(const struct bench_call *call, int count,
                                              MPI_Datatype type) = {
    [GYRE_COLL_ALL_REDUCE] = run_all_reduce,
    [GYRE_COLL_BROADCAST] = run_broadcast,
    [GYRE_COLL_REDUCE] = run_reduce,
    [GYRE_COLL_ALL_GATHER] = run_all_gather,
    [GYRE_COLL_REDUCE_SCATTER] = run_reduce_scatter,
    [GYRE_COLL_ALL_TO_ALL] = run_all_to_all,
    [GYRE_COLL_SEND_RECV] = run_send_recv,
    [GYRE_COLL_GATHER] = run_gather,
    [GYRE_COLL_SCATTER] = run_scatter,
};

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
    (void)state;
    runs[call->what.coll](call, (int)call->what.count, type_of(call->what.dtype));
    return GYRE_SUCCESS;
}

static gyre_status mpi_wait(void *state)
{
    (void)state;
    return GYRE_SUCCESS; /* mpi_run() has waited */
}

/* Open MPI 4.1.4 on an AMD EPYC, 2026-11: 100 + 100 in int8 gave 127, and -56 without op/avx. */
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
