/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's ABI over gyre.h and nothing else: builds libnccl.so.2. Values of types, operations and
 * results are translated; what gyre does not have is refused with ncclInvalidUsage and a last
 * error that names the feature. docs/nccl_compat.md is the table of all functions.
 */
#include "core/nccl/nccl.h"

#include "core/gyre.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* What a communicator handle points to. */
struct ncclComm {
    gyre_comm *comm; /* NULL until init has finished */
    pthread_t thread;
    int is_threaded;    /* a non-blocking init runs, or ran, on `thread` */
    int is_done;        /* its end; release/acquire */
    gyre_status status; /* how the init ended */
    char cause[512];
    int n_ranks;
    int rank;
    gyre_unique_id id;
    gyre_config config;
    char name[64];
};

static _Thread_local char last_error[1024];

static ncclResult_t refuse(ncclResult_t result, const char *text)
{
    snprintf(last_error, sizeof(last_error), "%s", text);
    return result;
}

static ncclResult_t translate(gyre_status status)
{
    switch (status) {
    case GYRE_SUCCESS:
        return ncclSuccess;
    case GYRE_IN_PROGRESS:
        return ncclInProgress;
    case GYRE_ERROR_INVALID_ARGUMENT:
        return ncclInvalidArgument;
    case GYRE_ERROR_INVALID_USAGE:
    case GYRE_ERROR_UNSUPPORTED:
    case GYRE_ERROR_ABORTED:
        return ncclInvalidUsage;
    case GYRE_ERROR_DEVICE:
        return ncclUnhandledCudaError;
    case GYRE_ERROR_OUT_OF_MEMORY:
    case GYRE_ERROR_SYSTEM:
        return ncclSystemError;
    case GYRE_ERROR_REMOTE:
    case GYRE_ERROR_TIMEOUT:
        return ncclRemoteError;
    case GYRE_ERROR_INTERNAL:
        break;
    }
    return ncclInternalError;
}

/* The result of a gyre call that just ended on this thread. */
static ncclResult_t result_of(gyre_status status)
{
    if (status != GYRE_SUCCESS && status != GYRE_IN_PROGRESS)
        snprintf(last_error, sizeof(last_error), "%s", gyre_last_error());
    return translate(status);
}

/* ---- communicators ------------------------------------------------------------------------ */

static int is_ready(struct ncclComm *comm)
{
    return !comm->is_threaded || __atomic_load_n(&comm->is_done, __ATOMIC_ACQUIRE);
}

/* The handle's communicator, for calls; sets the last error when there is none (yet). */
static gyre_comm *usable(struct ncclComm *comm, ncclResult_t *result_out)
{
    *result_out = ncclSuccess;
    if (comm == NULL)
        *result_out = refuse(ncclInvalidArgument, "the communicator is NULL");
    else if (!is_ready(comm))
        *result_out = refuse(ncclInvalidUsage, "the communicator is still being initialised: poll "
                                               "ncclCommGetAsyncError");
    else if (comm->comm == NULL)
        *result_out =
            refuse(ncclInvalidUsage,
                   comm->cause[0] != '\0' ? comm->cause : "the communicator was not initialised");
    return *result_out == ncclSuccess ? comm->comm : NULL;
}

