/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that the library starts, and waits with a deadline.
 */
#ifndef GYRE_BASE_THREAD_H
#define GYRE_BASE_THREAD_H

#include "core/base/status.h"

#include <pthread.h>

/** gyre_thread_start - as pthread_create(). The thread blocks the signals that are sent to the
 * process, because the application's threads wait for them. Signals that the thread causes itself,
 * such as SIGSEGV, still go to the application's handlers.
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

#endif
