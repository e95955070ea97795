/* SPDX-License-Identifier: Apache-2.0
 *
 * Records the first failure of a communicator. Later failures are dropped.
 */
#include "core/foundation/base/fault.h"

#include "core/foundation/base/sync.h"

#include <stdio.h>
#include <string.h>

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
    pthread_mutex_lock(&fault->lock);
    fault->on_raise = on_raise;
    fault->context = context;
    pthread_mutex_unlock(&fault->lock);
}

bool gyre_fault_raise(struct gyre_fault *fault, gyre_status status, const char *cause)
{
    pthread_mutex_lock(&fault->lock);
    const bool first = gyre_load_relaxed_u32(&fault->raised) == 0;
    if (first) {
        fault->status = status;
        snprintf(fault->cause, sizeof(fault->cause), "%s", cause);
        gyre_store_release_u32(&fault->raised, 1);
    }
    /* The hook is called under the lock. So a caller that removes it knows that it is not running.
     */
    if (first && fault->on_raise != NULL)
        fault->on_raise(fault->context);
    pthread_mutex_unlock(&fault->lock);
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
    /* status and cause never change after `raised` is set */
    gyre_set_cause(fault->cause);
    return fault->status;
}