static ncclResult_t take_config(const ncclConfig_t *given, struct ncclComm *comm, int *blocking_out)
{
    const gyre_config defaults = GYRE_CONFIG_INIT;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    comm->config = defaults;
    *blocking_out = 1;
    if (given == NULL)
        return ncclSuccess;
    if (given->magic != NCCL_CONFIG_MAGIC || given->size < offsetof(ncclConfig_t, blocking))
        return refuse(ncclInvalidArgument,
                      "the config was not initialised with NCCL_CONFIG_INITIALIZER");
    memcpy(&config, given, given->size < sizeof(config) ? given->size : sizeof(config));
    if (config.blocking != NCCL_CONFIG_UNDEF_INT && config.blocking != 0 && config.blocking != 1)
        return refuse(ncclInvalidArgument, "config.blocking is neither 0 nor 1");
    *blocking_out = config.blocking != 0;
    if (config.minCTAs != NCCL_CONFIG_UNDEF_INT)
        comm->config.min_channels = config.minCTAs;
    if (config.maxCTAs != NCCL_CONFIG_UNDEF_INT)
        comm->config.max_channels = config.maxCTAs;
    if (config.trafficClass != NCCL_CONFIG_UNDEF_INT)
        comm->config.traffic_class = config.trafficClass;
    if (config.commName != NULL) {
        snprintf(comm->name, sizeof(comm->name), "%s", config.commName);
        comm->config.name = comm->name;
    }
    if (config.netName != NULL)
        comm->config.transport = strcmp(config.netName, "IB") == 0 ? "ib" : "socket";
    return ncclSuccess;
}

static void *run_init(void *argument)
{
    struct ncclComm *comm = argument;
    comm->status =
        gyre_comm_init_rank(&comm->comm, comm->n_ranks, &comm->id, comm->rank, &comm->config);
    snprintf(comm->cause, sizeof(comm->cause), "%s", gyre_last_error());
    __atomic_store_n(&comm->is_done, 1, __ATOMIC_RELEASE);
    return NULL;
}

static struct ncclComm *new_handle(void)
{
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL)
        refuse(ncclSystemError, "out of host memory");
    return comm;
}

static ncclResult_t init_rank(ncclComm_t *comm_out, int n_ranks, const ncclUniqueId *id, int rank,
                              const ncclConfig_t *config)
{
    if (comm_out == NULL)
        return refuse(ncclInvalidArgument, "ncclCommInitRank: comm is NULL");
    struct ncclComm *comm = new_handle();
    if (comm == NULL)
        return ncclSystemError;
    int is_blocking;
    ncclResult_t result = take_config(config, comm, &is_blocking);
    memcpy(comm->id.bytes, id->internal, sizeof(comm->id.bytes));
    comm->n_ranks = n_ranks;
    comm->rank = rank;
    if (result == ncclSuccess && is_blocking) {
        result =
            result_of(gyre_comm_init_rank(&comm->comm, n_ranks, &comm->id, rank, &comm->config));
    } else if (result == ncclSuccess) {
        /* The device is the caller's: the thread has none of its own. */
        int ordinal;
        if (gyre_get_device(&ordinal) == GYRE_SUCCESS && comm->config.device_ordinal < 0)
            comm->config.device_ordinal = ordinal;
        comm->is_threaded = 1;
        if (pthread_create(&comm->thread, NULL, run_init, comm) != 0)
            result = refuse(ncclSystemError, "no thread for a non-blocking init");
        else
            result = ncclInProgress;
    }
    if (result != ncclSuccess && result != ncclInProgress) {
        free(comm);
        comm = NULL;
    }
    *comm_out = comm;
    return result;
}

EXPORT ncclResult_t pncclGetVersion(int *version)
{
    if (version == NULL)
        return refuse(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

EXPORT ncclResult_t pncclGetUniqueId(ncclUniqueId *uniqueId)
{
    gyre_unique_id id;
    if (uniqueId == NULL)
        return refuse(ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
    const gyre_status status = gyre_get_unique_id(&id);
    if (status == GYRE_SUCCESS)
        memcpy(uniqueId->internal, id.bytes, sizeof(id.bytes));
    return result_of(status);
}

EXPORT ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return init_rank(comm, nranks, &commId, rank, NULL);
}

EXPORT ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId,
                                            int rank, ncclConfig_t *config)
{
    return init_rank(comm, nranks, &commId, rank, config);
}

EXPORT ncclResult_t pncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nId,
                                              ncclUniqueId *commIds, ncclConfig_t *config)
{
    if (nId < 1 || commIds == NULL)
        return refuse(ncclInvalidArgument, "ncclCommInitRankScalable: no unique id was given");
    /* One rendezvous serves all ranks; further ids are for NCCL's several roots. */
    return init_rank(comm, nranks, &commIds[0], rank, config);
}

