/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: the calls of one thread are collected until the outermost group end, which launches them
 * together (launch.c) or only predicts their time. A call outside a group is a group of one.
 */
#include "core/engine/call/group.h"

#include "core/engine/call/launch.h"
#include "core/foundation/base/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This thread's open group. */
struct group {
    int depth;
    struct gyre_pending *calls;
    size_t n_calls;
    size_t max_calls;
    struct gyre_group_task **tasks; /* each runs on a thread of its own */
    int n_tasks;
    int max_tasks;
    bool has_background; /* a communicator that does not block has background work */
};

static _Thread_local struct group group;

/* The calls of an open group are on communicators that a forked child does not have. */
static void drop_inherited(void)
{
    free(group.tasks);
    free(group.calls);
    memset(&group, 0, sizeof(group));
}

GYRE_WATCH_FORKS(NULL, drop_inherited)

bool gyre_group_is_open(void)
{
    return group.depth > 0;
}

gyre_status gyre_group_submit(struct gyre_caller *caller, struct gyre_call *call)
{
    gyre_observe_submitted(caller->observing, call);
    if (group.depth == 0) {
        const struct gyre_float_env callers = gyre_float_begin();
        const gyre_status status = gyre_launch_one(caller, call);
        gyre_float_end(callers);
        gyre_observed_release(call->observed);
        return status;
    }
    if (group.n_calls == group.max_calls) {
        const size_t more = group.max_calls > 0 ? group.max_calls * 2 : 32;
        struct gyre_pending *calls = realloc(group.calls, more * sizeof(*calls));
        if (calls == NULL) {
            gyre_observed_release(call->observed);
            /* Without this call, the sequence of calls on this rank would differ from that on all
             * other ranks. */
            return caller->ops->give_up(caller,
                                        gyre_fail_errno(ENOMEM, "group of %zu calls", more));
        }
        group.calls = calls;
        group.max_calls = more;
    }
    group.calls[group.n_calls++] =
        (struct gyre_pending){.caller = caller, .ops = caller->ops, .call = *call};
    return GYRE_SUCCESS;
}

gyre_status gyre_group_add(struct gyre_group_task *task)
{
    if (group.n_tasks == group.max_tasks) {
        const int more = group.max_tasks > 0 ? group.max_tasks * 2 : 8;
        struct gyre_group_task **tasks = realloc(group.tasks, (size_t)more * sizeof(*tasks));
        if (tasks == NULL) {
            task->finish(task); /* the group's end does not know the task */
            return gyre_fail_errno(ENOMEM, "group of %d inits", more);
        }
        group.tasks = tasks;
        group.max_tasks = more;
    }
    group.tasks[group.n_tasks++] = task;
    return GYRE_SUCCESS;
}

void gyre_group_note_background(void)
{
    group.has_background = group.depth > 0;
}

gyre_status gyre_group_start(void)
{
    group.depth++;
    return GYRE_SUCCESS;
}

/* Takes this thread's group and leaves an empty one. */
static struct group take_group(void)
{
    const struct group ending = group;
    memset(&group, 0, sizeof(group));
    return ending;
}

static void free_group(const struct group *ending)
{
    for (size_t i = 0; i < ending->n_calls; i++)
        gyre_observed_release(ending->calls[i].call.observed);
    free(ending->tasks);
    free(ending->calls);
}

/* Waits for all tasks. Returns the first failure. */
static gyre_status finish_tasks(const struct group *ending)
{
    gyre_status status = GYRE_SUCCESS;
    char cause[GYRE_CAUSE_MAX_BYTES] = "";
    for (int i = 0; i < ending->n_tasks; i++) {
        const gyre_status made = ending->tasks[i]->finish(ending->tasks[i]);
        if (status != GYRE_SUCCESS || made == GYRE_SUCCESS)
            continue;
        status = made;
        snprintf(cause, sizeof(cause), "%s", gyre_cause());
    }
    if (status != GYRE_SUCCESS)
        gyre_set_cause(cause);
    return status;
}

gyre_status gyre_group_end(void)
{
    if (group.depth == 0)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "group_end without group_start on this thread");
    if (--group.depth > 0)
        return GYRE_SUCCESS;
    const struct group ending = take_group();
    gyre_status status = finish_tasks(&ending);
    if (status == GYRE_SUCCESS && ending.n_calls > 0) {
        const struct gyre_float_env callers = gyre_float_begin();
        status = gyre_launch_all(ending.calls, ending.n_calls);
        gyre_float_end(callers);
    }
    if (status == GYRE_SUCCESS && ending.has_background)
        status = GYRE_IN_PROGRESS;
    free_group(&ending);
    return status;
}

gyre_status gyre_group_cancel(void)
{
    if (group.depth != 1)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "group_cancel %s",
                         group.depth == 0 ? "without group_start on this thread"
                                          : "inside another group: only the outermost ends");
    const struct group ending = take_group();
    gyre_status status = finish_tasks(&ending);
    if (status == GYRE_SUCCESS && ending.has_background)
        status = GYRE_IN_PROGRESS;
    free_group(&ending);
    return status;
}

/* ---- simulation --------------------------------------------------------------------------- */

static gyre_status predict_call(const struct gyre_caller *caller, const struct gyre_call *call,
                                double *time_ns_out)
{
    const uint64_t n_bytes = call->count * gyre_dtype_bytes(call->dtype);
    struct gyre_choice choice;
    if (call->coll == GYRE_COLL_SEND_RECV)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "group_simulate_end: the group has sends or receives; only collectives "
                         "can be predicted");
    *time_ns_out = 0;
    if (call->count == 0 || caller->member->n_ranks == 1)
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_plan_choice(caller->plans, call, &choice));
    return gyre_tuner_predict(gyre_plan_facts(caller->plans), gyre_plan_cost(caller->plans),
                              call->coll, &choice, n_bytes, time_ns_out);
}

/* Predicts all calls of a communicator together. @first: its first call in `calls`; for any other
 * call the prediction is 0. */
static gyre_status predict_comm(const struct gyre_pending *calls, size_t n_calls, size_t first,
                                double *time_ns_out)
{
    *time_ns_out = 0;
    for (size_t i = 0; i < first; i++)
        if (calls[i].caller == calls[first].caller)
            return GYRE_SUCCESS;
    for (size_t i = first; i < n_calls; i++) {
        double time_ns;
        if (calls[i].caller != calls[first].caller)
            continue;
        GYRE_TRY(predict_call(calls[i].caller, &calls[i].call, &time_ns));
        *time_ns_out += time_ns;
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_group_simulate_end(double *time_us_out)
{
    if (time_us_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "group_simulate_end: time_us_out is NULL");
    if (group.depth != 1)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "group_simulate_end %s",
                         group.depth == 0 ? "without group_start on this thread"
                                          : "inside another group: only the outermost knows all");
    const struct group ending = take_group();
    gyre_status status = finish_tasks(&ending);
    double longest_ns = 0;
    const struct gyre_float_env callers = gyre_float_begin();
    for (size_t i = 0; i < ending.n_calls && status == GYRE_SUCCESS; i++) {
        double time_ns = 0;
        status = predict_comm(ending.calls, ending.n_calls, i, &time_ns);
        longest_ns = time_ns > longest_ns ? time_ns : longest_ns;
    }
    const double longest_us = longest_ns / 1e3;
    gyre_float_end(callers);
    free_group(&ending);
    if (status == GYRE_SUCCESS)
        *time_us_out = longest_us;
    return status;
}
