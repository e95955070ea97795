/* SPDX-License-Identifier: Apache-2.0 */
#include "core/nccl/nccl_shim.h"

#include <stdlib.h>
#include <string.h>

/* Fails on all ranks by this thread's last error, because the others wait for this rank. */
static void refuse_on_all_ranks(gyre_config *config_out)
{
    const gyre_config defaults = GYRE_CONFIG_INIT;
    *config_out = defaults;
    config_out->refusal = pncclGetLastError(NULL);
}

/* A failure leaves a configuration that refuses. @problem: NULL, or why the handle has no room. */
static ncclResult_t prepare(const ncclConfig_t *given, const char *problem,
                            struct nccl_comm **comm_out, gyre_config *config_out)
{
    ncclResult_t result = problem != NULL ? nccl_refuse(ncclInvalidArgument, problem)
                                          : nccl_config_take(given, config_out);
    *comm_out = result == ncclSuccess ? nccl_comm_new() : NULL;
    if (result == ncclSuccess && *comm_out == NULL)
        result = ncclSystemError;
    if (result != ncclSuccess)
        refuse_on_all_ranks(config_out);
    return result;
}

static ncclResult_t hand_out(struct nccl_comm *comm, gyre_status status, ncclComm_t *comm_out)
{
    const ncclResult_t result = nccl_result_of(status);
    if (status != GYRE_SUCCESS && status != GYRE_IN_PROGRESS) {
        nccl_comm_unpin(comm);
        *comm_out = NULL;
        return result;
    }
    comm->comm = comm->made;
    if (comm->comm == NULL)
        nccl_group_promise(comm);
    else
        nccl_profile_attach(comm);
    *comm_out = nccl_comm_publish(comm);
    return result;
}

ncclResult_t nccl_comm_init(ncclComm_t *comm_out, int n_ranks, const ncclUniqueId *id, int rank,
                            const ncclConfig_t *given)
{
    gyre_config config;
    gyre_unique_id own_id;
    struct nccl_comm *comm;
    memcpy(own_id.bytes, id->internal, sizeof(own_id.bytes));
    if (comm_out != NULL)
        *comm_out = NULL;
    const ncclResult_t result =
        prepare(given, comm_out == NULL ? "ncclCommInitRank: comm is NULL" : NULL, &comm, &config);
    if (result != ncclSuccess) {
        gyre_comm *none = NULL;
        (void)gyre_comm_init_rank(&none, n_ranks, &own_id, rank, &config);
        return result;
    }
    return hand_out(comm, gyre_comm_init_rank(&comm->made, n_ranks, &own_id, rank, &config),
                    comm_out);
}

void nccl_comm_refuse_growth(gyre_comm *own, int n_ranks, const gyre_unique_id *id)
{
    gyre_comm *none = NULL;
    gyre_config config;
    refuse_on_all_ranks(&config);
    (void)gyre_comm_grow(own, n_ranks, id, &none, &config);
}

ncclResult_t nccl_comm_grow(gyre_comm *own, int n_ranks, const gyre_unique_id *id,
                            ncclComm_t *comm_out, const ncclConfig_t *given)
{
    gyre_config config;
    struct nccl_comm *comm;
    const ncclResult_t result = prepare(given, NULL, &comm, &config);
    if (result != ncclSuccess) {
        nccl_comm_refuse_growth(own, n_ranks, id);
        return result;
    }
    return hand_out(comm,
                    gyre_comm_grow(own, n_ranks, id, &comm->made, given != NULL ? &config : NULL),
                    comm_out);
}

NCCL_EXPORT ncclResult_t pncclGetUniqueId(ncclUniqueId *uniqueId)
{
    gyre_unique_id id;
    if (uniqueId == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
    const gyre_status status = gyre_get_unique_id(&id);
    if (status == GYRE_SUCCESS)
        memcpy(uniqueId->internal, id.bytes, sizeof(id.bytes));
    return nccl_result_of(status);
}

NCCL_EXPORT ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId,
                                           int rank)
{
    return nccl_group_note(nccl_comm_init(comm, nranks, &commId, rank, NULL));
}

NCCL_EXPORT ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId,
                                                 int rank, ncclConfig_t *config)
{
    return nccl_group_note(nccl_comm_init(comm, nranks, &commId, rank, config));
}

NCCL_EXPORT ncclResult_t pncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nId,
                                                   ncclUniqueId *commIds, ncclConfig_t *config)
{
    if (nId < 1 || nId > nranks || commIds == NULL)
        return nccl_group_note(
            nccl_refuse(ncclInvalidArgument,
                        "ncclCommInitRankScalable: nId is none of 1..nranks, or commIds is NULL"));
    /* one rendezvous serves all; other ids are for NCCL's several roots */
    return nccl_group_note(nccl_comm_init(comm, nranks, &commIds[0], rank, config));
}

