/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's ABI over gyre.h and nothing else: builds libnccl.so.2. Values of types, operations and
 * results are translated; what gyre does not have is refused with ncclInvalidUsage and a last
 * error that names the feature, or handed to a real library if the user names one.
 * docs/nccl_compat.md is the table of all functions.
 */
#include "core/nccl/nccl.h"

#include "core/gyre.h"
#include "core/nccl/nccl_fallback.h"
#include "core/nccl/nccl_windows.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* What a communicator handle points to. */
struct ncclComm {
    gyre_comm *comm; /* NULL until the end of the group that makes it */
    pthread_mutex_t lock;
    ncclComm_t twin; /* in the real library, once a call was handed over; under `lock` */
    char name[64];
};

static _Thread_local char last_error[1024];
static _Thread_local int group_depth;

/* Windows that the open group asks for. */
static _Thread_local struct nccl_window_wish wishes[64];
static _Thread_local size_t n_wishes;

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

/* The result of a gyre call that just ended on this thread. Inside a group only its end says that
 * something is in progress. */
static ncclResult_t result_of(gyre_status status)
{
    if (status == GYRE_IN_PROGRESS && group_depth > 0)
        return ncclSuccess;
    if (status != GYRE_SUCCESS && status != GYRE_IN_PROGRESS)
        snprintf(last_error, sizeof(last_error), "%s", gyre_last_error());
    return translate(status);
}

/* ---- communicators ------------------------------------------------------------------------ */

/* The handle's communicator, for calls; sets the last error when there is none (yet). */
static gyre_comm *usable(struct ncclComm *comm, ncclResult_t *result_out)
{
    *result_out = ncclSuccess;
    if (comm == NULL)
        *result_out = refuse(ncclInvalidArgument, "the communicator is NULL");
    else if (comm->comm == NULL)
        *result_out = refuse(ncclInvalidUsage, "the communicator was not initialised, or its group "
                                               "has not ended");
    return *result_out == ncclSuccess ? comm->comm : NULL;
}

static struct ncclComm *new_handle(void)
{
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL)
        refuse(ncclSystemError, "out of host memory");
    else
        pthread_mutex_init(&comm->lock, NULL);
    return comm;
}

static void free_handle(struct ncclComm *comm)
{
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}

/* A new handle and, unless `given` is NULL, the configuration that it asks for. */
static ncclResult_t take_config(const ncclConfig_t *given, struct ncclComm **handle_out,
                                gyre_config *config_out)
{
    const gyre_config defaults = GYRE_CONFIG_INIT;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    *config_out = defaults;
    if (given != NULL) {
        if (given->magic != NCCL_CONFIG_MAGIC || given->size < offsetof(ncclConfig_t, blocking))
            return refuse(ncclInvalidArgument,
                          "the config was not initialised with NCCL_CONFIG_INITIALIZER");
        memcpy(&config, given, given->size < sizeof(config) ? given->size : sizeof(config));
    }
    if (config.blocking != NCCL_CONFIG_UNDEF_INT && config.blocking != 0 && config.blocking != 1)
        return refuse(ncclInvalidArgument, "config.blocking is neither 0 nor 1");
    struct ncclComm *handle = new_handle();
    if (handle == NULL)
        return ncclSystemError;
    config_out->blocking = config.blocking != 0;
    if (config.minCTAs != NCCL_CONFIG_UNDEF_INT)
        config_out->min_channels = config.minCTAs;
    if (config.maxCTAs != NCCL_CONFIG_UNDEF_INT)
        config_out->max_channels = config.maxCTAs;
    if (config.trafficClass != NCCL_CONFIG_UNDEF_INT)
        config_out->traffic_class = config.trafficClass;
    if (config.commName != NULL) {
        snprintf(handle->name, sizeof(handle->name), "%s", config.commName);
        config_out->name = handle->name;
    }
    if (config.netName != NULL)
        config_out->transport = strcmp(config.netName, "IB") == 0 ? "ib" : "socket";
    *handle_out = handle;
    return ncclSuccess;
}