EXPORT ncclResult_t pncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist)
{
    if (comms == NULL || ndev < 1)
        return refuse(ncclInvalidArgument, "ncclCommInitAll: no communicators or no devices");
    gyre_comm **made = calloc((size_t)ndev, sizeof(*made));
    ncclResult_t result = made != NULL ? ncclSuccess : refuse(ncclSystemError, "out of memory");
    for (int i = 0; i < ndev && result == ncclSuccess; i++) {
        comms[i] = new_handle();
        if (comms[i] == NULL) {
            while (i-- > 0)
                free(comms[i]);
            result = ncclSystemError;
        }
    }
    if (result == ncclSuccess) {
        result = result_of(gyre_comm_init_all(made, ndev, devlist, NULL));
        for (int i = 0; i < ndev; i++) {
            comms[i]->comm = made[i];
            if (result == ncclSuccess)
                continue;
            free(comms[i]);
            comms[i] = NULL;
        }
    }
    free(made);
    return result;
}

EXPORT ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t result;
    gyre_comm *own = usable(comm, &result);
    return own == NULL ? result : result_of(gyre_comm_finalize(own));
}

static ncclResult_t end(ncclComm_t comm, int aborts)
{
    if (comm == NULL)
        return ncclSuccess;
    if (comm->is_threaded)
        pthread_join(comm->thread, NULL); /* bounded by the bootstrap's timeout */
    ncclResult_t result = ncclSuccess;
    if (comm->comm != NULL && aborts)
        result = result_of(gyre_comm_abort(comm->comm));
    if (comm->comm != NULL && result == ncclSuccess)
        result = result_of(gyre_comm_destroy(comm->comm));
    free(comm);
    return result;
}

EXPORT ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    return end(comm, 0);
}

EXPORT ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    return end(comm, 1);
}

EXPORT ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                                   ncclConfig_t *config)
{
    ncclResult_t result;
    gyre_comm *own = usable(comm, &result);
    if (own == NULL)
        return result;
    if (newcomm == NULL)
        return refuse(ncclInvalidArgument, "ncclCommSplit: newcomm is NULL");
    struct ncclComm *made = new_handle();
    if (made == NULL)
        return ncclSystemError;
    int is_blocking;
    result = take_config(config, made, &is_blocking);
    if (result == ncclSuccess)
        result = result_of(
            gyre_comm_split(own, color, key, &made->comm, config != NULL ? &made->config : NULL));
    if (result != ncclSuccess || made->comm == NULL) {
        free(made);
        made = NULL;
    }
    *newcomm = made;
    return result;
}

EXPORT ncclResult_t pncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                                    ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags)
{
    (void)comm;
    (void)excludeRanksList;
    (void)excludeRanksCount;
    (void)newcomm;
    (void)config;
    (void)shrinkFlags;
    return refuse(ncclInvalidUsage, "gyre does not have ncclCommShrink: use ncclCommSplit");
}

EXPORT const char *pncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    case ncclNumResults:
        break;
    }
    return "unknown result code";
}

EXPORT const char *pncclGetLastError(ncclComm_t comm)
{
    if (comm != NULL && is_ready(comm)) {
        const char *text = comm->comm != NULL ? gyre_comm_last_error(comm->comm) : comm->cause;
        if (text[0] != '\0')
            return text;
    }
    return last_error;
}

