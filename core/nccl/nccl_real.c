/* SPDX-License-Identifier: Apache-2.0
 *
 * Registration, windows, memory and the device API. Calls go to gyre, or to a real library if there
 * is one (core/nccl/nccl_fallback.h).
 */
#include "core/nccl/nccl_shim.h"

#include "core/nccl/nccl_fallback.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

NCCL_EXPORT ncclResult_t pncclCommRegister(const ncclComm_t comm, void *buff, size_t size,
                                           void **handle)
{
    gyre_registration made = NULL;
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own == NULL)
        return result;
    if (handle == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclCommRegister: handle is NULL");
    result = nccl_result_of(gyre_comm_register(own, buff, size, &made));
    *handle = made;
    return result;
}

NCCL_EXPORT ncclResult_t pncclCommDeregister(const ncclComm_t comm, void *handle)
{
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own == NULL || handle == NULL) /* no registration, as NCCL's for buffers it does not use */
        return result;
    return nccl_result_of(gyre_comm_deregister(own, handle));
}

/* A feature that gyre does not have, and no real library stands behind it. */
static ncclResult_t unsupported_unless_real(const char *text)
{
    char all[1400];
    const char *problem = nccl_fallback_problem();
    snprintf(all, sizeof(all), "%s%s%s", text, problem[0] != '\0' ? "; " : "", problem);
    return nccl_unsupported(all);
}

/* The result of a call to the real library. */
static ncclResult_t result_of_real(ncclResult_t result, ncclComm_t twin)
{
    if (result != ncclSuccess && result != ncclInProgress) {
        char all[NCCL_CAUSE_MAX_BYTES];
        snprintf(all, sizeof(all), "GYRE_NCCL_FALLBACK: %s",
                 nccl_fallback_get()->GetLastError(twin));
        nccl_refuse(result, all);
    }
    return result;
}

/* A rank's contribution to the all-gather that comes before all ranks make the twin. */
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
    ncclResult_t result = nccl_result_of(gyre_comm_rank(own, &rank));
    if (result == ncclSuccess)
        result = nccl_result_of(gyre_comm_count(own, &n_ranks));
    if (result != ncclSuccess)
        return result;
    if (rank == 0)
        offer.result = result_of_real(real->GetUniqueId(&offer.id), NULL);
    struct twin_offer *offers = calloc((size_t)n_ranks, sizeof(*offers));
    if (offers == NULL) {
        (void)gyre_comm_abort(own); /* the other ranks would wait for this one */
        return nccl_refuse(ncclSystemError, "out of host memory");
    }
    result = nccl_result_of(gyre_comm_exchange(own, &offer, sizeof(offer), offers));
    if (result == ncclSuccess && offers[0].result != ncclSuccess)
        result =
            nccl_refuse(offers[0].result, "GYRE_NCCL_FALLBACK: ncclGetUniqueId failed on rank 0");
    if (result == ncclSuccess)
        result = result_of_real(real->CommInitRank(twin_out, n_ranks, offers[0].id, rank), NULL);
    free(offers);
    return result;
}

/* The communicator's twin in the real library; made by the first handed-over call, which is
 * collective as all of them are. */
static ncclResult_t get_twin(ncclComm_t handle, const char *call, ncclComm_t *twin_out)
{
    ncclResult_t result;
    gyre_comm *own = nccl_usable(handle, call, &result);
    struct nccl_comm *comm = own != NULL ? nccl_comm_pin(handle, call, &result) : NULL;
    if (comm == NULL)
        return result;
    pthread_mutex_lock(&comm->making);
    *twin_out = __atomic_load_n(&comm->twin, __ATOMIC_ACQUIRE);
    if (*twin_out == NULL)
        result = make_twin(own, nccl_fallback_get(), twin_out);
    __atomic_store_n(&comm->twin, *twin_out, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&comm->making);
    nccl_comm_unpin(comm);
    return result;
}