/* What a call that makes a communicator hands out. */
static ncclResult_t hand_out(struct ncclComm *handle, gyre_status status, ncclComm_t *comm_out)
{
    const ncclResult_t result = result_of(status);
    if (status != GYRE_SUCCESS && status != GYRE_IN_PROGRESS) {
        free_handle(handle);
        handle = NULL;
    }
    *comm_out = handle;
    return result;
}

static ncclResult_t init_rank(ncclComm_t *comm_out, int n_ranks, const ncclUniqueId *id, int rank,
                              const ncclConfig_t *given)
{
    gyre_config config;
    gyre_unique_id own_id;
    struct ncclComm *handle;
    if (comm_out == NULL)
        return refuse(ncclInvalidArgument, "ncclCommInitRank: comm is NULL");
    const ncclResult_t result = take_config(given, &handle, &config);
    if (result != ncclSuccess)
        return result;
    memcpy(own_id.bytes, id->internal, sizeof(own_id.bytes));
    return hand_out(handle, gyre_comm_init_rank(&handle->comm, n_ranks, &own_id, rank, &config),
                    comm_out);
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
                free_handle(comms[i]);
            result = ncclSystemError;
        }
    }
    if (result == ncclSuccess) {
        result = result_of(gyre_comm_init_all(made, ndev, devlist, NULL));
        for (int i = 0; i < ndev; i++) {
            comms[i]->comm = made[i];
            if (result == ncclSuccess)
                continue;
            free_handle(comms[i]);
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
    ncclResult_t result = ncclSuccess;
    size_t n_kept = 0;
    for (size_t i = 0; i < n_wishes; i++)
        if (wishes[i].comm != comm->comm)
            wishes[n_kept++] = wishes[i];
    n_wishes = n_kept;
    if (comm->twin != NULL && aborts)
        nccl_fallback_get()->CommAbort(comm->twin);
    else if (comm->twin != NULL)
        nccl_fallback_get()->CommDestroy(comm->twin);
    if (comm->comm != NULL && aborts)
        result = result_of(gyre_comm_abort(comm->comm));
    if (comm->comm != NULL && result == ncclSuccess)
        result = result_of(gyre_comm_destroy(comm->comm));
    free_handle(comm);
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
    gyre_config own_config;
    struct ncclComm *handle;
    ncclResult_t result;
    gyre_comm *own = usable(comm, &result);
    if (own == NULL)
        return result;
    if (newcomm == NULL)
        return refuse(ncclInvalidArgument, "ncclCommSplit: newcomm is NULL");
    result = take_config(config, &handle, &own_config);
    if (result != ncclSuccess)
        return result;
    const gyre_status status =
        gyre_comm_split(own, color, key, &handle->comm, config != NULL ? &own_config : NULL);
    if (color != NCCL_SPLIT_NOCOLOR)
        return hand_out(handle, status, newcomm);
    free_handle(handle);
    *newcomm = NULL;
    return result_of(status);
}

EXPORT ncclResult_t pncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                                    ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags)
{
    gyre_config own_config;
    struct ncclComm *handle;
    ncclResult_t result;
    gyre_comm *own = usable(comm, &result);
    if (own == NULL)
        return result;
    if (newcomm == NULL)
        return refuse(ncclInvalidArgument, "ncclCommShrink: newcomm is NULL");
    result = take_config(config, &handle, &own_config);
    if (result != ncclSuccess)
        return result;
    return hand_out(handle,
                    gyre_comm_shrink(own, excludeRanksList, excludeRanksCount, shrinkFlags,
                                     &handle->comm, config != NULL ? &own_config : NULL),
                    newcomm);
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
    const char *text = comm != NULL && comm->comm != NULL ? gyre_comm_last_error(comm->comm) : "";
    return text[0] != '\0' ? text : last_error;
}

EXPORT ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    if (comm == NULL || asyncError == NULL)
        return refuse(ncclInvalidArgument, "ncclCommGetAsyncError: comm or asyncError is NULL");
    if (comm->comm == NULL) { /* its group has not ended */
        *asyncError = ncclInProgress;
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

/* ---- registration, windows and the device API --------------------------------------------- */

EXPORT ncclResult_t pncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    gyre_registration made = NULL;
    ncclResult_t result;
    gyre_comm *own = usable(comm, &result);
    if (own == NULL)
        return result;
    if (handle == NULL)
        return refuse(ncclInvalidArgument, "ncclCommRegister: handle is NULL");
    result = result_of(gyre_comm_register(own, buff, size, &made));
    *handle = made;
    return result;
}

