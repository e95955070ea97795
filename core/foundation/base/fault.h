/* SPDX-License-Identifier: Apache-2.0
 *
 * A fault is the first failure of a communicator. Executor, proxies, health thread and callers
 * share it. The code that detects a failure raises the fault. Every wait of the communicator polls
 * `raised` and ends when it is set. Later failures are dropped.
 */
#ifndef GYRE_BASE_FAULT_H
#define GYRE_BASE_FAULT_H

#include "core/foundation/base/status.h"

#include <pthread.h>

struct gyre_fault {
    uint32_t raised; /* 0 or 1, set last, with release; written once, under `lock` */
    pthread_mutex_t lock;
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
    void (*on_raise)(void *context); /* called once, by the raising thread, after `raised` was set.
                                      * May set other abort words and wake sleeping threads; must
                                      * not block */
    void *context;
};

void gyre_fault_init(struct gyre_fault *fault);
void gyre_fault_fini(struct gyre_fault *fault);

/** gyre_fault_hook - set the function that gyre_fault_raise() calls; NULL = none. When this
 * returns, no call of the previous function is running. */
void gyre_fault_hook(struct gyre_fault *fault, void (*on_raise)(void *context), void *context);

/** gyre_fault_raise - record a failure, unless one is recorded already. True if this is the first.
 */
bool gyre_fault_raise(struct gyre_fault *fault, gyre_status status, const char *cause);

/** gyre_fault_is_raised - one acquire load; for polling loops. */
bool gyre_fault_is_raised(const struct gyre_fault *fault);

/** gyre_fault_status - SUCCESS, or the status of the recorded failure. Its cause becomes this
 * thread's cause. */
gyre_status gyre_fault_status(struct gyre_fault *fault);

#endif
