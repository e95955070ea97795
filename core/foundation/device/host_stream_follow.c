/* SPDX-License-Identifier: Apache-2.0
 *
 * Lets one host stream wait for another: a task in the stream that is waited for sets a flag, and
 * the task in the stream that waits is done once the flag is set.
 */
#include "core/foundation/device/host_stream.h"

#include "core/foundation/base/sync.h"

#include <errno.h>
#include <stdlib.h>

/* A task in one stream's queue for which another stream waits. */
struct mark_task {
    struct gyre_task task; /* must be first: the queue has a pointer to it */
    struct mark *mark;
};

struct mark {
    struct mark_task reached; /* in the queue that is waited for */
    struct mark_task awaited; /* in the queue that waits */
    uint32_t is_reached;
    uint32_t n_tasks; /* unreleased tasks; the release of the last one frees the mark */
};

static void release_mark(struct gyre_task *task)
{
    struct mark *mark = ((struct mark_task *)(void *)task)->mark;
    if (gyre_fetch_add_u32(&mark->n_tasks, UINT32_MAX) == 1)
        free(mark);
}

static enum gyre_task_state poll_reached(struct gyre_task *task, gyre_status *status_out)
{
    (void)status_out;
    gyre_store_release_u32(&((struct mark_task *)(void *)task)->mark->is_reached, 1);
    return GYRE_TASK_DONE;
}

static enum gyre_task_state poll_awaited(struct gyre_task *task, gyre_status *status_out)
{
    const struct mark *mark = ((struct mark_task *)(void *)task)->mark;
    (void)status_out;
    return gyre_load_acquire_u32(&mark->is_reached) != 0 ? GYRE_TASK_DONE : GYRE_TASK_IDLE;
}

gyre_status gyre_host_stream_follow(gyre_stream stream, gyre_stream other)
{
    struct mark *mark = calloc(1, sizeof(*mark));
    if (mark == NULL)
        return gyre_fail_errno(ENOMEM, "a stream behind another");
    mark->reached = (struct mark_task){{NULL, poll_reached, release_mark}, mark};
    mark->awaited = (struct mark_task){{NULL, poll_awaited, release_mark}, mark};
    mark->n_tasks = 2;
    gyre_status status = gyre_host_stream_push(other, &mark->reached.task);
    if (status != GYRE_SUCCESS) {
        free(mark);
        return status;
    }
    status = gyre_host_stream_push(stream, &mark->awaited.task);
    if (status != GYRE_SUCCESS)
        release_mark(&mark->awaited.task);
    return status;
}
