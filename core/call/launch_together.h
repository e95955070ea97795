/* SPDX-License-Identifier: Apache-2.0
 *
 * One launch of one communicator. The thread holds the communicator.
 */
#ifndef GYRE_CALL_LAUNCH_TOGETHER_H
#define GYRE_CALL_LAUNCH_TOGETHER_H

#include "core/call/caller.h"

struct gyre_comparer;

/** gyre_launch_together - plan, record and launch calls that run at the same time.
 * @calls: their windows are known. @comparer: has compared the calls, or does so now; NULL = this
 * thread compares.
 * Errors: those of the calls. A failure that the other ranks do not get alike ends the
 * communicator. */
gyre_status gyre_launch_together(struct gyre_caller *caller, const struct gyre_call *const *calls,
                                 int n_calls, gyre_stream stream, struct gyre_comparer *comparer);

/** gyre_launch_failed - end the communicator after a failed launch, because the other ranks take
 * part in the call and this rank does not. Errors that all ranks get alike (usage, arguments,
 * unsupported calls) do not end it, and neither does SUCCESS. */
void gyre_launch_failed(struct gyre_caller *caller, gyre_status status);

#endif
