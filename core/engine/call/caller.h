/* SPDX-License-Identifier: Apache-2.0
 *
 * The caller: everything that is needed to launch the calls of one communicator on this rank.
 * core/engine/comm makes the caller and sets the functions that it calls in core/engine/comm and
 * core/engine/health. Also groups: calls and other tasks of one thread that end together.
 */
#ifndef GYRE_CALL_CALLER_H
#define GYRE_CALL_CALLER_H

#include "core/engine/call/metrics.h"
#include "core/engine/call/observe.h"
#include "core/engine/call/record.h"
#include "core/engine/links/links.h"
#include "core/engine/plan/plan.h"

struct gyre_caller;

/* What core/engine/comm and core/engine/health do for callers. */
struct gyre_caller_ops {
    /* Take the caller for launches by this thread. It may have been freed since the call was
     * submitted. Errors: INVALID_USAGE (destroyed, finalized, in use by another thread), or the
     * communicator's fault. */
    gyre_status (*begin)(struct gyre_caller *caller);
    void (*end)(struct gyre_caller *caller);
    /* End the communicator on all ranks with `status` and the thread's cause, because this rank
     * cannot take part in an operation that the other ranks wait for. Returns `status`. */
    gyre_status (*give_up)(struct gyre_caller *caller, gyre_status status);
    /* Wait until the communicator has no work in the background. */
    void (*wait_ready)(struct gyre_caller *caller);
    /* On the host: the next launch goes to this stream, which is not that of the latest launch.
     * Returns another rank of the communicator in this process whose launch on the stream is not
     * finished, and then changes nothing; -1: there is none. */
    int (*take_stream)(struct gyre_caller *caller, gyre_stream stream);
    /* Do not report this rank's next fault to the other ranks, because each of them finds the same
     * failure by itself. */
    void (*expect_alike)(struct gyre_caller *caller);
    /* A call's record was posted. Compare it with the records that other ranks have asked about. */
    void (*posted)(struct gyre_caller *caller, const struct gyre_record *record);
};

struct gyre_caller {
    const struct gyre_caller_ops *ops;
    struct gyre_member *member;
    const struct gyre_links *links;
    const struct gyre_windows *windows;
    struct gyre_plan_cache *plans;
    struct gyre_executor *executor;
    struct gyre_trace_buffer *recorded; /* gets launches; NULL = they are not recorded */
    struct gyre_call_log call_log;
    struct gyre_metrics *metrics;     /* NULL = GYRE_METRICS_FILE is unset */
    struct gyre_observing *observing; /* NULL = no observer */
    uint64_t *n_p2p;                  /* by peer * 2 + is_send: messages so far */
    uint32_t *latest;                 /* likewise: zeros; room for gyre_order_messages() */
    uint64_t stream;       /* host: address of the stream of this rank's latest launch, 0 = none.
                            * Set under the registry's lock; the caller reads it without */
    uint64_t stream_works; /* n_launched after that launch; one writer: the caller; release */
};

/** gyre_group_submit - take one call: run it now, or at the end of this thread's group. */
gyre_status gyre_group_submit(struct gyre_caller *caller, const struct gyre_call *call);

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
