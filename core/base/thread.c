/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/thread.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#define SECOND_NS 1000000000ULL
/* The usual size of a thread's stack is ulimit -s, which may be less than our calls need. */
#define MIN_STACK_BYTES ((size_t)256 << 10)

/* Signals of a thread's own mistakes. They are not blocked: the application's handlers get them. */
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
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    const int error = pthread_create(thread_out, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error == EAGAIN) /* the kernel does not say which limit it was */
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
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / SECOND_NS),
                                   .tv_nsec = (long)(deadline_ns % SECOND_NS)};
    (void)pthread_cond_timedwait(cond, lock, &until);
}