/* A failure sets `made` of none. */
static ncclResult_t init_all(struct nccl_comm **comms, gyre_comm **made, int n, const int *devices)
{
    for (int i = 0; i < n; i++) {
        comms[i] = nccl_comm_new();
        if (comms[i] == NULL)
            return ncclSystemError;
    }
    const ncclResult_t result = nccl_result_of(gyre_comm_init_all(made, n, devices, NULL));
    for (int i = 0; i < n && result == ncclSuccess; i++)
        comms[i]->made = made[i];
    return result;
}

NCCL_EXPORT ncclResult_t pncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist)
{
    if (comms == NULL || ndev < 1)
        return nccl_refuse(ncclInvalidArgument, "ncclCommInitAll: no communicators or no devices");
    gyre_comm **made = calloc((size_t)ndev, sizeof(*made));
    struct nccl_comm **own = calloc((size_t)ndev, sizeof(*own));
    const ncclResult_t result = made != NULL && own != NULL
                                    ? init_all(own, made, ndev, devlist)
                                    : nccl_refuse(ncclSystemError, "out of host memory");
    for (int i = 0; i < ndev; i++) {
        comms[i] = NULL;
        if (result == ncclSuccess)
            (void)hand_out(own[i], GYRE_SUCCESS, &comms[i]);
        else if (own != NULL && own[i] != NULL)
            nccl_comm_unpin(own[i]);
    }
    free(made);
    free(own);
    return result;
}

NCCL_EXPORT ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t result;
    NCCL_PINNED *pinned = nccl_comm_pin(comm, NCCL_CALL, &result);
    if (pinned == NULL)
        return result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own != NULL && __atomic_load_n(&pinned->is_finalized, __ATOMIC_ACQUIRE))
        result = nccl_refuse(ncclInvalidArgument,
                             "ncclCommFinalize: the communicator was finalized or revoked before");
    else if (own != NULL)
        result = nccl_result_of(gyre_comm_finalize(own));
    if (result == ncclSuccess || result == ncclInProgress)
        __atomic_store_n(&pinned->is_finalized, 1, __ATOMIC_RELEASE);
    return result;
}

void nccl_comm_end_twin(struct nccl_comm *comm)
{
    ncclComm_t twin = __atomic_exchange_n(&comm->twin, NULL, __ATOMIC_ACQ_REL);
    if (twin != NULL && comm->is_aborted)
        nccl_fallback_get()->CommAbort(twin);
    else if (twin != NULL)
        nccl_fallback_get()->CommDestroy(twin);
}

ncclResult_t nccl_comm_end(struct nccl_comm *comm)
{
    gyre_comm *own = __atomic_load_n(&comm->comm, __ATOMIC_ACQUIRE);
    ncclResult_t result = ncclSuccess;
    nccl_group_forget(own);
    nccl_comm_end_twin(comm);
    if (own != NULL && comm->is_aborted)
        result = nccl_result_of(gyre_comm_abort(own));
    if (own != NULL && result == ncclSuccess)
        result = nccl_result_of(gyre_comm_destroy(own));
    return result;
}

/* NULL ends without an error, as in NCCL. */
static ncclResult_t end(ncclComm_t handle, const char *call, int aborts)
{
    if (handle == NULL)
        return ncclSuccess;
    ncclResult_t result;
    NCCL_PINNED *comm = nccl_comm_claim(handle, call, aborts, &result);
    return comm == NULL || comm->is_dropped ? result : nccl_comm_end(comm);
}

NCCL_EXPORT ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    return end(comm, NCCL_CALL, 0);
}

NCCL_EXPORT ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    return end(comm, NCCL_CALL, 1);
}

static int is_revoked(ncclComm_t handle, const char *call)
{
    ncclResult_t result;
    NCCL_PINNED *comm = nccl_comm_pin(handle, call, &result);
    return comm != NULL && __atomic_load_n(&comm->is_revoked, __ATOMIC_ACQUIRE);
}

NCCL_EXPORT ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    ncclResult_t result;
    NCCL_PINNED *pinned = nccl_comm_pin(comm, NCCL_CALL, &result);
    if (pinned == NULL)
        return result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own == NULL)
        return result;
    if (revokeFlags != NCCL_REVOKE_DEFAULT)
        return nccl_refuse(ncclInvalidArgument,
                           "ncclCommRevoke: revokeFlags is not NCCL_REVOKE_DEFAULT");
    if (__atomic_exchange_n(&pinned->is_finalized, 1, __ATOMIC_ACQ_REL))
        return nccl_refuse(ncclInvalidArgument,
                           "ncclCommRevoke: the communicator was finalized or revoked before");
    __atomic_store_n(&pinned->is_revoked, 1, __ATOMIC_RELEASE);
    return nccl_result_of(gyre_comm_abort(own));
}

