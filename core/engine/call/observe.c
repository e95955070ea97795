/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells an observer (gyre_comm_observe) of each call of a rank, stage by stage. Three kinds of
 * object count their holders, and the last holder frees the object:
 *
 *   observer   held by the communicator and by every observed call
 *   call       held by the thread that submits it and by its launch
 *   launch     held by the stream and by the thread that launches it
 *
 * On GPUs no stream holds a launch. It waits in a list until a later call, or the communicator's
 * end, finds that it is complete, and asks the executor when it ran.
 */
#include "core/engine/call/batch.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"
#include "kernels/executor.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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

struct gyre_observing {
    gyre_observer observer;
    struct gyre_executor *executor; /* NULL = host streams, or no times */
    bool by_streams;
    uint32_t n_holders;                  /* atomic */
    pthread_mutex_t lock;                /* guards the rest */
    struct gyre_observed_launch *oldest; /* that waits for its times */
    struct gyre_observed_launch *newest;
};

struct gyre_observed {
    struct gyre_observing *observing;
    void *tag;
    uint32_t n_holders; /* atomic */
};

struct gyre_observed_launch {
    struct gyre_span span; /* host streams only */
    struct gyre_observing *observing;
    bool is_timed; /* the stream has the span, or the executor keeps the times */
    struct gyre_observed_launch *next;
    uint64_t first_work;    /* launched before it */
    uint64_t n_works_after; /* likewise, and with it */
    int n_calls;
    struct gyre_observed **held;
    gyre_observed_call calls[];
};

static void release_observing(struct gyre_observing *observing)
{
    if (gyre_fetch_add_u32(&observing->n_holders, UINT32_MAX) != 1)
        return;
    observing->observer.closed(observing->observer.context);
    pthread_mutex_destroy(&observing->lock);
    free(observing);
}

gyre_status gyre_observing_open(const gyre_observer *observer, struct gyre_executor *executor,
                                struct gyre_observing **observing_out)
{
    struct gyre_observing *observing = calloc(1, sizeof(*observing));
    if (observing == NULL)
        return gyre_fail_errno(ENOMEM, "observer");
    memcpy(&observing->observer, observer,
           gyre_min_u64(observer->struct_bytes, sizeof(observing->observer)));
    observing->by_streams = executor == NULL;
    observing->n_holders = 1;
    pthread_mutex_init(&observing->lock, NULL);
    if (executor != NULL && executor->ops->time_works(executor) == GYRE_SUCCESS)
        observing->executor = executor;
    else if (executor != NULL)
        GYRE_WARN("observe: calls are told without their times: %s", gyre_cause());
    *observing_out = observing;
    return GYRE_SUCCESS;
}

void gyre_observe_connection(const struct gyre_observing *observing,
                             const gyre_connection_event *event)
{
    if (observing != NULL && observing->observer.connection != NULL)
        observing->observer.connection(observing->observer.context, event);
}

static const int kind_of[GYRE_N_COLLECTIVES] = {
    [GYRE_COLL_ALL_REDUCE] = GYRE_CALL_ALL_REDUCE,
    [GYRE_COLL_BROADCAST] = GYRE_CALL_BROADCAST,
    [GYRE_COLL_REDUCE] = GYRE_CALL_REDUCE,
    [GYRE_COLL_ALL_GATHER] = GYRE_CALL_ALL_GATHER,
    [GYRE_COLL_REDUCE_SCATTER] = GYRE_CALL_REDUCE_SCATTER,
    [GYRE_COLL_ALL_TO_ALL] = GYRE_CALL_ALL_TO_ALL,
    [GYRE_COLL_GATHER] = GYRE_CALL_GATHER,
    [GYRE_COLL_SCATTER] = GYRE_CALL_SCATTER,
    [GYRE_COLL_SEND_RECV] = GYRE_OBSERVED_RECV,
};

static gyre_observed_call describe(const struct gyre_call *call)
{
    const bool is_send = call->coll == GYRE_COLL_SEND_RECV && call->is_send;
    return (gyre_observed_call){
        .kind = is_send ? GYRE_OBSERVED_SEND : kind_of[call->coll],
        .root = gyre_collectives[call->coll].has_root ? call->root : -1,
        .send = call->send,
        .recv = call->recv,
        .count = (size_t)call->count,
        .dtype = call->dtype,
        .stream = call->stream,
        .tag = call->observed != NULL ? call->observed->tag : NULL,
        .algorithm = "",
        .protocol = "",
    };
}

void gyre_observe_submitted(struct gyre_observing *observing, struct gyre_call *call)
{
    struct gyre_observed *observed = observing != NULL ? malloc(sizeof(*observed)) : NULL;
    if (observed == NULL)
        return;
    gyre_fetch_add_u32(&observing->n_holders, 1);
    const gyre_observed_call told = describe(call);
    *observed = (struct gyre_observed){
        observing, observing->observer.submitted(observing->observer.context, &told), 1};
    call->observed = observed;
}

void gyre_observed_release(struct gyre_observed *observed)
{
    if (observed == NULL || gyre_fetch_add_u32(&observed->n_holders, UINT32_MAX) != 1)
        return;
    struct gyre_observing *observing = observed->observing;
    observing->observer.finished(observing->observer.context, observed->tag);
    free(observed);
    release_observing(observing);
}

static void tell_begin(struct gyre_span *span, uint64_t now_ns)
{
    const struct gyre_observed_launch *launch = (const struct gyre_observed_launch *)span;
    const gyre_observer *observer = &launch->observing->observer;
    for (int i = 0; i < launch->n_calls; i++)
        observer->begun(observer->context, launch->held[i]->tag, now_ns);
}

