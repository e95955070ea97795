/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of the library's own.
 */
#ifndef GYRE_BASE_THREAD_H
#define GYRE_BASE_THREAD_H

#include "core/base/status.h"

#include <pthread.h>

/** gyre_thread_start - as pthread_create, of a thread that takes none of the signals that are sent
 * to the process: the application's threads wait for those, in calls that a signal interrupts. What
 * a thread does itself (SIGSEGV, ...) still goes to the application's handlers.
 * @stack_bytes: 0 = the usual, which is ulimit -s; at least 256 KiB in any case.
 * @what: what the thread is, for the error's text.
 * Errors: SYSTEM, OUT_OF_MEMORY. */
gyre_status gyre_thread_start(pthread_t *thread_out, size_t stack_bytes, void *(*run)(void *),
                              void *argument, const char *what);

/** gyre_cond_init - a condition whose timed waits go by CLOCK_MONOTONIC, as gyre_now_ns() does:
 * a clock that is set must not make them longer. */
void gyre_cond_init(pthread_cond_t *cond);

/** gyre_cond_wait_until - as pthread_cond_timedwait(), until gyre_now_ns() is `deadline_ns`. */
void gyre_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);

#endif