EXPORT ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    if (comm == NULL || asyncError == NULL)
        return refuse(ncclInvalidArgument, "ncclCommGetAsyncError: comm or asyncError is NULL");
    if (!is_ready(comm)) {
        *asyncError = ncclInProgress;
        return ncclSuccess;
    }
    if (comm->comm == NULL) {
        *asyncError = translate(comm->status);
        return ncclSuccess;
    }
    gyre_status status = GYRE_SUCCESS;
    const ncclResult_t result = result_of(gyre_comm_async_error(comm->comm, &status));
    *asyncError = translate(status);
    return result;
}

EXPORT ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
    ncclResult_t result;
    gyre_comm *own = usable(comm, &result);
    return own == NULL ? result : result_of(gyre_comm_count(own, count));
}

EXPORT ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int *device)
{
    ncclResult_t result;
    gyre_comm *own = usable(comm, &result);
    return own == NULL ? result : result_of(gyre_comm_device(own, NULL, device));
}

EXPORT ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
    ncclResult_t result;
    gyre_comm *own = usable(comm, &result);
    return own == NULL ? result : result_of(gyre_comm_rank(own, rank));
}

/* ---- registration and windows ------------------------------------------------------------- */

EXPORT ncclResult_t pncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    ncclResult_t result;
    if (usable(comm, &result) == NULL)
        return result;
    if (buff == NULL || size == 0 || handle == NULL)
        return refuse(ncclInvalidArgument,
                      "ncclCommRegister: no buffer, or no place for the handle");
    /* Registration is a hint: every path works without it. The handle only has to be one. */
    *handle = buff;
    return ncclSuccess;
}

EXPORT ncclResult_t pncclCommDeregister(const ncclComm_t comm, void *handle)
{
    (void)handle;
    ncclResult_t result;
    usable(comm, &result);
    return result;
}

EXPORT ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size,
                                            ncclWindow_t *win, int winFlags)
{
    (void)winFlags;
    ncclResult_t result;
    if (usable(comm, &result) == NULL)
        return result;
    if (buff == NULL || size == 0 || win == NULL)
        return refuse(ncclInvalidArgument, "ncclCommWindowRegister: no buffer, or no place for it");
    *win = NULL; /* documented: no window, collectives use the buffer like any other */
    return ncclSuccess;
}

EXPORT ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    (void)win;
    ncclResult_t result;
    usable(comm, &result);
    return result;
}

EXPORT ncclResult_t pncclDevCommCreate(ncclComm_t comm, const void *requirements, void *devComm)
{
    (void)comm;
    (void)requirements;
    (void)devComm;
    return refuse(ncclInvalidUsage, "gyre does not have NCCL's device API (ncclDevCommCreate)");
}

EXPORT ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const void *devComm)
{
    (void)comm;
    (void)devComm;
    return refuse(ncclInvalidUsage, "gyre does not have NCCL's device API (ncclDevCommDestroy)");
}

/* ---- operations --------------------------------------------------------------------------- */

/* Built-in operations have the same values; the others are moved behind NCCL's. */
static gyre_op to_op(ncclRedOp_t op)
{
    const int value = (int)op;
    return (gyre_op)(value < ncclNumOps ? value : value - ncclNumOps + GYRE_FIRST_USER_OP);
}

EXPORT ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar,
                                              ncclDataType_t datatype,
                                              ncclScalarResidence_t residence, ncclComm_t comm)
{
    (void)residence; /* gyre reads either kind, now */
    ncclResult_t result;
    gyre_comm *own = usable(comm, &result);
    if (own == NULL)
        return result;
    if (op == NULL)
        return refuse(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: op is NULL");
    gyre_op made = GYRE_SUM;
    result = result_of(gyre_op_create_premul_sum(&made, scalar, (gyre_dtype)datatype, own));
    *op = (ncclRedOp_t)((int)made - GYRE_FIRST_USER_OP + ncclNumOps);
    return result;
}

EXPORT ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    ncclResult_t result;
    gyre_comm *own = usable(comm, &result);
    return own == NULL ? result : result_of(gyre_op_destroy(to_op(op), own));
}

/* ---- collectives -------------------------------------------------------------------------- */

