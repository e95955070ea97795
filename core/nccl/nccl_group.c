/* SPDX-License-Identifier: Apache-2.0
 *
 * The groups of a thread, and what the end of a group must do besides the gyre calls. In NCCL,
 * unlike in gyre, a failed call makes the whole group fail.
 */
#include "core/nccl/nccl_plugin.h"
#include "core/nccl/nccl_shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This thread's open group. */
struct group {
    int depth;
    ncclResult_t failure; /* the first; with its cause */
    char cause[NCCL_CAUSE_MAX_BYTES];
    struct nccl_comm *promised;
    struct nccl_window_wish *wishes;
    size_t n_wishes;
    size_t max_wishes;
};

static _Thread_local struct group group;
static unsigned n_forks; /* written in the child of a fork, before its first call */

/* A forked child has no group, no plugin and no communicators of its parent. */
static void forget_inherited(void)
{
    n_forks++;
    free(group.wishes);
    memset(&group, 0, sizeof(group));
    nccl_windows_forget();
    nccl_plugin_forget();
    nccl_profile_forget();
}

__attribute__((constructor)) static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, forget_inherited);
}

unsigned nccl_n_forks(void)
{
    return n_forks;
}

int nccl_group_depth(void)
{
    return group.depth;
}

int nccl_group_is_open(void)
{
    return group.depth > 0;
}

/* The first failure of a group is its result. */
static void take_failure(struct group *of, ncclResult_t result)
{
    if (of->failure != ncclSuccess || result == ncclSuccess || result == ncclInProgress)
        return;
    of->failure = result;
    snprintf(of->cause, sizeof(of->cause), "%s", pncclGetLastError(NULL));
}

ncclResult_t nccl_group_note(ncclResult_t result)
{
    if (group.depth > 0)
        take_failure(&group, result);
    return result;
}

/* ---- handles ------------------------------------------------------------------------------ */

void nccl_group_promise(struct nccl_comm *comm)
{
    nccl_comm_promise(comm);
    comm->next_promised = group.promised;
    group.promised = comm;
}

/* The group has ended: every handle that it was to fill in has its communicator, or never will. */
static void settle(const struct group *ended)
{
    struct nccl_comm *next;
    for (struct nccl_comm *comm = ended->promised; comm != NULL; comm = next) {
        next = comm->next_promised;
        if (comm->made == NULL)
            __atomic_store_n(&comm->failure,
                             ended->failure != ncclSuccess ? ended->failure : ncclInternalError,
                             __ATOMIC_RELEASE);
        __atomic_store_n(&comm->comm, comm->made, __ATOMIC_RELEASE);
        nccl_profile_attach(comm);
        if (nccl_comm_keep_promise(comm))
            (void)nccl_comm_end(comm);
        nccl_comm_unpin(comm);
    }
}

/* ---- windows ------------------------------------------------------------------------------ */

/* Makes the windows of the group now, those of several communicators at the same time. */
static ncclResult_t make_windows(const struct nccl_window_wish *asked, size_t n_asked)
{
    char cause[NCCL_CAUSE_MAX_BYTES] = "";
    const gyre_status status = nccl_windows_make(asked, n_asked, cause, sizeof(cause));
    return status == GYRE_SUCCESS ? ncclSuccess : nccl_refuse(nccl_translate(status), cause);
}

ncclResult_t nccl_group_want_window(const struct nccl_window_wish *wish)
{
    if (group.depth == 0)
        return make_windows(wish, 1);
    if (group.n_wishes == group.max_wishes) {
        const size_t more = group.max_wishes > 0 ? group.max_wishes * 2 : 16;
        struct nccl_window_wish *wishes = realloc(group.wishes, more * sizeof(*wishes));
        if (wishes == NULL) {
            (void)gyre_comm_abort(wish->comm); /* the other ranks would wait for this one */
            return nccl_refuse(ncclSystemError, "out of host memory");
        }
        group.wishes = wishes;
        group.max_wishes = more;
    }
    group.wishes[group.n_wishes++] = *wish;
    return ncclSuccess;
}

void nccl_group_forget(const gyre_comm *comm)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < group.n_wishes; i++)
        if (group.wishes[i].comm != comm)
            group.wishes[n_kept++] = group.wishes[i];
    group.n_wishes = n_kept;
}

/* ---- start and end ------------------------------------------------------------------------ */

/* Ends a group after gyre's own group end. Returns the first failure. */
static ncclResult_t finish(struct group *ending)
{
    settle(ending);
    free(ending->wishes);
    return ending->failure != ncclSuccess ? nccl_refuse(ending->failure, ending->cause)
                                          : ncclSuccess;
}

static struct group take_group(void)
{
    const struct group taken = group;
    memset(&group, 0, sizeof(group));
    return taken;
}

NCCL_EXPORT ncclResult_t pncclGroupStart(void)
{
    const gyre_status status = gyre_group_start();
    group.depth += status == GYRE_SUCCESS;
    return nccl_result_of(status);
}

NCCL_EXPORT ncclResult_t pncclGroupEnd(void)
{
    if (group.depth != 1) {
        group.depth -= group.depth > 0;
        return nccl_result_of(gyre_group_end());
    }
    nccl_profile_group_ending();
    struct group ending = take_group();
    ncclResult_t result = ncclSuccess;
    if (ending.failure != ncclSuccess) {
        (void)gyre_group_cancel();
    } else {
        result = nccl_result_of(gyre_group_end());
        take_failure(&ending, result);
        if (ending.n_wishes > 0) /* also after a failure: the other ranks make theirs */
            take_failure(&ending, make_windows(ending.wishes, ending.n_wishes));
    }
    const ncclResult_t failure = finish(&ending);
    nccl_profile_group_ended();
    return failure != ncclSuccess ? failure : result;
}

NCCL_EXPORT ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    double time_us = 0;
    const ncclResult_t head = nccl_check_head(
        "ncclGroupSimulateEnd: simInfo is not as NCCL_SIM_INFO_INITIALIZER makes it", simInfo,
        NCCL_SIM_INFO_MAGIC, sizeof(*simInfo));
    if (head != ncclSuccess)
        return head;
    if (group.depth != 1) /* refused: an open group stays as it is */
        return nccl_result_of(gyre_group_simulate_end(&time_us));
    struct group ending = take_group();
    if (ending.failure != ncclSuccess)
        (void)gyre_group_cancel();
    else
        take_failure(&ending, nccl_result_of(gyre_group_simulate_end(&time_us)));
    const ncclResult_t failure = finish(&ending);
    nccl_profile_group_ended();
    if (failure == ncclSuccess)
        simInfo->estimatedTime = (float)time_us;
    return failure;
}

NCCL_GROUP_FUNCTIONS(NCCL_ALIAS)