static void tell_end(struct gyre_span *span, uint64_t now_ns)
{
    const struct gyre_observed_launch *launch = (const struct gyre_observed_launch *)span;
    const gyre_observer *observer = &launch->observing->observer;
    for (int i = 0; i < launch->n_calls; i++)
        observer->ended(observer->context, launch->held[i]->tag, now_ns);
}

static void free_launch(struct gyre_span *span)
{
    struct gyre_observed_launch *launch = (struct gyre_observed_launch *)span;
    struct gyre_observing *observing = launch->observing;
    for (int i = 0; i < launch->n_calls; i++)
        gyre_observed_release(launch->held[i]);
    free(launch->held);
    free(launch);
    release_observing(observing);
}

void gyre_observe_times(struct gyre_observing *observing)
{
    if (observing == NULL || observing->executor == NULL)
        return;
    struct gyre_executor *executor = observing->executor;
    GYRE_LOCKED(&observing->lock);
    while (observing->oldest != NULL &&
           executor->ops->progress(executor).completed >= observing->oldest->n_works_after) {
        struct gyre_observed_launch *launch = observing->oldest;
        observing->oldest = launch->next;
        if (observing->oldest == NULL)
            observing->newest = NULL;
        /* Lost times become the present moment, because the observer waits for them. */
        struct gyre_launch_span span;
        if (!executor->ops->span_of(executor, launch->first_work, &span))
            span.begin_ns = span.end_ns = gyre_now_ns();
        tell_begin(&launch->span, span.begin_ns);
        tell_end(&launch->span, span.end_ns);
        free_launch(&launch->span);
    }
}

void gyre_observing_close(struct gyre_observing *observing)
{
    if (observing == NULL)
        return;
    for (struct gyre_observed_launch *next, *launch = observing->oldest; launch != NULL;
         launch = next) {
        next = launch->next;
        free_launch(&launch->span);
    }
    release_observing(observing);
}

/* Returns false if there is nothing to wait for. */
static bool await_times(struct gyre_observed_launch *launch, bool is_launched)
{
    struct gyre_observing *observing = launch->observing;
    launch->n_works_after = observing->executor->n_launched;
    if (!is_launched)
        return false;
    if (launch->n_works_after == launch->first_work) { /* a call of no elements */
        tell_begin(&launch->span, gyre_now_ns());
        tell_end(&launch->span, gyre_now_ns());
        return false;
    }
    GYRE_LOCKED(&observing->lock);
    if (observing->newest != NULL)
        observing->newest->next = launch;
    else
        observing->oldest = launch;
    observing->newest = launch;
    return true;
}

static const struct gyre_span_ops span_ops = {tell_begin, tell_end, free_launch};

struct gyre_observed_launch *gyre_observe_launching(struct gyre_item *const *items, int n_items,
                                                    gyre_stream stream)
{
    int n_observed = 0;
    for (int i = 0; i < n_items; i++)
        n_observed += items[i]->call.observed != NULL;
    struct gyre_observed_launch *launch = NULL;
    if (n_observed > 0)
        launch = calloc(1, sizeof(*launch) + (size_t)n_observed * sizeof(launch->calls[0]));
    if (launch == NULL)
        return NULL;
    launch->held = calloc((size_t)n_observed, sizeof(*launch->held));
    if (launch->held == NULL) {
        free(launch);
        return NULL;
    }
    for (int i = 0; i < n_items; i++)
        if (items[i]->call.observed != NULL) {
            const struct gyre_call *call = &items[i]->call;
            const struct gyre_choice *choice = &items[i]->plan->choice;
            gyre_observed_call *told = &launch->calls[launch->n_calls];
            launch->held[launch->n_calls++] = call->observed;
            gyre_fetch_add_u32(&call->observed->n_holders, 1);
            *told = describe(call);
            told->algorithm = choice->algorithm->name;
            told->protocol = gyre_proto_names[choice->proto];
            told->n_channels = (int)choice->n_channels;
        }
    launch->observing = launch->held[0]->observing;
    struct gyre_observing *observing = launch->observing;
    gyre_fetch_add_u32(&observing->n_holders, 1);
    gyre_observe_times(observing);
    struct gyre_executor *executor = observing->executor;
    launch->is_timed = observing->by_streams;
    if (!observing->by_streams && executor != NULL) {
        /* The executor must keep the launch's times until they are read. */
        pthread_mutex_lock(&observing->lock);
        const struct gyre_observed_launch *oldest = observing->oldest;
        const bool has_room =
            oldest == NULL || executor->n_launched - oldest->first_work < GYRE_TIMED_WORKS;
        pthread_mutex_unlock(&observing->lock);
        launch->is_timed = has_room && executor->ops->time_next(executor, stream);
        launch->first_work = launch->is_timed ? executor->n_launched : 0;
    }
    for (int i = 0; i < launch->n_calls; i++)
        launch->calls[i].is_timed = launch->is_timed;
    observing->observer.launching(observing->observer.context, launch->calls, launch->n_calls);
    if (observing->by_streams)
        launch->is_timed = gyre_span_begin(&launch->span, &span_ops, stream);
    return launch;
}

void gyre_observe_launched(struct gyre_observed_launch *launch, bool is_launched,
                           gyre_stream stream)
{
    if (launch == NULL)
        return;
    const gyre_observer *observer = &launch->observing->observer;
    observer->launched(observer->context, launch->calls, launch->n_calls);
    if (launch->is_timed && launch->observing->by_streams)
        gyre_span_end(&launch->span, is_launched, stream);
    else if (!launch->is_timed || !await_times(launch, is_launched))
        free_launch(&launch->span);
}