EXPORT ncclResult_t pncclCommDeregister(const ncclComm_t comm, void *handle)
{
    ncclResult_t result;
    gyre_comm *own = usable(comm, &result);
    return own == NULL ? result : result_of(gyre_comm_deregister(own, handle));
}

/* A feature that gyre does not have, and no real library has either. */
static ncclResult_t unsupported(const char *text)
{
    char all[600];
    const char *problem = nccl_fallback_problem();
    snprintf(all, sizeof(all), "%s%s%s", text, problem[0] != '\0' ? "; " : "", problem);
    return refuse(ncclInvalidUsage, all);
}

/* The result of a call to the real library. */
static ncclResult_t result_of_real(ncclResult_t result, ncclComm_t twin)
{
    if (result != ncclSuccess && result != ncclInProgress)
        snprintf(last_error, sizeof(last_error), "GYRE_NCCL_FALLBACK: %s",
                 nccl_fallback_get()->GetLastError(twin));
    return result;
}

/* How a rank's part of making a twin began. */
struct twin_offer {
    ncclUniqueId id;
    ncclResult_t result;
};

static ncclResult_t make_twin(gyre_comm *own, const struct nccl_fallback *real,
                              ncclComm_t *twin_out)
{
    int rank = 0;
    int n_ranks = 0;
    struct twin_offer offer;
    memset(&offer, 0, sizeof(offer));
    ncclResult_t result = result_of(gyre_comm_rank(own, &rank));
    if (result == ncclSuccess)
        result = result_of(gyre_comm_count(own, &n_ranks));
    if (result != ncclSuccess)
        return result;
    if (rank == 0)
        offer.result = result_of_real(real->GetUniqueId(&offer.id), NULL);
    struct twin_offer *offers = calloc((size_t)n_ranks, sizeof(*offers));
    if (offers == NULL)
        return refuse(ncclSystemError, "out of host memory");
    result = result_of(gyre_comm_exchange(own, &offer, sizeof(offer), offers));
    if (result == ncclSuccess && offers[0].result != ncclSuccess)
        result = refuse(offers[0].result, "GYRE_NCCL_FALLBACK: ncclGetUniqueId failed on rank 0");
    if (result == ncclSuccess)
        result = result_of_real(real->CommInitRank(twin_out, n_ranks, offers[0].id, rank), NULL);
    free(offers);
    return result;
}

/* The communicator's twin in the real library; made by the first handed-over call, which is
 * collective as all of them are. */
static ncclResult_t get_twin(struct ncclComm *comm, ncclComm_t *twin_out)
{
    ncclResult_t result;
    gyre_comm *own = usable(comm, &result);
    if (own == NULL)
        return result;
    pthread_mutex_lock(&comm->lock);
    if (comm->twin == NULL)
        result = make_twin(own, nccl_fallback_get(), &comm->twin);
    *twin_out = comm->twin;
    pthread_mutex_unlock(&comm->lock);
    return result;
}

/* Makes windows now; of several communicators side by side. */
static ncclResult_t make_windows(const struct nccl_window_wish *asked, size_t n_asked)
{
    char cause[sizeof(last_error)] = "";
    const gyre_status status = nccl_windows_make(asked, n_asked, cause, sizeof(cause));
    return status == GYRE_SUCCESS ? ncclSuccess : refuse(translate(status), cause);
}

/* Only symmetric windows promise that a call's buffers lie alike on all ranks. In a group they are
 * made at its end. */
static ncclResult_t want_window(const struct nccl_window_wish *wish, int flags)
{
    if ((flags & NCCL_WIN_COLL_SYMMETRIC) == 0)
        return ncclSuccess;
    if (group_depth == 0)
        return make_windows(wish, 1);
    if (n_wishes == sizeof(wishes) / sizeof(wishes[0]))
        return refuse(ncclInvalidUsage, "ncclCommWindowRegister: too many windows in a group");
    wishes[n_wishes++] = *wish;
    return ncclSuccess;
}

