/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's communicators: how they are made, queried and ended.
 */
#include "core/nccl/nccl_shim.h"

#include "core/nccl/nccl_fallback.h"
#include "core/nccl/nccl_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Refuses a handle of the process that this one was forked from. */
static ncclResult_t check_process(const struct ncclComm *comm)
{
    return comm->n_forks == nccl_n_forks()
               ? ncclSuccess
               : nccl_refuse(ncclInvalidUsage,
                             "the communicator belongs to the process that this one was forked "
                             "from; a forked process has to make its own");
}

gyre_comm *nccl_usable(struct ncclComm *comm, ncclResult_t *result_out)
{
    *result_out = ncclSuccess;
    if (comm == NULL)
        *result_out = nccl_refuse(ncclInvalidArgument, "the communicator is NULL");
    else if (check_process(comm) != ncclSuccess)
        *result_out = ncclInvalidUsage;
    else if (comm->comm == NULL && comm->failure != ncclSuccess)
        *result_out =
            nccl_refuse(comm->failure, "the group that was to make the communicator failed");
    else if (comm->comm == NULL)
        *result_out =
            nccl_refuse(ncclInvalidUsage, "the communicator was not initialised, or its group "
                                          "has not ended");
    return *result_out == ncclSuccess ? comm->comm : NULL;
}

static struct ncclComm *new_handle(void)
{
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL) {
        nccl_refuse(ncclSystemError, "out of host memory");
        return NULL;
    }
    pthread_mutex_init(&comm->lock, NULL);
    comm->n_forks = nccl_n_forks();
    comm->wants_profile = nccl_plugin_is_asked();
    return comm;
}

static void free_handle(struct ncclComm *comm)
{
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}

/* A new handle, and the configuration that is asked for. */
static ncclResult_t prepare(const ncclConfig_t *given, struct ncclComm **handle_out,
                            gyre_config *config_out)
{
    const ncclResult_t result = nccl_config_take(given, config_out);
    if (result != ncclSuccess)
        return result;
    *handle_out = new_handle();
    return *handle_out != NULL ? ncclSuccess : ncclSystemError;
}

/* Makes a configuration with which a call of gyre fails on all ranks by this thread's last error:
 * the shim has found a wrong argument, and the other ranks wait for this one. */
static void refuse_on_all_ranks(gyre_config *config_out)
{
    const gyre_config defaults = GYRE_CONFIG_INIT;
    *config_out = defaults;
    config_out->refusal = pncclGetLastError(NULL);
}

/* The handle and the result that a call which makes a communicator returns. */
static ncclResult_t hand_out(struct ncclComm *handle, gyre_status status, ncclComm_t *comm_out)
{
    const ncclResult_t result = nccl_result_of(status);
    if (status != GYRE_SUCCESS && status != GYRE_IN_PROGRESS) {
        free_handle(handle);
        handle = NULL;
    } else if (handle->comm == NULL) {
        nccl_group_promise(handle);
    } else {
        nccl_profile_attach(handle);
    }
    *comm_out = handle;
    return result;
}