NCCL_EXPORT ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size,
                                                 ncclWindow_t *win, int winFlags)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    ncclComm_t twin = NULL;
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    const int is_right = buff != NULL && size > 0 && win != NULL;
    if (own == NULL)
        return nccl_group_note(result);
    if (win != NULL)
        *win = NULL; /* documented: no window, collectives use the buffer like any other */
    if (real == NULL && (winFlags & NCCL_WIN_COLL_SYMMETRIC) != 0) {
        /* gyre refuses wrong arguments, and tells the other ranks. */
        const struct nccl_window_wish wish = {own, buff, size, win};
        return nccl_group_note(nccl_group_want_window(&wish));
    }
    if (!is_right)
        return nccl_group_note(nccl_refuse(ncclInvalidArgument,
                                           "ncclCommWindowRegister: buff or win is NULL, or size "
                                           "is 0"));
    if (real == NULL) /* only symmetric windows promise that buffers lie alike on all ranks */
        return ncclSuccess;
    result = get_twin(comm, NCCL_CALL, &twin);
    if (result != ncclSuccess)
        return result;
    return result_of_real(real->CommWindowRegister(twin, buff, size, win, winFlags), twin);
}

/* A failed or aborted communicator ends its windows, because the ranks cannot agree any more, and
 * callers give windows back before they destroy a failed communicator. */
static ncclResult_t deregister_window(gyre_comm *own, gyre_window window)
{
    gyre_status ended = GYRE_SUCCESS;
    const gyre_status status = gyre_window_deregister(own, window);
    if (status ==
        GYRE_ERROR_REMOTE) /* another rank's end, which the communicator may not know yet */
        return ncclSuccess;
    if (status != GYRE_SUCCESS && gyre_comm_async_error(own, &ended) == GYRE_SUCCESS &&
        ended != GYRE_SUCCESS && ended != GYRE_IN_PROGRESS)
        return ncclSuccess;
    return nccl_result_of(status);
}

NCCL_EXPORT ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    ncclComm_t twin = NULL;
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own == NULL || win == NULL)
        return result;
    if (real == NULL)
        return deregister_window(own, (gyre_window)(uintptr_t)win);
    result = get_twin(comm, NCCL_CALL, &twin);
    return result != ncclSuccess ? result
                                 : result_of_real(real->CommWindowDeregister(twin, win), twin);
}

NCCL_EXPORT ncclResult_t pncclDevCommCreate(ncclComm_t comm, const void *requirements,
                                            void *devComm)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    ncclComm_t twin = NULL;
    if (real == NULL)
        return unsupported_unless_real("gyre does not have NCCL's device API (ncclDevCommCreate)");
    const ncclResult_t result = get_twin(comm, NCCL_CALL, &twin);
    return result != ncclSuccess
               ? result
               : result_of_real(real->DevCommCreate(twin, requirements, devComm), twin);
}

NCCL_EXPORT ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const void *devComm)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    ncclComm_t twin = NULL;
    if (real == NULL)
        return unsupported_unless_real("gyre does not have NCCL's device API (ncclDevCommDestroy)");
    const ncclResult_t result = get_twin(comm, NCCL_CALL, &twin);
    return result != ncclSuccess ? result
                                 : result_of_real(real->DevCommDestroy(twin, devComm), twin);
}

/* Windows are made of memory that the real library allocated. */
NCCL_EXPORT ncclResult_t pncclMemAlloc(void **ptr, size_t size)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    return real != NULL ? result_of_real(real->MemAlloc(ptr, size), NULL)
                        : nccl_result_of(gyre_mem_alloc(ptr, size, GYRE_DEVICE_AUTO, -1));
}

NCCL_EXPORT ncclResult_t pncclMemFree(void *ptr)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    return real != NULL ? result_of_real(real->MemFree(ptr), NULL)
                        : nccl_result_of(gyre_mem_free(ptr, GYRE_DEVICE_AUTO));
}

NCCL_MEMORY_FUNCTIONS(NCCL_ALIAS)
