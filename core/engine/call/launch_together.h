/* SPDX-License-Identifier: Apache-2.0
 *
 * One launch of one communicator. The thread holds the communicator.
 */
#ifndef GYRE_CALL_LAUNCH_TOGETHER_H
#define GYRE_CALL_LAUNCH_TOGETHER_H

#include "core/engine/call/caller.h"

struct gyre_comparer;

/* Calls of one launch. */
struct gyre_together {
    const struct gyre_call *const *calls; /* their windows are known */
    int n_calls;
    const uint32_t *follows;        /* as in struct gyre_work, by call; NULL = all begin together */
    struct gyre_comparer *comparer; /* has compared the calls, or does so now; NULL = this thread
                                     * compares */
};

/** gyre_launch_together - plan, record and launch calls that run at the same time, but for those
 * that follow another one.
 * Errors: those of the calls. A failure that the other ranks do not get alike ends the
 * communicator. */
gyre_status gyre_launch_together(struct gyre_caller *caller, const struct gyre_together *together,
                                 gyre_stream stream);

/** gyre_launch_failed - end the communicator after a failed launch, because the other ranks take
 * part in the call and this rank does not. Errors that all ranks get alike (usage, arguments,
 * unsupported calls) do not end it, and neither does SUCCESS. */
void gyre_launch_failed(struct gyre_caller *caller, gyre_status status);

#endif