EXPORT ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size,
                                            ncclWindow_t *win, int winFlags)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    ncclComm_t twin;
    ncclResult_t result;
    if (usable(comm, &result) == NULL)
        return result;
    if (win != NULL)
        *win = NULL; /* documented: no window, collectives use the buffer like any other */
    if (real == NULL) {
        const struct nccl_window_wish wish = {comm->comm, buff, size, win};
        return want_window(&wish, winFlags);
    }
    if (buff == NULL || size == 0 || win == NULL)
        return refuse(ncclInvalidArgument, "ncclCommWindowRegister: no buffer, or no place for it");
    result = get_twin(comm, &twin);
    if (result != ncclSuccess)
        return result;
    return result_of_real(real->CommWindowRegister(twin, buff, size, win, winFlags), twin);
}

EXPORT ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    ncclComm_t twin;
    ncclResult_t result;
    gyre_comm *own = usable(comm, &result);
    if (own == NULL || win == NULL)
        return result;
    if (real == NULL)
        return result_of(gyre_window_deregister(own, (gyre_window)(uintptr_t)win));
    result = get_twin(comm, &twin);
    return result != ncclSuccess ? result
                                 : result_of_real(real->CommWindowDeregister(twin, win), twin);
}

EXPORT ncclResult_t pncclDevCommCreate(ncclComm_t comm, const void *requirements, void *devComm)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    ncclComm_t twin;
    if (real == NULL)
        return unsupported("gyre does not have NCCL's device API (ncclDevCommCreate)");
    const ncclResult_t result = get_twin(comm, &twin);
    return result != ncclSuccess
               ? result
               : result_of_real(real->DevCommCreate(twin, requirements, devComm), twin);
}

EXPORT ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const void *devComm)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    ncclComm_t twin;
    if (real == NULL)
        return unsupported("gyre does not have NCCL's device API (ncclDevCommDestroy)");
    const ncclResult_t result = get_twin(comm, &twin);
    return result != ncclSuccess ? result
                                 : result_of_real(real->DevCommDestroy(twin, devComm), twin);
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
    const gyre_status status = gyre_group_start();
    group_depth += status == GYRE_SUCCESS;
    return result_of(status);
}

EXPORT ncclResult_t pncclGroupEnd(void)
{
    group_depth -= group_depth > 0;
    const ncclResult_t result = result_of(gyre_group_end());
    if (group_depth > 0 || n_wishes == 0)
        return result;
    const size_t n = n_wishes;
    n_wishes = 0;
    const ncclResult_t made = make_windows(wishes, n);
    return result == ncclSuccess ? made : result;
}

EXPORT ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    double time_us;
    if (simInfo == NULL || simInfo->magic != NCCL_SIM_INFO_MAGIC ||
        simInfo->size < sizeof(*simInfo))
        return refuse(ncclInvalidArgument,
                      "ncclGroupSimulateEnd: initialise simInfo with NCCL_SIM_INFO_INITIALIZER");
    const gyre_status status = gyre_group_simulate_end(&time_us);
    group_depth -= group_depth == 1;
    n_wishes = 0; /* nothing of the group is carried out */
    if (status == GYRE_SUCCESS)
        simInfo->estimatedTime = (float)time_us;
    return result_of(status);
}

/* Windows are made of memory that the real library allocated. */
EXPORT ncclResult_t pncclMemAlloc(void **ptr, size_t size)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    return real != NULL ? result_of_real(real->MemAlloc(ptr, size), NULL)
                        : result_of(gyre_mem_alloc(ptr, size, GYRE_DEVICE_AUTO, -1));
}

EXPORT ncclResult_t pncclMemFree(void *ptr)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    return real != NULL ? result_of_real(real->MemFree(ptr), NULL)
                        : result_of(gyre_mem_free(ptr, GYRE_DEVICE_AUTO));
}

/* The plain names are weak, so that a tool may stand in front of them and call the pnccl twins. */
#define ALIAS(type, name, parameters) \
    EXPORT type nccl##name parameters __attribute__((weak, alias("pnccl" #name)));
NCCL_FUNCTIONS(ALIAS)
