/* SPDX-License-Identifier: Apache-2.0
 *
 * Works of recent calls. Programs repeat themselves: a call with the same buffers, count, type and
 * operation as one before gets the same work, without choosing and looking up again.
 */
#ifndef GYRE_PLAN_RECENT_H
#define GYRE_PLAN_RECENT_H

#include "core/plan/plan.h"

#define GYRE_RECENT_WORKS 64

/* One for each hash of calls: the latest. Used by the caller's thread of the communicator. */
struct gyre_recent {
    struct gyre_recent_work {
        struct gyre_call call; /* count 0 = there is none */
        struct gyre_work work;
    } works[GYRE_RECENT_WORKS];
};

/** gyre_recent_find - the work of an earlier call that differs in its stream at most; NULL if none
 * is kept. Its signature and sequence are not set. */
const struct gyre_work *gyre_recent_find(const struct gyre_recent *recent,
                                         const struct gyre_call *call);

/** gyre_recent_keep - @work: as gyre_plan_work() makes it; copied. Calls of 0 elements are not
 * kept. */
void gyre_recent_keep(struct gyre_recent *recent, const struct gyre_call *call,
                      const struct gyre_work *work);

/** gyre_recent_forget - all, because calls may get other works now. */
void gyre_recent_forget(struct gyre_recent *recent);

#endif