ncclResult_t nccl_comm_init(ncclComm_t *comm_out, int n_ranks, const ncclUniqueId *id, int rank,
                            const ncclConfig_t *given)
{
    gyre_config config;
    gyre_unique_id own_id;
    struct ncclComm *handle = NULL;
    ncclResult_t result;
    memcpy(own_id.bytes, id->internal, sizeof(own_id.bytes));
    if (comm_out == NULL) {
        result = nccl_refuse(ncclInvalidArgument, "ncclCommInitRank: comm is NULL");
    } else {
        *comm_out = NULL;
        result = prepare(given, &handle, &config);
    }
    if (result != ncclSuccess) {
        gyre_comm *none = NULL;
        refuse_on_all_ranks(&config);
        (void)gyre_comm_init_rank(&none, n_ranks, &own_id, rank, &config);
        return result;
    }
    return hand_out(handle, gyre_comm_init_rank(&handle->comm, n_ranks, &own_id, rank, &config),
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
    struct ncclComm *handle;
    const ncclResult_t result = prepare(given, &handle, &config);
    if (result != ncclSuccess) {
        nccl_comm_refuse_growth(own, n_ranks, id);
        return result;
    }
    return hand_out(handle,
                    gyre_comm_grow(own, n_ranks, id, &handle->comm, given != NULL ? &config : NULL),
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
    if (nId < 1 || commIds == NULL)
        return nccl_group_note(
            nccl_refuse(ncclInvalidArgument, "ncclCommInitRankScalable: no unique id was given"));
    /* One rendezvous serves all ranks; further ids are for NCCL's several roots. */
    return nccl_group_note(nccl_comm_init(comm, nranks, &commIds[0], rank, config));
}

NCCL_EXPORT ncclResult_t pncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist)
{
    if (comms == NULL || ndev < 1)
        return nccl_refuse(ncclInvalidArgument, "ncclCommInitAll: no communicators or no devices");
    gyre_comm **made = calloc((size_t)ndev, sizeof(*made));
    ncclResult_t result =
        made != NULL ? ncclSuccess : nccl_refuse(ncclSystemError, "out of memory");
    for (int i = 0; i < ndev && result == ncclSuccess; i++) {
        comms[i] = new_handle();
        if (comms[i] == NULL) {
            while (i-- > 0) {
                free_handle(comms[i]);
                comms[i] = NULL;
            }
            result = ncclSystemError;
        }
    }
    if (result == ncclSuccess) {
        result = nccl_result_of(gyre_comm_init_all(made, ndev, devlist, NULL));
        for (int i = 0; i < ndev; i++) {
            comms[i]->comm = made[i];
            if (result == ncclSuccess) {
                nccl_profile_attach(comms[i]);
                continue;
            }
            free_handle(comms[i]);
            comms[i] = NULL;
        }
    }
    free(made);
    return result;
}

NCCL_EXPORT ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, &result);
    return own == NULL ? result : nccl_result_of(gyre_comm_finalize(own));
}

ncclResult_t nccl_comm_end(struct ncclComm *comm, int aborts)
{
    if (comm == NULL)
        return ncclSuccess;
    ncclResult_t result = check_process(comm);
    if (result != ncclSuccess || nccl_group_drop(comm, aborts))
        return result;
    nccl_group_forget(comm->comm);
    if (comm->twin != NULL && aborts)
        nccl_fallback_get()->CommAbort(comm->twin);
    else if (comm->twin != NULL)
        nccl_fallback_get()->CommDestroy(comm->twin);
    if (comm->comm != NULL && aborts)
        result = nccl_result_of(gyre_comm_abort(comm->comm));
    if (comm->comm != NULL && result == ncclSuccess)
        result = nccl_result_of(gyre_comm_destroy(comm->comm));
    free_handle(comm);
    return result;
}

NCCL_EXPORT ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    return nccl_comm_end(comm, 0);
}

NCCL_EXPORT ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    return nccl_comm_end(comm, 1);
}

/* Has the user revoked the communicator? */
static int is_revoked(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    const int revoked = comm->is_revoked;
    pthread_mutex_unlock(&comm->lock);
    return revoked;
}

NCCL_EXPORT ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, &result);
    if (own == NULL)
        return result;
    if (revokeFlags != NCCL_REVOKE_DEFAULT)
        return nccl_refuse(ncclInvalidArgument,
                           "ncclCommRevoke: revokeFlags is not NCCL_REVOKE_DEFAULT");
    pthread_mutex_lock(&comm->lock);
    comm->is_revoked = 1;
    pthread_mutex_unlock(&comm->lock);
    return nccl_result_of(gyre_comm_abort(own));
}

