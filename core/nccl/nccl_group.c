/* SPDX-License-Identifier: Apache-2.0
 *
 * In NCCL a failed call fails the whole group.
 */
#include "core/nccl/nccl_shim.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

struct group {
    int depth;
    ncclResult_t failure;
    char cause[NCCL_CAUSE_MAX_BYTES];
    struct nccl_comm *promised;
    struct nccl_window_wish *wishes;
    size_t n_wishes;
    size_t max_wishes;
};

static _Thread_local struct group group;
static unsigned n_forks; /* written in a fork's child, before its first call */

static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static uint64_t process_number;

static void forget_inherited(void)
{
    n_forks++;
    free(group.wishes);
    memset(&group, 0, sizeof(group));
    process_once = (pthread_once_t)PTHREAD_ONCE_INIT;
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

void nccl_group_promise(struct nccl_comm *comm)
{
    nccl_comm_promise(comm);
    comm->next_promised = group.promised;
    group.promised = comm;
}

/* Gathered: fixed layout. */
struct asker {
    uint64_t process;
    uint64_t thread;
};

struct job {
    const struct nccl_window_wish *wishes;
    size_t n_wishes;
    gyre_comm *comm;
    struct asker asker;
    gyre_status status;
    char cause[1024];
    pthread_t thread;
    int is_started;
};

static void number_process(void)
{
    if (getrandom(&process_number, sizeof(process_number), 0) != sizeof(process_number))
        process_number = (uint64_t)(uintptr_t)&process_number + (uint64_t)getpid();
}

/* Does a thread ask for two ranks? The same answer on all ranks. */
static gyre_status ask_all(gyre_comm *comm, const struct asker *mine, int *is_twice_out)
{
    int n_ranks = 0;
    *is_twice_out = 0;
    gyre_status status = gyre_comm_count(comm, &n_ranks);
    struct asker *all = calloc((size_t)n_ranks + 1, sizeof(*all));
    if (all == NULL) {
        (void)gyre_comm_abort(comm); /* the others would wait */
        return GYRE_ERROR_OUT_OF_MEMORY;
    }
    if (status == GYRE_SUCCESS)
        status = gyre_comm_exchange(comm, mine, sizeof(*mine), all);
    for (int a = 0; status == GYRE_SUCCESS && a < n_ranks; a++)
        for (int b = a + 1; b < n_ranks; b++)
            if (all[a].process == all[b].process && all[a].thread == all[b].thread)
                *is_twice_out = 1;
    free(all);
    return status;
}

static void *run_job(void *argument)
{
    struct job *job = argument;
    for (size_t i = 0; i < job->n_wishes && job->status == GYRE_SUCCESS; i++) {
        const struct nccl_window_wish *wish = &job->wishes[i];
        gyre_window window = 0;
        int is_twice;
        if (wish->comm != job->comm)
            continue;
        job->status = ask_all(wish->comm, &job->asker, &is_twice);
        if (job->status == GYRE_SUCCESS && !is_twice) {
            /* without memory gyre refuses, and tells the other ranks */
            job->status = gyre_window_register(wish->comm, wish->buffer, wish->n_bytes,
                                               wish->win != NULL ? &window : NULL);
            if (job->status == GYRE_SUCCESS)
                *wish->win = (ncclWindow_t)(uintptr_t)window;
            if (job->status == GYRE_ERROR_UNSUPPORTED)
                job->status = GYRE_SUCCESS;
        }
        if (job->status != GYRE_SUCCESS)
            snprintf(job->cause, sizeof(job->cause), "%s",
                     job->status == GYRE_ERROR_OUT_OF_MEMORY ? "out of host memory"
                                                             : gyre_last_error());
    }
    return NULL;
}

/* One communicator's windows are made in order, those of different ones together. All ranks make no
 * window, without a failure, if they cannot reach each other's memory, or if one thread serves two
 * ranks, which would wait for itself when it deregisters. A rank without memory aborts the
 * communicators, because the other ranks wait for it. */
static ncclResult_t make_windows(const struct nccl_window_wish *wishes, size_t n_wishes)
{
    static _Thread_local char place; /* its address tells threads apart */
    struct job *jobs = calloc(n_wishes + 1, sizeof(*jobs));
    size_t n_jobs = 0;
    ncclResult_t result = ncclSuccess;
    if (jobs == NULL) {
        for (size_t i = 0; i < n_wishes; i++)
            (void)gyre_comm_abort(wishes[i].comm);
        return nccl_refuse(ncclSystemError, "out of host memory");
    }
    pthread_once(&process_once, number_process);
    for (size_t i = 0; i < n_wishes; i++) {
        size_t known = 0;
        while (known < n_jobs && jobs[known].comm != wishes[i].comm)
            known++;
        if (known < n_jobs)
            continue;
        jobs[n_jobs].wishes = wishes;
        jobs[n_jobs].n_wishes = n_wishes;
        jobs[n_jobs].comm = wishes[i].comm;
        jobs[n_jobs++].asker = (struct asker){process_number, (uint64_t)(uintptr_t)&place};
    }
    /* All but the first. The process's signals belong to the application's threads. */
    static const int own_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(own_signals) / sizeof(own_signals[0]); i++)
        sigdelset(&blocked, own_signals[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    for (size_t i = 1; i < n_jobs; i++)
        jobs[i].is_started = pthread_create(&jobs[i].thread, NULL, run_job, &jobs[i]) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (n_jobs > 0)
        run_job(&jobs[0]);
    for (size_t i = 0; i < n_jobs; i++) {
        if (jobs[i].is_started)
            pthread_join(jobs[i].thread, NULL);
        else if (i > 0)
            run_job(&jobs[i]); /* without a thread, here, when the others run */
        if (result == ncclSuccess && jobs[i].status != GYRE_SUCCESS)
            result = nccl_refuse(nccl_translate(jobs[i].status), jobs[i].cause);
    }
    free(jobs);
    return result;
}

ncclResult_t nccl_group_want_window(const struct nccl_window_wish *wish)
{
    if (group.depth == 0)
        return make_windows(wish, 1);
    if (group.n_wishes == group.max_wishes) {
        const size_t more = group.max_wishes > 0 ? group.max_wishes * 2 : 16;
        struct nccl_window_wish *wishes = realloc(group.wishes, more * sizeof(*wishes));
        if (wishes == NULL) {
            (void)gyre_comm_abort(wish->comm);
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

/* After gyre's own group end. Returns the first failure. */
static ncclResult_t finish(struct group *ending)
{
    /* Each handle now has its communicator, or never will. */
    struct nccl_comm *next;
    for (struct nccl_comm *comm = ending->promised; comm != NULL; comm = next) {
        next = comm->next_promised;
        if (comm->made == NULL)
            __atomic_store_n(&comm->failure,
                             ending->failure != ncclSuccess ? ending->failure : ncclInternalError,
                             __ATOMIC_RELEASE);
        __atomic_store_n(&comm->comm, comm->made, __ATOMIC_RELEASE);
        nccl_profile_attach(comm);
        if (nccl_comm_keep_promise(comm))
            (void)nccl_comm_end(comm);
        nccl_comm_unpin(comm);
    }
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
        if (ending.n_wishes > 0)
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
    if (group.depth != 1) /* refused: the group stays open */
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
