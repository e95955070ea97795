/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/thread.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <signal.h>
#include <time.h>
#include <stdio.h>
#include <string.h>

/* ulimit -s may be too small. */
#define MIN_STACK_BYTES ((size_t)256 << 10)

/* Signals of a thread's own mistakes reach the application's handlers. */
static const int own_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};

gyre_status gyre_thread_start(pthread_t *thread_out, size_t stack_bytes, void *(*run)(void *),
                              void *argument, const char *what)
{
    sigset_t blocked, before;
    pthread_attr_t attributes;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(own_signals) / sizeof(own_signals[0]); i++)
        sigdelset(&blocked, own_signals[i]);
    pthread_attr_init(&attributes);
    if (stack_bytes == 0)
        pthread_attr_getstacksize(&attributes, &stack_bytes);
    pthread_attr_setstacksize(&attributes,
                              stack_bytes > MIN_STACK_BYTES ? stack_bytes : MIN_STACK_BYTES);
    /* The thread inherits signal mask and floating-point state. */
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    const struct gyre_float_env callers = gyre_float_begin();
    const int error = pthread_create(thread_out, &attributes, run, argument);
    gyre_float_end(callers);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error == EAGAIN)
        return gyre_fail(GYRE_ERROR_SYSTEM,
                         "%s: no thread can be started: raise ulimit -u (processes and threads of "
                         "the user), ulimit -v, or the container's limit of pids (errno %d)",
                         what, error);
    if (error != 0)
        return gyre_fail_errno(error, "%s: pthread_create", what);
    return GYRE_SUCCESS;
}

void gyre_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

void gyre_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / GYRE_SECOND_NS),
                                   .tv_nsec = (long)(deadline_ns % GYRE_SECOND_NS)};
    (void)pthread_cond_timedwait(cond, lock, &until);
}

/* Process-wide by its meaning. Written at load; `generation` also in a child. */
static struct gyre_fork_watch *watches;
static uint32_t generation;

static void before_fork(void)
{
    for (struct gyre_fork_watch *at = watches; at != NULL; at = at->next)
        if (at->lock != NULL)
            pthread_mutex_lock(at->lock);
}

static void after_fork(void)
{
    for (struct gyre_fork_watch *at = watches; at != NULL; at = at->next)
        if (at->lock != NULL)
            pthread_mutex_unlock(at->lock);
}

static void after_fork_in_child(void)
{
    gyre_store_relaxed_u32(&generation, generation + 1);
    for (struct gyre_fork_watch *at = watches; at != NULL; at = at->next)
        if (at->in_child != NULL)
            at->in_child();
    after_fork();
}

void gyre_fork_watch(struct gyre_fork_watch *watch)
{
    /* A process's first handlers need no memory. */
    if (watches == NULL)
        (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
    watch->next = watches;
    watches = watch;
}

uint32_t gyre_fork_generation(void)
{
    return gyre_load_relaxed_u32(&generation);
}

void gyre_fault_init(struct gyre_fault *fault)
{
    memset(fault, 0, sizeof(*fault));
    pthread_mutex_init(&fault->lock, NULL);
}

void gyre_fault_fini(struct gyre_fault *fault)
{
    pthread_mutex_destroy(&fault->lock);
}

void gyre_fault_hook(struct gyre_fault *fault, void (*on_raise)(void *context), void *context)
{
    GYRE_LOCKED(&fault->lock);
    fault->on_raise = on_raise;
    fault->context = context;
}

bool gyre_fault_raise(struct gyre_fault *fault, gyre_status status, const char *cause)
{
    GYRE_LOCKED(&fault->lock);
    const bool first = gyre_load_relaxed_u32(&fault->raised) == 0;
    if (first) {
        fault->status = status;
        snprintf(fault->cause, sizeof(fault->cause), "%s", cause);
        gyre_store_release_u32(&fault->raised, 1);
    }
    /* Under the lock, so a caller that removes the hook knows that it is not running. */
    if (first && fault->on_raise != NULL)
        fault->on_raise(fault->context);
    return first;
}

bool gyre_fault_is_raised(const struct gyre_fault *fault)
{
    return gyre_load_acquire_u32(&fault->raised) != 0;
}

gyre_status gyre_fault_status(struct gyre_fault *fault)
{
    if (!gyre_fault_is_raised(fault))
        return GYRE_SUCCESS;
    gyre_set_cause(fault->cause);
    return fault->status;
}
