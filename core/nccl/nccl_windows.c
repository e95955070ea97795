/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes symmetric windows (core/nccl/nccl_windows.h) with gyre.h's windows.
 */
#include "core/nccl/nccl_windows.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

/* Names the thread of a process that asks for a window. Sent to other ranks: fixed layout. */
struct asker {
    uint64_t process;
    uint64_t thread;
};

/* The wishes of one communicator, on a thread of their own where there are several. */
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

static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static uint64_t process_number;

static void number_process(void)
{
    if (getrandom(&process_number, sizeof(process_number), 0) != sizeof(process_number))
        process_number = (uint64_t)(uintptr_t)&process_number + (uint64_t)getpid();
}

void nccl_windows_forget(void)
{
    process_once = (pthread_once_t)PTHREAD_ONCE_INIT;
}

static struct asker this_thread(void)
{
    static _Thread_local char place; /* its address is the thread's alone */
    pthread_once(&process_once, number_process);
    const struct asker asker = {process_number, (uint64_t)(uintptr_t)&place};
    return asker;
}

/* Does a thread ask for two ranks? All ranks get the same answer. */
static gyre_status ask_all(gyre_comm *comm, const struct asker *mine, int *is_twice_out)
{
    int n_ranks = 0;
    *is_twice_out = 0;
    gyre_status status = gyre_comm_count(comm, &n_ranks);
    struct asker *all = calloc((size_t)n_ranks + 1, sizeof(*all));
    if (all == NULL) {
        (void)gyre_comm_abort(comm); /* the other ranks would wait for this one */
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

static gyre_status make_one(const struct nccl_window_wish *wish, const struct asker *asker)
{
    gyre_window window = 0;
    int is_twice;
    gyre_status status = ask_all(wish->comm, asker, &is_twice);
    if (status != GYRE_SUCCESS || is_twice)
        return status;
    /* Without room for the result gyre refuses the call, and the other ranks are told. */
    status = gyre_window_register(wish->comm, wish->buffer, wish->n_bytes,
                                  wish->win != NULL ? &window : NULL);
    if (status == GYRE_SUCCESS)
        *wish->win = (ncclWindow_t)(uintptr_t)window;
    return status == GYRE_ERROR_UNSUPPORTED ? GYRE_SUCCESS : status;
}

static void *run_job(void *argument)
{
    struct job *job = argument;
    for (size_t i = 0; i < job->n_wishes && job->status == GYRE_SUCCESS; i++) {
        if (job->wishes[i].comm != job->comm)
            continue;
        job->status = make_one(&job->wishes[i], &job->asker);
        if (job->status != GYRE_SUCCESS)
            snprintf(job->cause, sizeof(job->cause), "%s",
                     job->status == GYRE_ERROR_OUT_OF_MEMORY ? "out of host memory"
                                                             : gyre_last_error());
    }
    return NULL;
}

/* All but the first. The process's signals are for the application's threads. */
static void start_jobs(struct job *jobs, size_t n_jobs)
{
    static const int own_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(own_signals) / sizeof(own_signals[0]); i++)
        sigdelset(&blocked, own_signals[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    for (size_t i = 1; i < n_jobs; i++)
        jobs[i].is_started = pthread_create(&jobs[i].thread, NULL, run_job, &jobs[i]) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

gyre_status nccl_windows_make(const struct nccl_window_wish *wishes, size_t n_wishes,
                              char *cause_out, size_t cause_bytes)
{
    struct job *jobs = calloc(n_wishes + 1, sizeof(*jobs));
    size_t n_jobs = 0;
    gyre_status status = GYRE_SUCCESS;
    if (jobs == NULL) {
        for (size_t i = 0; i < n_wishes; i++)
            (void)gyre_comm_abort(wishes[i].comm);
        snprintf(cause_out, cause_bytes, "out of host memory");
        return GYRE_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < n_wishes; i++) {
        size_t known = 0;
        while (known < n_jobs && jobs[known].comm != wishes[i].comm)
            known++;
        if (known < n_jobs)
            continue;
        jobs[n_jobs].wishes = wishes;
        jobs[n_jobs].n_wishes = n_wishes;
        jobs[n_jobs].comm = wishes[i].comm;
        jobs[n_jobs++].asker = this_thread();
    }
    start_jobs(jobs, n_jobs);
    if (n_jobs > 0)
        run_job(&jobs[0]);
    for (size_t i = 0; i < n_jobs; i++) {
        if (jobs[i].is_started)
            pthread_join(jobs[i].thread, NULL);
        else if (i > 0)
            run_job(&jobs[i]); /* without a thread the job runs here, after the other jobs have
                                  started */
        if (status != GYRE_SUCCESS || jobs[i].status == GYRE_SUCCESS)
            continue;
        status = jobs[i].status;
        snprintf(cause_out, cause_bytes, "%s", jobs[i].cause);
    }
    free(jobs);
    return status;
}
