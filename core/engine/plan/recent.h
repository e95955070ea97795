/* SPDX-License-Identifier: Apache-2.0
 *
 * Works of recent calls. User programs repeat their calls. A call with the same buffers, count,
 * type and operation as an earlier call gets the same work, without a new choice and search.
 */
#ifndef GYRE_PLAN_RECENT_H
#define GYRE_PLAN_RECENT_H

#include "core/engine/plan/plan.h"

#define GYRE_RECENT_WORKS 64

/* The latest call of each hash, and its work. Only the caller's thread of the communicator uses
 * the table. */
struct gyre_recent {
    struct gyre_recent_work {
        struct gyre_call call; /* count 0 = there is none */
        struct gyre_work work;
        enum gyre_proto proto; /* of the choice */
    } works[GYRE_RECENT_WORKS];
};

/** gyre_recent_find - find the work of an earlier call that is equal, except perhaps for its
 * stream; NULL if no such call is kept. The signature and sequence of the work are not set. */
const struct gyre_recent_work *gyre_recent_find(const struct gyre_recent *recent,
                                                const struct gyre_call *call);

/** gyre_recent_keep - @work: as gyre_plan_work() makes it; copied. Calls of 0 elements are not
 * kept. @proto: of the call's choice. */
void gyre_recent_keep(struct gyre_recent *recent, const struct gyre_call *call,
                      const struct gyre_work *work, enum gyre_proto proto);

/** gyre_recent_forget - forget all calls, because they may get different works now. */
void gyre_recent_forget(struct gyre_recent *recent);

#endif
