/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches the calls that a group has collected, communicator after communicator. Decides in which
 * order and on which streams they are launched.
 */
#include "core/engine/call/launch.h"

#include "core/foundation/base/util.h"
#include "core/engine/call/compare.h"
#include "core/engine/call/launch_p2p.h"
#include "core/engine/call/launch_together.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* One communicator's part of a group. */
struct group_part {
    struct gyre_caller *caller;
    size_t first; /* index of its first call; all of its calls are launched on that call's stream */
    struct gyre_comparer *comparer;
};

/* Launches all calls of one communicator on one stream: first the collectives, in order, then the
 * sends and receives. So ranks may name them in any order. A send between two collectives would
 * wait for its receive, which another rank may have behind both. */
static gyre_status launch_part(const struct group_part *part, const struct gyre_pending *calls,
                               size_t n_calls)
{
    struct gyre_caller *caller = part->caller;
    const gyre_stream stream = calls[part->first].call.stream;
    const struct gyre_call **run = malloc(n_calls * sizeof(*run));
    if (run == NULL)
        return gyre_fail_errno(ENOMEM, "group of %zu calls", n_calls);
    gyre_status status = GYRE_SUCCESS;
    int n_run = 0;
    for (size_t i = part->first; i < n_calls && status == GYRE_SUCCESS; i++) {
        const struct gyre_call *call = &calls[i].call;
        if (calls[i].caller != caller || calls[i].is_joined)
            continue;
        if (call->coll == GYRE_COLL_SEND_RECV) {
            run[n_run++] = call;
            continue;
        }
        const struct gyre_together alone = {&call, 1, NULL, part->comparer};
        status = gyre_launch_together(caller, &alone, stream);
    }
    if (status == GYRE_SUCCESS && n_run > 0)
        status = gyre_launch_p2p(caller, run, n_run, stream);
    free(run);
    return status;
}

/* Finds the first call of each call's communicator. All calls of a communicator are launched on the
 * stream of its first call; on separate streams a receive could wait for an earlier send. */
static void find_firsts(struct gyre_pending *calls, size_t n_calls)
{
    size_t last_first = 0;
    for (size_t i = 0; i < n_calls; i++) {
        size_t first = i > 0 ? calls[i - 1].first : 0;
        if (calls[first].caller != calls[i].caller) {
            first = 0;
            while (calls[first].caller != calls[i].caller && calls[first].next_first != 0)
                first = calls[first].next_first;
        }
        const bool is_first = calls[first].caller != calls[i].caller;
        calls[i].first = is_first ? i : first;
        calls[i].next_first = calls[i].next_self = 0;
        if (is_first)
            last_first = calls[last_first].next_first = i;
    }
}

/* Orders the stream on which a communicator's calls are launched after all other streams that the
 * calls name (@go_ahead), or orders those streams after it. The first is done for all communicators
 * before anything is launched, because communicators may share streams. */
static gyre_status order_streams(const struct gyre_pending *calls, size_t n_calls, bool go_ahead)
{
    for (size_t i = 0; i < n_calls; i++) {
        if (calls[i].caller == NULL)
            continue;
        struct gyre_device *device = calls[i].caller->member->device;
        const gyre_stream stream = calls[calls[i].first].call.stream;
        const gyre_stream other = calls[i].call.stream;
        bool is_done = other == stream;
        for (size_t j = 0; j < i && !is_done; j++)
            is_done = calls[j].caller == calls[i].caller && calls[j].call.stream == other;
        if (!is_done)
            GYRE_TRY(go_ahead ? device->ops->stream_follow(device, stream, other)
                              : device->ops->stream_follow(device, other, stream));
    }
    return GYRE_SUCCESS;
}

/* Takes all communicators for this thread. Communicators that another thread has ended since, and
 * those that have failed, are left out. The other communicators are launched all the same, because
 * their ranks wait for these calls. Returns the first failure. */
static gyre_status begin_all(struct gyre_pending *calls, size_t n_calls)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    gyre_status status = GYRE_SUCCESS;
    for (size_t i = 0; i < n_calls; i++) {
        struct gyre_caller *caller = calls[i].caller;
        if (caller == NULL || calls[i].first != i)
            continue;
        const gyre_status begun = calls[i].ops->begin(caller);
        if (begun == GYRE_SUCCESS) {
            gyre_plan_sweep(caller->plans);
            continue;
        }
        if (status == GYRE_SUCCESS) {
            status = begun;
            snprintf(cause, sizeof(cause), "%s", gyre_cause());
        }
        for (size_t j = i; j < n_calls; j++)
            if (calls[j].caller == caller)
                calls[j].caller = NULL;
    }
    if (status != GYRE_SUCCESS)
        gyre_set_cause(cause);
    return status;
}

static void end_all(const struct gyre_pending *calls, size_t n_calls)
{
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i].caller != NULL && calls[i].first == i)
            calls[i].ops->end(calls[i].caller);
}

/* Loads all programs that the calls need before the first launch, so that the launches follow each
 * other closely. */
static void prepare_all(const struct gyre_pending *calls, size_t n_calls)
{
    const struct gyre_plan *plan;
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i].caller != NULL && !calls[i].is_joined)
            /* An error is ignored here, because the launch fails again and reports it. */
            (void)gyre_plan_get(calls[i].caller->plans, &calls[i].call, &plan);
}

/* Compares communicators by the order in which they were made. This order is total and the same on
 * all ranks of a communicator. So two ranks that share several communicators launch them in the
 * same order, even if their calls come in different orders. Ranks of one communicator that this
 * thread serves keep the order of their calls. */