static ncclResult_t split(ncclComm_t parent, int color, int key, ncclComm_t *comm_out,
                          const ncclConfig_t *given)
{
    gyre_config config;
    struct nccl_comm *comm;
    ncclResult_t result;
    gyre_comm *own = nccl_usable(parent, "ncclCommSplit", &result);
    if (own == NULL)
        return result;
    if (is_revoked(parent, "ncclCommSplit"))
        return nccl_refuse(ncclInvalidUsage,
                           "gyre does not split a revoked communicator: make a new one of all its "
                           "ranks by ncclCommShrink without excluded ranks and split that");
    result =
        prepare(given, comm_out == NULL ? "ncclCommSplit: newcomm is NULL" : NULL, &comm, &config);
    if (result != ncclSuccess) {
        gyre_comm *none = NULL;
        (void)gyre_comm_split(own, color, key, &none, &config);
        return result;
    }
    const gyre_status status =
        gyre_comm_split(own, color, key, &comm->made, given != NULL ? &config : NULL);
    if (color != NCCL_SPLIT_NOCOLOR)
        return hand_out(comm, status, comm_out);
    nccl_comm_unpin(comm);
    return nccl_result_of(status);
}

NCCL_EXPORT ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                                        ncclConfig_t *config)
{
    if (newcomm != NULL)
        *newcomm = NULL;
    return nccl_group_note(split(comm, color, key, newcomm, config));
}

static ncclResult_t shrink(ncclComm_t parent, const int *excluded_ranks, int n_excluded,
                           ncclComm_t *comm_out, const ncclConfig_t *given, int flags)
{
    gyre_config config;
    struct nccl_comm *comm;
    ncclResult_t result;
    gyre_comm *own = nccl_usable(parent, "ncclCommShrink", &result);
    if (own == NULL)
        return result;
    if (is_revoked(parent, "ncclCommShrink")) /* its operations have ended */
        flags = NCCL_SHRINK_ABORT;
    result =
        prepare(given, comm_out == NULL ? "ncclCommShrink: newcomm is NULL" : NULL, &comm, &config);
    if (result != ncclSuccess) {
        gyre_comm *none = NULL;
        (void)gyre_comm_shrink(own, excluded_ranks, n_excluded, flags, &none, &config);
        return result;
    }
    return hand_out(comm,
                    gyre_comm_shrink(own, excluded_ranks, n_excluded, flags, &comm->made,
                                     given != NULL ? &config : NULL),
                    comm_out);
}

NCCL_EXPORT ncclResult_t pncclCommShrink(ncclComm_t comm, int *excludeRanksList,
                                         int excludeRanksCount, ncclComm_t *newcomm,
                                         ncclConfig_t *config, int shrinkFlags)
{
    if (newcomm != NULL)
        *newcomm = NULL;
    return nccl_group_note(
        shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
}

NCCL_EXPORT ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    ncclResult_t result;
    NCCL_PINNED *pinned = nccl_comm_pin(comm, NCCL_CALL, &result);
    if (pinned == NULL)
        return result;
    if (asyncError == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclCommGetAsyncError: asyncError is NULL");
    gyre_comm *own = __atomic_load_n(&pinned->comm, __ATOMIC_ACQUIRE);
    if (own == NULL) { /* its group is open, or failed */
        const ncclResult_t failure = __atomic_load_n(&pinned->failure, __ATOMIC_ACQUIRE);
        *asyncError = failure != ncclSuccess ? failure : ncclInProgress;
        return ncclSuccess;
    }
    gyre_status status = GYRE_SUCCESS;
    result = nccl_result_of(gyre_comm_async_error(own, &status));
    if (result == ncclSuccess && __atomic_load_n(&pinned->is_revoked, __ATOMIC_ACQUIRE)) {
        *asyncError = status == GYRE_IN_PROGRESS ? ncclInProgress : ncclSuccess;
        return ncclSuccess;
    }
    *asyncError = nccl_translate(status);
    if (result == ncclSuccess && status != GYRE_SUCCESS && status != GYRE_IN_PROGRESS)
        nccl_refuse(*asyncError, gyre_comm_last_error(own));
    return result;
}

NCCL_EXPORT ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
    NCCL_USE(comm);
    return nccl_result_of(gyre_comm_count(own, count));
}

NCCL_EXPORT ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int *device)
{
    NCCL_USE(comm);
    if (device == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclCommCuDevice: device is NULL");
    return nccl_result_of(gyre_comm_device(own, NULL, device));
}

NCCL_EXPORT ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
    NCCL_USE(comm);
    return nccl_result_of(gyre_comm_rank(own, rank));
}

NCCL_COMM_FUNCTIONS(NCCL_ALIAS)
