/* SPDX-License-Identifier: Apache-2.0
 *
 * One launch of one communicator: calls that run at the same time are recorded in the call log,
 * planned, and handed to the executor.
 */
#include "core/engine/call/launch_together.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "core/engine/call/compare.h"
#include "core/engine/call/launch.h"
#include "core/foundation/device/host_stream.h"

#include <errno.h>
#include <stdlib.h>

/* Refuses two ranks of a communicator on the same host stream. A host stream runs one launch after
 * the other, so the first rank would wait for the second for ever. On GPUs every rank has a GPU of
 * its own, and so has streams of its own. */
static gyre_status take_stream(struct gyre_caller *caller, gyre_stream stream)
{
    gyre_stream own;
    if (caller->member->device_info.kind != GYRE_DEVICE_HOST)
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_host_stream_resolve(stream, &own));
    if (gyre_load_acquire_u64(&caller->stream) == (uint64_t)(uintptr_t)own)
        return GYRE_SUCCESS;
    const int other = caller->ops->take_stream(caller, own);
    if (other < 0)
        return GYRE_SUCCESS;
    return caller->ops->give_up(
        caller,
        gyre_fail(GYRE_ERROR_INVALID_USAGE,
                  "rank %d of communicator %s was called on the stream where a call of rank "
                  "%d waits for it: on the host each rank of a communicator needs a stream "
                  "of its own (gyre_stream_create; NULL is one stream a thread)",
                  caller->member->rank, caller->member->name, other));
}

void gyre_launch_failed(struct gyre_caller *caller, gyre_status status)
{
    if (status == GYRE_ERROR_OUT_OF_MEMORY || status == GYRE_ERROR_SYSTEM)
        gyre_fault_raise(&caller->member->fault, status, gyre_cause());
}

/* Can the call complete without any other rank? */
static bool is_alone(const struct gyre_caller *caller, const struct gyre_call *call)
{
    return call->count == 0 || caller->member->n_ranks == 1 ||
           (call->coll == GYRE_COLL_SEND_RECV && call->root == caller->member->rank);
}

/* Records a launch for the trace. @first_work: works that were launched before it. */
static void trace_launch(struct gyre_trace_buffer *buffer, const struct gyre_call *first,
                         const struct gyre_work *work, uint64_t first_work, uint64_t begin_ns)
{
    struct gyre_trace_event *event = gyre_trace_next(buffer);
    event->kind = GYRE_TRACE_LAUNCH;
    event->begin_ns = begin_ns;
    event->end_ns = gyre_now_ns();
    event->call = first_work;
    event->sequence = work->sequence;
    event->n_bytes = first->count * gyre_dtype_bytes(first->dtype);
    event->program = GYRE_TRACE_NO_PROGRAM;
    event->step = first->coll;
    event->n_ins = 0;
    event->n_outs = 0;
}

/* Posts the record of a call in the call log, compares the call with those of the other ranks if
 * that is asked for, and makes its work. @work_index: the number of works launched before it. */
static gyre_status post_and_plan(struct gyre_caller *caller, const struct gyre_call *call,
                                 struct gyre_comparer *comparer, uint64_t work_index,
                                 struct gyre_work *work_out)
{
    struct gyre_record record = gyre_launch_record(call);
    if (record.coll == GYRE_COLL_SEND_RECV) /* the call log numbers collectives */
        record.sequence = ++caller->n_p2p[call->root * 2 + call->is_send];
    const uint64_t index = gyre_call_log_post(&caller->call_log, &record);
    caller->ops->posted(caller, &record);
    if (record.coll != GYRE_COLL_SEND_RECV && gyre_compares_calls(caller))
        GYRE_TRY(comparer != NULL ? gyre_comparer_take(comparer)
                                  : gyre_compare_call(caller, &record));
    const struct gyre_plan *plan;
    GYRE_TRY(gyre_plan_get(caller->plans, call, &plan));
    gyre_plan_work(caller->plans, plan, call, work_out);
    work_out->signature = gyre_record_signature(&record, caller->member->rank);
    work_out->sequence = record.sequence;
    gyre_call_log_launched(&caller->call_log, work_index, index);
    return GYRE_SUCCESS;
}

/* Hands works to the executor. Observer and metrics are told ahead of the launch and behind it. */
static gyre_status launch_works(struct gyre_caller *caller, const struct gyre_call *const *calls,
                                const struct gyre_work *works, int n_works, gyre_stream stream)
{
    struct gyre_metrics_span *span = gyre_metrics_begin(caller->metrics, calls, n_works, stream);
    struct gyre_observed_launch *observed =
        gyre_observe_launching(caller->plans, calls, n_works, stream);
    const gyre_status status =
        caller->executor->ops->launch(caller->executor, works, n_works, stream);
    gyre_observe_launched(observed, status == GYRE_SUCCESS, stream);
    gyre_metrics_end(span, status == GYRE_SUCCESS, stream);
    if (status == GYRE_SUCCESS && !caller->executor->ops->helps)
        gyre_links_wake(caller->links);
    return status;
}

gyre_status gyre_launch_together(struct gyre_caller *caller, const struct gyre_together *together,
                                 gyre_stream stream)
{
    const struct gyre_call *const *calls = together->calls;
    const int n_calls = together->n_calls;
    struct gyre_work few[8];
    struct gyre_work *works = few;
    if (n_calls > 8)
        works = malloc((size_t)n_calls * sizeof(*works));
    if (works == NULL)
        return gyre_fail_errno(ENOMEM, "group of %d calls", n_calls);
    const uint64_t n_launched = caller->executor->n_launched;
    const uint64_t begin_ns = caller->recorded != NULL ? gyre_now_ns() : 0;
    gyre_status status = GYRE_SUCCESS;
    bool waits = false; /* a call waits for other ranks */
    for (int i = 0; i < n_calls; i++) {
        GYRE_TRY_GOTO(status,
                      post_and_plan(caller, calls[i], together->comparer, n_launched + (uint64_t)i,
                                    &works[i]),
                      out);
        works[i].follows = together->follows != NULL ? together->follows[i] : 0;
        waits = waits || !is_alone(caller, calls[i]);
    }
    if (waits) {
        GYRE_TRY_GOTO(status, take_stream(caller, stream), out);
        gyre_store_release_u64(&caller->stream_works, n_launched + (uint64_t)n_calls);
    }
    GYRE_TRY_GOTO(status, launch_works(caller, calls, works, n_calls, stream), out);
    /* A captured launch runs when its graph is launched, or never. */
    if (caller->recorded != NULL && caller->executor->n_launched != n_launched)
        trace_launch(caller->recorded, calls[0], &works[0], n_launched, begin_ns);
out:
    gyre_launch_failed(caller, status);
    if (works != few)
        free(works);
    return status;
}