static int compare_parts(const void *left, const void *right)
{
    const struct group_part *a = left;
    const struct group_part *b = right;
    if (a->caller->member->number != b->caller->member->number)
        return a->caller->member->number < b->caller->member->number ? -1 : 1;
    if (a->caller->member->job != b->caller->member->job) /* both were made at the same time */
        return a->caller->member->job < b->caller->member->job ? -1 : 1;
    return a->first < b->first ? -1 : 1;
}

static gyre_status launch_parts(struct group_part *parts, size_t n_parts,
                                const struct gyre_pending *calls, size_t n_calls)
{
    gyre_status status = GYRE_SUCCESS;
    char cause[GYRE_CAUSE_MAX_BYTES] = "";
    for (size_t i = 0; i < n_parts && n_parts > 1; i++)
        if (gyre_compares_calls(parts[i].caller))
            /* A failure here ends the communicator, and its launches report that. */
            (void)gyre_comparer_start(parts[i].caller, calls, n_calls, &parts[i].comparer);
    for (size_t i = 0; i < n_parts; i++) {
        /* An earlier communicator's failure does not stop this launch, because other ranks wait for
         * these calls. */
        const gyre_status launched = launch_part(&parts[i], calls, n_calls);
        gyre_launch_failed(parts[i].caller, launched);
        if (status != GYRE_SUCCESS || launched == GYRE_SUCCESS)
            continue;
        status = launched;
        snprintf(cause, sizeof(cause), "%s", gyre_cause());
    }
    for (size_t i = 0; i < n_parts; i++)
        if (parts[i].comparer != NULL)
            gyre_comparer_finish(parts[i].comparer);
    if (status != GYRE_SUCCESS)
        gyre_set_cause(cause);
    return status;
}

/* Launches all communicators' calls. @has_begun_out: set to true before the first launch. */
static gyre_status launch_by_communicator(const struct gyre_pending *calls, size_t n_calls,
                                          bool *has_begun_out)
{
    struct group_part few[8];
    struct group_part *parts = few;
    size_t n_parts = 0;
    for (size_t i = 0; i < n_calls; i++)
        n_parts += calls[i].caller != NULL && calls[i].first == i;
    if (n_parts > GYRE_ARRAY_LENGTH(few))
        parts = malloc(n_parts * sizeof(*parts));
    if (parts == NULL)
        return gyre_fail_errno(ENOMEM, "group of %zu communicators", n_parts);
    n_parts = 0;
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i].caller != NULL && calls[i].first == i)
            parts[n_parts++] = (struct group_part){calls[i].caller, i, NULL};
    if (n_parts > 1)
        qsort(parts, n_parts, sizeof(*parts), compare_parts);
    *has_begun_out = true;
    const gyre_status status = launch_parts(parts, n_parts, calls, n_calls);
    if (parts != few)
        free(parts);
    return status;
}

static void find_window(const struct gyre_caller *caller, struct gyre_call *call)
{
    gyre_window_find(caller->windows, (uint32_t)caller->member->n_ranks, call);
}

/* This thread holds the communicators, so no window can be registered or freed meanwhile. */
static void find_windows(struct gyre_pending *calls, size_t n_calls)
{
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i].caller != NULL)
            find_window(calls[i].caller, &calls[i].call);
}

/* This thread holds the communicators. */
static gyre_status launch_held(struct gyre_pending *calls, size_t n_calls)
{
    find_windows(calls, n_calls);
    GYRE_TRY(gyre_launch_join_self(calls, n_calls));
    if (n_calls > 1)
        prepare_all(calls, n_calls);
    bool has_begun = false;
    gyre_status status = order_streams(calls, n_calls, true);
    if (status == GYRE_SUCCESS)
        status = launch_by_communicator(calls, n_calls, &has_begun);
    if (status == GYRE_SUCCESS)
        return order_streams(calls, n_calls, false);
    if (!has_begun)
        for (size_t i = 0; i < n_calls; i++)
            if (calls[i].caller != NULL)
                gyre_launch_failed(calls[i].caller, status);
    char cause[GYRE_CAUSE_MAX_BYTES];
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    /* Also after a failure, for the calls that were launched. */
    (void)order_streams(calls, n_calls, false);
    gyre_set_cause(cause);
    return status;
}

gyre_status gyre_launch_all(struct gyre_pending *calls, size_t n_calls)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    find_firsts(calls, n_calls);
    const gyre_status ended = begin_all(calls, n_calls);
    if (ended != GYRE_SUCCESS)
        snprintf(cause, sizeof(cause), "%s", gyre_cause());
    const gyre_status status = launch_held(calls, n_calls);
    end_all(calls, n_calls);
    if (ended == GYRE_SUCCESS)
        return status;
    gyre_set_cause(cause);
    return ended;
}

gyre_status gyre_launch_one(struct gyre_caller *caller, struct gyre_call *call)
{
    const struct gyre_call *const calls[] = {call};
    const bool is_self = call->coll == GYRE_COLL_SEND_RECV && call->root == caller->member->rank;
    if (is_self) {
        struct gyre_pending alone = {.caller = caller, .ops = caller->ops, .call = *call};
        return launch_held(&alone, 1);
    }
    gyre_plan_sweep(caller->plans);
    find_window(caller, call);
    const struct gyre_together alone = {calls, 1, NULL, NULL};
    return gyre_launch_together(caller, &alone, call->stream);
}
