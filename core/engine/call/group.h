/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: calls and other tasks of one thread that end together.
 */
#ifndef GYRE_CALL_GROUP_H
#define GYRE_CALL_GROUP_H

#include "core/engine/call/caller.h"

/** gyre_group_submit - take one call: launch it now, or at the end of this thread's group. */
gyre_status gyre_group_submit(struct gyre_caller *caller, struct gyre_call *call);

/** gyre_group_is_open - is this thread inside a group? */
bool gyre_group_is_open(void);

/* A task that runs on another thread and ends with the group: a communicator's init task. */
struct gyre_group_task {
    /* Wait for its end and free it. */
    gyre_status (*finish)(struct gyre_group_task *task);
};

/** gyre_group_add - the end of this thread's group finishes the task. Errors: OUT_OF_MEMORY; the
 * task is then finished here. */
gyre_status gyre_group_add(struct gyre_group_task *task);

/** gyre_group_note_background - make the group's end return IN_PROGRESS, because a communicator
 * that does not block has work in the background. */
void gyre_group_note_background(void);

#endif
