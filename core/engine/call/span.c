/* SPDX-License-Identifier: Apache-2.0
 *
 * The two tasks of a span.
 */
#include "core/engine/call/span.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"

#include <stddef.h>

static struct gyre_span *of_before(struct gyre_task *task)
{
    return (struct gyre_span *)((char *)task - offsetof(struct gyre_span, before));
}

static struct gyre_span *of_behind(struct gyre_task *task)
{
    return (struct gyre_span *)((char *)task - offsetof(struct gyre_span, behind));
}

static void release(struct gyre_span *span)
{
    if (gyre_fetch_add_u32(&span->n_holders, UINT32_MAX) == 1)
        span->ops->free(span);
}

static enum gyre_task_state poll_before(struct gyre_task *task, gyre_status *status_out)
{
    struct gyre_span *span = of_before(task);
    (void)status_out;
    span->ops->begun(span, gyre_now_ns());
    return GYRE_TASK_DONE;
}

static enum gyre_task_state poll_behind(struct gyre_task *task, gyre_status *status_out)
{
    struct gyre_span *span = of_behind(task);
    (void)status_out;
    span->ops->ended(span, gyre_now_ns());
    return GYRE_TASK_DONE;
}

static void release_before(struct gyre_task *task)
{
    release(of_before(task));
}

static void release_behind(struct gyre_task *task)
{
    release(of_behind(task));
}

bool gyre_span_begin(struct gyre_span *span, const struct gyre_span_ops *ops, gyre_stream stream)
{
    span->before = (struct gyre_task){.poll = poll_before, .release = release_before};
    span->behind = (struct gyre_task){.poll = poll_behind, .release = release_behind};
    span->n_holders = 2; /* the first task and the caller, who passes it on to the second */
    span->ops = ops;
    return gyre_host_stream_push(stream, &span->before) == GYRE_SUCCESS;
}

void gyre_span_end(struct gyre_span *span, bool is_launched, gyre_stream stream)
{
    if (!is_launched || gyre_host_stream_push(stream, &span->behind) != GYRE_SUCCESS)
        release(span);
}
