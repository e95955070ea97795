/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator's first failure, shared by everything that serves it (executor, proxies, health,
 * callers). Whoever detects a failure raises it; every wait of the communicator polls `raised` and
 * ends. The first cause wins; later ones are dropped.
 */
#ifndef GYRE_BASE_FAULT_H
#define GYRE_BASE_FAULT_H

#include "core/base/status.h"

#include <pthread.h>

struct gyre_fault {
    uint32_t raised; /* 0 or 1, set last, with release; written once, under `lock` */
    pthread_mutex_t lock;
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
    void (*on_raise)(void *context); /* called once, by the raiser, after `raised` is set: may set
                                      * further abort words and wake sleepers; must not block */
    void *context;
};

void gyre_fault_init(struct gyre_fault *fault);
void gyre_fault_fini(struct gyre_fault *fault);

/** gyre_fault_hook - set, or with NULL take away, what a raise calls. When it returns, no call of
 * the former one is under way. */
void gyre_fault_hook(struct gyre_fault *fault, void (*on_raise)(void *context), void *context);

/** gyre_fault_raise - record the failure unless one is there; true if this one was the first. */
bool gyre_fault_raise(struct gyre_fault *fault, gyre_status status, const char *cause);

/** gyre_fault_is_raised - one acquire load; for polling loops. */
bool gyre_fault_is_raised(const struct gyre_fault *fault);

/** gyre_fault_status - SUCCESS, or the recorded failure, whose cause becomes this thread's. */
gyre_status gyre_fault_status(struct gyre_fault *fault);

#endif
