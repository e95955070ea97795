/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that the library starts, waits with a deadline, and what fork() does to the state of the
 * process.
 */
#ifndef GYRE_BASE_THREAD_H
#define GYRE_BASE_THREAD_H

#include "core/foundation/base/status.h"

#include <pthread.h>

/** gyre_thread_start - as pthread_create(). The thread blocks the signals that are sent to the
 * process, because the application's threads wait for them. Signals that the thread causes itself,
 * such as SIGSEGV, still go to the application's handlers. Its floating-point state is the default.
 * @stack_bytes: 0 = the default, which is ulimit -s; at least 256 KiB in any case.
 * @what: the purpose of the thread, for error messages.
 * Errors: SYSTEM, OUT_OF_MEMORY. */
gyre_status gyre_thread_start(pthread_t *thread_out, size_t stack_bytes, void *(*run)(void *),
                              void *argument, const char *what);

/** gyre_cond_init - make a condition whose timed waits use CLOCK_MONOTONIC, as gyre_now_ns() does,
 * so that setting the system's clock does not make them longer. */
void gyre_cond_init(pthread_cond_t *cond);

/** gyre_cond_wait_until - as pthread_cond_timedwait(), until gyre_now_ns() is `deadline_ns`. */
void gyre_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);

/* State that belongs to the process. fork() runs under its lock, so the child finds the state
 * whole. A thread that holds such a lock takes no other one and waits for no other rank. */
struct gyre_fork_watch {
    pthread_mutex_t *lock;  /* NULL = none */
    void (*in_child)(void); /* called in the child, under the locks; NULL = nothing is to be done */
    struct gyre_fork_watch *next;
};

/** gyre_fork_watch - take the lock around each fork(), from now on. For GYRE_WATCH_FORKS() only. */
void gyre_fork_watch(struct gyre_fork_watch *watch);

/** gyre_fork_generation - how many forks lie between the process that loaded the library and this
 * one. What belongs to a process has the generation in which it was made: in another generation
 * its threads, sockets and devices do not exist. */
uint32_t gyre_fork_generation(void);

/** Watch the state of a file. At most once in a file; begins when the library is loaded. */
#define GYRE_WATCH_FORKS(lock_, in_child_)                              \
    __attribute__((constructor)) static void watch_forks(void)          \
    {                                                                   \
        static struct gyre_fork_watch watch = {lock_, in_child_, NULL}; \
        gyre_fork_watch(&watch);                                        \
    }

#endif
