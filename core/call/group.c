/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: calls of one thread are collected, and launched together by the outermost end (launch.c)
 * or only predicted. A call outside a group is a group of one.
 */
#include "core/call/launch.h"

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
    struct gyre_making **makings; /* under way on threads of their own */
    int n_makings;
    int max_makings;
    bool has_background; /* something of a communicator that does not block */
};

static _Thread_local struct group group;

bool gyre_group_is_open(void)
{
    return group.depth > 0;
}

gyre_status gyre_group_submit(gyre_comm *comm, const struct gyre_call *call)
{
    if (group.depth == 0)
        return gyre_launch_one(comm, call);
    if (group.n_calls == group.max_calls) {
        const size_t more = group.max_calls > 0 ? group.max_calls * 2 : 32;
        struct gyre_pending *calls = realloc(group.calls, more * sizeof(*calls));
        if (calls == NULL)
            /* Without this rank's part no later call of the communicator would fit. */
            return gyre_comm_give_up(comm, gyre_fail_errno(ENOMEM, "group of %zu calls", more));
        group.calls = calls;
        group.max_calls = more;
    }
    group.calls[group.n_calls++] = (struct gyre_pending){comm, *call, false};
    return GYRE_SUCCESS;
}

gyre_status gyre_group_add(struct gyre_making *making)
{
    if (group.n_makings == group.max_makings) {
        const int more = group.max_makings > 0 ? group.max_makings * 2 : 8;
        struct gyre_making **makings =
            realloc(group.makings, (size_t)more * sizeof(struct gyre_making *));
        if (makings == NULL) {
            gyre_making_finish(making); /* nobody else would */
            return gyre_fail_errno(ENOMEM, "group of %d inits", more);
        }
        group.makings = makings;
        group.max_makings = more;
    }
    group.makings[group.n_makings++] = making;
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

/* This thread's group, which is over. */
static struct group take_group(void)
{
    const struct group ending = group;
    memset(&group, 0, sizeof(group));
    return ending;
}

static void free_group(const struct group *ending)
{
    free(ending->makings);
    free(ending->calls);
}

/* All are waited for; the first failure is the group's. */
static gyre_status finish_makings(const struct group *ending)
{
    gyre_status status = GYRE_SUCCESS;
    char cause[GYRE_CAUSE_MAX_BYTES] = "";
    for (int i = 0; i < ending->n_makings; i++) {
        const gyre_status made = gyre_making_finish(ending->makings[i]);
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
    gyre_status status = finish_makings(&ending);
    if (status == GYRE_SUCCESS && ending.n_calls > 0)
        status = gyre_launch_all(ending.calls, ending.n_calls);
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
    gyre_status status = finish_makings(&ending);
    if (status == GYRE_SUCCESS && ending.has_background)
        status = GYRE_IN_PROGRESS;
    free_group(&ending);
    return status;
}

/* ---- simulation --------------------------------------------------------------------------- */

static gyre_status predict_call(gyre_comm *comm, const struct gyre_call *call, double *time_ns_out)
{
    const uint64_t n_bytes = call->count * gyre_dtype_bytes(call->dtype);
    struct gyre_choice choice;
    if (call->coll == GYRE_COLL_SEND_RECV)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "group_simulate_end: the group has sends or receives; only collectives "
                         "can be predicted");
    *time_ns_out = 0;
    if (call->count == 0 || comm->n_ranks == 1)
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_plan_choice(comm, call, &choice));
    return gyre_tuner_predict(gyre_plan_facts(comm), gyre_plan_cost(comm), call->coll, &choice,
                              n_bytes, time_ns_out);
}

/* All calls of the communicator whose first call is calls[first]; 0 if it is not the first. */
static gyre_status predict_comm(const struct gyre_pending *calls, size_t n_calls, size_t first,
                                double *time_ns_out)
{
    *time_ns_out = 0;
    for (size_t i = 0; i < first; i++)
        if (calls[i].comm == calls[first].comm)
            return GYRE_SUCCESS;
    for (size_t i = first; i < n_calls; i++) {
        double time_ns;
        if (calls[i].comm != calls[first].comm)
            continue;
        GYRE_TRY(predict_call(calls[i].comm, &calls[i].call, &time_ns));
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
    gyre_status status = finish_makings(&ending);
    double longest_ns = 0;
    for (size_t i = 0; i < ending.n_calls && status == GYRE_SUCCESS; i++) {
        double time_ns = 0;
        status = predict_comm(ending.calls, ending.n_calls, i, &time_ns);
        longest_ns = time_ns > longest_ns ? time_ns : longest_ns;
    }
    free_group(&ending);
    if (status == GYRE_SUCCESS)
        *time_us_out = longest_ns / 1e3;
    return status;
}