#define CALL(expression)                    \
    ncclResult_t result;                    \
    gyre_comm *own = usable(comm, &result); \
    return own == NULL ? result : result_of(expression)

EXPORT ncclResult_t pncclReduce(const void *sendbuff, void *recvbuff, size_t count,
                                ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                                cudaStream_t stream)
{
    CALL(
        gyre_reduce(sendbuff, recvbuff, count, (gyre_dtype)datatype, to_op(op), root, own, stream));
}

EXPORT ncclResult_t pncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream)
{
    CALL(gyre_broadcast(buff, buff, count, (gyre_dtype)datatype, root, own, stream));
}

EXPORT ncclResult_t pncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                                   ncclDataType_t datatype, int root, ncclComm_t comm,
                                   cudaStream_t stream)
{
    CALL(gyre_broadcast(sendbuff, recvbuff, count, (gyre_dtype)datatype, root, own, stream));
}

EXPORT ncclResult_t pncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                   ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                   cudaStream_t stream)
{
    CALL(gyre_all_reduce(sendbuff, recvbuff, count, (gyre_dtype)datatype, to_op(op), own, stream));
}

EXPORT ncclResult_t pncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                       ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                       cudaStream_t stream)
{
    CALL(gyre_reduce_scatter(sendbuff, recvbuff, recvcount, (gyre_dtype)datatype, to_op(op), own,
                             stream));
}

EXPORT ncclResult_t pncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                                   ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    CALL(gyre_all_gather(sendbuff, recvbuff, sendcount, (gyre_dtype)datatype, own, stream));
}

EXPORT ncclResult_t pncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                                  ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    CALL(gyre_all_to_all(sendbuff, recvbuff, count, (gyre_dtype)datatype, own, stream));
}

EXPORT ncclResult_t pncclGather(const void *sendbuff, void *recvbuff, size_t count,
                                ncclDataType_t datatype, int root, ncclComm_t comm,
                                cudaStream_t stream)
{
    CALL(gyre_gather(sendbuff, recvbuff, count, (gyre_dtype)datatype, root, own, stream));
}

EXPORT ncclResult_t pncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                                 ncclDataType_t datatype, int root, ncclComm_t comm,
                                 cudaStream_t stream)
{
    CALL(gyre_scatter(sendbuff, recvbuff, count, (gyre_dtype)datatype, root, own, stream));
}

EXPORT ncclResult_t pncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                              ncclComm_t comm, cudaStream_t stream)
{
    CALL(gyre_send(sendbuff, count, (gyre_dtype)datatype, peer, own, stream));
}

EXPORT ncclResult_t pncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                              ncclComm_t comm, cudaStream_t stream)
{
    CALL(gyre_recv(recvbuff, count, (gyre_dtype)datatype, peer, own, stream));
}

/* ---- groups and memory -------------------------------------------------------------------- */

EXPORT ncclResult_t pncclGroupStart(void)
{
    return result_of(gyre_group_start());
}

EXPORT ncclResult_t pncclGroupEnd(void)
{
    return result_of(gyre_group_end());
}

EXPORT ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    (void)simInfo;
    return refuse(ncclInvalidUsage, "gyre does not have ncclGroupSimulateEnd");
}

EXPORT ncclResult_t pncclMemAlloc(void **ptr, size_t size)
{
    return result_of(gyre_mem_alloc(ptr, size, GYRE_DEVICE_AUTO, -1));
}

EXPORT ncclResult_t pncclMemFree(void *ptr)
{
    return result_of(gyre_mem_free(ptr, GYRE_DEVICE_AUTO));
}

/* The plain names are weak, so that a tool may stand in front of them and call the pnccl twins. */
#define ALIAS(type, name, parameters) \
    EXPORT type nccl##name parameters __attribute__((weak, alias("pnccl" #name)));
NCCL_FUNCTIONS(ALIAS)