static ncclResult_t split(struct ncclComm *comm, int color, int key, ncclComm_t *comm_out,
                          const ncclConfig_t *given)
{
    gyre_config config;
    struct ncclComm *handle = NULL;
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, &result);
    if (own == NULL)
        return result;
    if (is_revoked(comm))
        return nccl_refuse(ncclInvalidUsage,
                           "gyre does not split a revoked communicator: make a new one of all its "
                           "ranks by ncclCommShrink without excluded ranks and split that");
    if (comm_out == NULL)
        result = nccl_refuse(ncclInvalidArgument, "ncclCommSplit: newcomm is NULL");
    else
        result = prepare(given, &handle, &config);
    if (result != ncclSuccess) {
        gyre_comm *none = NULL;
        refuse_on_all_ranks(&config);
        (void)gyre_comm_split(own, color, key, &none, &config);
        return result;
    }
    const gyre_status status =
        gyre_comm_split(own, color, key, &handle->comm, given != NULL ? &config : NULL);
    if (color != NCCL_SPLIT_NOCOLOR)
        return hand_out(handle, status, comm_out);
    free_handle(handle);
    return nccl_result_of(status);
}

NCCL_EXPORT ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                                        ncclConfig_t *config)
{
    if (newcomm != NULL)
        *newcomm = NULL;
    return nccl_group_note(split(comm, color, key, newcomm, config));
}

static ncclResult_t shrink(struct ncclComm *comm, const int *excluded_ranks, int n_excluded,
                           ncclComm_t *comm_out, const ncclConfig_t *given, int flags)
{
    gyre_config config;
    struct ncclComm *handle = NULL;
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, &result);
    if (own == NULL)
        return result;
    if (is_revoked(comm)) /* its operations have ended already */
        flags = NCCL_SHRINK_ABORT;
    if (comm_out == NULL)
        result = nccl_refuse(ncclInvalidArgument, "ncclCommShrink: newcomm is NULL");
    else
        result = prepare(given, &handle, &config);
    if (result != ncclSuccess) {
        gyre_comm *none = NULL;
        refuse_on_all_ranks(&config);
        (void)gyre_comm_shrink(own, excluded_ranks, n_excluded, flags, &none, &config);
        return result;
    }
    return hand_out(handle,
                    gyre_comm_shrink(own, excluded_ranks, n_excluded, flags, &handle->comm,
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
    if (comm == NULL || asyncError == NULL)
        return nccl_refuse(ncclInvalidArgument,
                           "ncclCommGetAsyncError: comm or asyncError is NULL");
    if (check_process(comm) != ncclSuccess)
        return ncclInvalidUsage;
    if (comm->comm == NULL) { /* its group has not ended, or has failed */
        *asyncError = comm->failure != ncclSuccess ? comm->failure : ncclInProgress;
        return ncclSuccess;
    }
    gyre_status status = GYRE_SUCCESS;
    const ncclResult_t result = nccl_result_of(gyre_comm_async_error(comm->comm, &status));
    if (result == ncclSuccess && is_revoked(comm)) { /* quiescent, and no longer an error */
        *asyncError = status == GYRE_IN_PROGRESS ? ncclInProgress : ncclSuccess;
        return ncclSuccess;
    }
    *asyncError = nccl_translate(status);
    /* The failure happened on another thread. Callers ask this thread's last error for the cause,
     * so set it. */
    if (result == ncclSuccess && status != GYRE_SUCCESS && status != GYRE_IN_PROGRESS)
        nccl_refuse(*asyncError, gyre_comm_last_error(comm->comm));
    return result;
}

NCCL_EXPORT ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, &result);
    return own == NULL ? result : nccl_result_of(gyre_comm_count(own, count));
}

NCCL_EXPORT ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int *device)
{
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, &result);
    return own == NULL ? result : nccl_result_of(gyre_comm_device(own, NULL, device));
}

NCCL_EXPORT ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, &result);
    return own == NULL ? result : nccl_result_of(gyre_comm_rank(own, rank));
}

NCCL_COMM_FUNCTIONS(NCCL_ALIAS)
