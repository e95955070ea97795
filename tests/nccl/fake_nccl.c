/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/fake_nccl.h"

#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct ncclComm {
    int rank;
    int n_ranks;
};

EXPORT struct fake_nccl_counts fake_nccl_counts;

static int count(int *counter)
{
    return __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
    memset(uniqueId, 0x5a, sizeof(*uniqueId));
    count(&fake_nccl_counts.n_ids);
    return fake_nccl_counts.fails ? ncclSystemError : ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    ncclUniqueId expected;
    memset(&expected, 0x5a, sizeof(expected));
    if (memcmp(&expected, &commId, sizeof(commId)) != 0)
        return ncclInvalidArgument;
    *comm = malloc(sizeof(**comm));
    (*comm)->rank = rank;
    (*comm)->n_ranks = nranks;
    count(&fake_nccl_counts.n_inits);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    count(&fake_nccl_counts.n_destroyed);
    free(comm);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    count(&fake_nccl_counts.n_aborted);
    free(comm);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size,
                                           ncclWindow_t *win, int winFlags)
{
    (void)comm;
    count(&fake_nccl_counts.n_windows);
    /* Ranks may be threads. */
    __atomic_store_n(&fake_nccl_counts.window_flags, winFlags, __ATOMIC_RELAXED);
    __atomic_store_n(&fake_nccl_counts.n_window_bytes, size, __ATOMIC_RELAXED);
    *win = fake_nccl_counts.makes_no_windows ? NULL : buff;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    (void)comm;
    (void)win;
    count(&fake_nccl_counts.n_windows_gone);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    (void)comm;
    (void)size;
    count(&fake_nccl_counts.n_registered);
    *handle = buff;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    (void)comm;
    (void)handle;
    count(&fake_nccl_counts.n_registered_gone);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void *requirements, void *devComm)
{
    (void)requirements;
    *(int *)devComm = comm->rank * 100 + comm->n_ranks;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void *devComm)
{
    (void)comm;
    return devComm == NULL ? ncclInvalidArgument : ncclSuccess;
}

EXPORT ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    if (fake_nccl_counts.fails)
        return ncclSystemError;
    *ptr = malloc(size);
    count(&fake_nccl_counts.n_allocated);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclMemFree(void *ptr)
{
    count(&fake_nccl_counts.n_freed);
    free(ptr);
    return ncclSuccess;
}

EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "the fake's error";
}

EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "the fake's own words";
}
