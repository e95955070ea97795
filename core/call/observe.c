/* SPDX-License-Identifier: Apache-2.0
 *
 * Three kinds of object count their holders, and the last holder frees the object:
 *
 *   observer   held by the communicator and by every observed call
 *   call       held by the thread that submits it and by its launch
 *   launch     held by the stream and by the thread that launches it
 */
#include "core/call/observe.h"

#include "core/base/sync.h"
#include "core/call/span.h"

#include <errno.h>
#include <stdlib.h>

struct gyre_observing {
    gyre_observer observer;
    bool knows_times;
    uint32_t n_holders; /* atomic */
};

struct gyre_observed {
    struct gyre_observing *observing;
    void *tag;
    uint32_t n_holders; /* atomic */
};

struct gyre_observed_launch {
    struct gyre_span span; /* of the host's streams only */
    struct gyre_observing *observing;
    bool is_timed; /* the stream has the span */
    int n_calls;
    struct gyre_observed **held; /* n_calls of them */
    gyre_observed_call calls[];
};

static void release_observing(struct gyre_observing *observing)
{
    if (gyre_fetch_add_u32(&observing->n_holders, UINT32_MAX) != 1)
        return;
    observing->observer.closed(observing->observer.context);
    free(observing);
}

gyre_status gyre_observing_open(const gyre_observer *observer, bool knows_times,
                                struct gyre_observing **observing_out)
{
    struct gyre_observing *observing = malloc(sizeof(*observing));
    if (observing == NULL)
        return gyre_fail_errno(ENOMEM, "observer");
    *observing = (struct gyre_observing){*observer, knows_times, 1};
    *observing_out = observing;
    return GYRE_SUCCESS;
}

void gyre_observing_close(struct gyre_observing *observing)
{
    if (observing != NULL)
        release_observing(observing);
}

/* ---- calls -------------------------------------------------------------------------------- */

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

/* ---- launches ----------------------------------------------------------------------------- */

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

static const struct gyre_span_ops span_ops = {tell_begin, tell_end, free_launch};

static struct gyre_observed_launch *new_launch(int n_calls)
{
    struct gyre_observed_launch *launch =
        calloc(1, sizeof(*launch) + (size_t)n_calls * sizeof(launch->calls[0]));
    if (launch == NULL)
        return NULL;
    launch->held = calloc((size_t)n_calls, sizeof(*launch->held));
    if (launch->held != NULL)
        return launch;
    free(launch);
    return NULL;
}

static void add_call(struct gyre_observed_launch *launch, struct gyre_plan_cache *plans,
                     const struct gyre_call *call)
{
    struct gyre_choice choice;
    gyre_observed_call *told = &launch->calls[launch->n_calls];
    launch->held[launch->n_calls++] = call->observed;
    gyre_fetch_add_u32(&call->observed->n_holders, 1);
    *told = describe(call);
    if (gyre_plan_choice_of_work(plans, call, &choice) != GYRE_SUCCESS)
        return; /* its work was made from the same choice, so this does not happen */
    told->algorithm = choice.algorithm->name;
    told->protocol = gyre_proto_names[choice.proto];
    told->n_channels = (int)choice.n_channels;
}

struct gyre_observed_launch *gyre_observe_launching(struct gyre_plan_cache *plans,
                                                    const struct gyre_call *const *calls,
                                                    int n_calls, gyre_stream stream)
{
    int n_observed = 0;
    for (int i = 0; i < n_calls; i++)
        n_observed += calls[i]->observed != NULL;
    struct gyre_observed_launch *launch = n_observed > 0 ? new_launch(n_observed) : NULL;
    if (launch == NULL)
        return NULL;
    for (int i = 0; i < n_calls; i++)
        if (calls[i]->observed != NULL)
            add_call(launch, plans, calls[i]);
    launch->observing = launch->held[0]->observing;
    gyre_fetch_add_u32(&launch->observing->n_holders, 1);
    const gyre_observer *observer = &launch->observing->observer;
    observer->launching(observer->context, launch->calls, launch->n_calls);
    launch->is_timed =
        launch->observing->knows_times && gyre_span_begin(&launch->span, &span_ops, stream);
    return launch;
}

void gyre_observe_launched(struct gyre_observed_launch *launch, bool is_launched,
                           gyre_stream stream)
{
    if (launch == NULL)
        return;
    const gyre_observer *observer = &launch->observing->observer;
    observer->launched(observer->context, launch->calls, launch->n_calls);
    if (launch->is_timed)
        gyre_span_end(&launch->span, is_launched, stream);
    else
        free_launch(&launch->span);
}
