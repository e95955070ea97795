/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches the calls that a group has collected. Decides which calls run at the same time, in which
 * order and on which streams, and posts the record of each call in the call log.
 */
#include "core/call/launch.h"

#include "core/base/sync.h"
#include "core/base/util.h"
#include "core/call/compare.h"
#include "core/device/host_stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Ends the communicator after a failed launch, because the other ranks take part in the call and
 * this rank does not. Errors that all ranks get alike (usage, arguments, unsupported calls) do not
 * end the communicator. */
static void end_unless_refused_alike(struct gyre_caller *caller, gyre_status status)
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

/* Plan, record and launch calls that run at the same time. @comparer: NULL = this thread
 * compares. */
static gyre_status launch(struct gyre_caller *caller, const struct gyre_call *const *calls,
                          int n_calls, gyre_stream stream, struct gyre_comparer *comparer)
{
    struct gyre_work few[8];
    struct gyre_work *works = few;
    if (n_calls > 8)
        works = malloc((size_t)n_calls * sizeof(*works));
    if (works == NULL)
        return gyre_fail_errno(ENOMEM, "group of %d calls", n_calls);
    const uint64_t n_launched = caller->executor->n_launched;
    const bool compares = gyre_compares_calls(caller);
    gyre_status status = GYRE_SUCCESS;
    bool waits = false; /* a call waits for other ranks */
    int n_works = 0;
    for (int i = 0; i < n_calls; i++) {
        struct gyre_record record = gyre_launch_record(calls[i]);
        if (record.coll == GYRE_COLL_SEND_RECV) /* the call log numbers collectives */
            record.sequence = ++caller->n_p2p[calls[i]->root * 2 + calls[i]->is_send];
        const uint64_t index = gyre_call_log_post(&caller->call_log, &record);
        caller->ops->posted(caller, &record);
        if (compares && record.coll != GYRE_COLL_SEND_RECV)
            GYRE_TRY_GOTO(status,
                          comparer != NULL ? gyre_comparer_take(comparer)
                                           : gyre_compare_call(caller, &record),
                          out);
        struct gyre_work *work = &works[n_works];
        GYRE_TRY_GOTO(status, gyre_plan_work(caller->plans, calls[i], work), out);
        work->signature = gyre_record_signature(&record, caller->member->rank);
        work->sequence = record.sequence;
        gyre_call_log_launched(&caller->call_log, n_launched + (uint64_t)n_works, index);
        waits = waits || !is_alone(caller, calls[i]);
        n_works++;
    }
    if (waits) {
        GYRE_TRY_GOTO(status, take_stream(caller, stream), out);
        gyre_store_release_u64(&caller->stream_works, n_launched + (uint64_t)n_works);
    }
    GYRE_TRY_GOTO(status, caller->executor->ops->launch(caller->executor, works, n_works, stream),
                  out);
    if (!caller->executor->ops->helps)
        gyre_links_wake(caller->links);
out:
    end_unless_refused_alike(caller, status);
    if (works != few)
        free(works);
    return status;
}

/* Finds the receive that matches a rank's send to itself. The send carries out both as one local
 * copy. */
static struct gyre_pending *find_self_recv(struct gyre_pending *calls, size_t n_calls,
                                           const struct gyre_caller *caller)
{
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i].caller == caller && !calls[i].is_joined &&
            calls[i].call.coll == GYRE_COLL_SEND_RECV && !calls[i].call.is_send &&
            calls[i].call.root == caller->member->rank)
            return &calls[i];
    return NULL;
}

static gyre_status join_self_calls(struct gyre_pending *calls, size_t n_calls)
{
    for (size_t i = 0; i < n_calls; i++) {
        struct gyre_caller *caller = calls[i].caller;
        struct gyre_call *call = &calls[i].call;
        if (caller == NULL || call->coll != GYRE_COLL_SEND_RECV ||
            call->root != caller->member->rank || !call->is_send)
            continue;
        struct gyre_pending *recv = find_self_recv(calls, n_calls, caller);
        if (recv == NULL || recv->call.count != call->count || recv->call.dtype != call->dtype)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "rank %d sends %zu x %s to itself: the same group needs a recv from "
                             "itself of as many elements of that type",
                             caller->member->rank, (size_t)call->count,
                             gyre_dtype_names[call->dtype]);
        call->recv = recv->call.recv;
        recv->is_joined = true;
    }
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i].caller != NULL && !calls[i].is_joined &&
            calls[i].call.coll == GYRE_COLL_SEND_RECV && !calls[i].call.is_send &&
            calls[i].call.root == calls[i].caller->member->rank)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "rank %d receives from itself without a send to itself in the group",
                             calls[i].caller->member->rank);
    return GYRE_SUCCESS;
}

/* Launches a wave: the calls of one protocol at the same time, and the protocols one after the
 * other. Both ends of a message choose the same protocol, by the size of the message. Short
 * messages go first, because they may complete before their receivers take them. */
static gyre_status launch_wave(struct gyre_caller *caller, const struct gyre_call *const *wave,
                               int n_wave, const struct gyre_call **part, gyre_stream stream)
{
    static const enum gyre_proto protos[] = {GYRE_PROTO_LL, GYRE_PROTO_LL128, GYRE_PROTO_SIMPLE};
    int n_launched = 0;
    for (size_t p = 0; p < GYRE_ARRAY_LENGTH(protos) && n_launched < n_wave; p++) {
        int n_part = 0;
        for (int i = 0; i < n_wave; i++) {
            struct gyre_choice choice;
            GYRE_TRY(gyre_plan_choice(caller->plans, wave[i], &choice));
            if (choice.proto == protos[p])
                part[n_part++] = wave[i];
        }
        if (n_part > 0)
            GYRE_TRY(launch(caller, part, n_part, stream, NULL));
        n_launched += n_part;
    }
    return n_launched == n_wave ? GYRE_SUCCESS
                                : gyre_fail(GYRE_ERROR_INTERNAL, "sends and receives by a protocol "
                                                                 "that does not copy");
}

/* Launches a run of point-to-point calls in waves. A wave has at most one call for each peer and
 * direction. Both ends count their calls alike, so wave k of one rank fits wave k of the other. */
static gyre_status launch_p2p(struct gyre_caller *caller, const struct gyre_call **run, int n_run,
                              gyre_stream stream)
{
    const struct gyre_call **wave = malloc((size_t)n_run * 2 * sizeof(*wave));
    const struct gyre_call **part = wave != NULL ? wave + n_run : NULL;
    bool *is_busy = calloc((size_t)caller->member->n_ranks * 2, sizeof(*is_busy));
    gyre_status status =
        wave != NULL && is_busy != NULL ? GYRE_SUCCESS : gyre_fail_errno(ENOMEM, "group");
    while (status == GYRE_SUCCESS && n_run > 0) {
        int n_wave = 0;
        int n_later = 0;
        memset(is_busy, 0, (size_t)caller->member->n_ranks * 2 * sizeof(*is_busy));
        for (int i = 0; i < n_run; i++) {
            bool *busy = &is_busy[run[i]->root * 2 + run[i]->is_send];
            if (!*busy)
                wave[n_wave++] = run[i];
            else
                run[n_later++] = run[i];
            *busy = true;
        }
        n_run = n_later;
        status = launch_wave(caller, wave, n_wave, part, stream);
    }
    free(is_busy);
    free(wave);
    return status;
}

/* One communicator's part of a group. */
struct group_part {
    struct gyre_caller *caller;
    size_t first; /* index of its first call; all of its calls are launched on that call's stream */
    struct gyre_comparer *comparer;
};

/* Launches all calls of one communicator, in order, on one stream. */
static gyre_status launch_in_order(const struct group_part *part, const struct gyre_pending *calls,
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
        if (n_run > 0)
            status = launch_p2p(caller, run, n_run, stream);
        n_run = 0;
        if (status == GYRE_SUCCESS)
            status = launch(caller, &call, 1, stream, part->comparer);
    }
    if (status == GYRE_SUCCESS && n_run > 0)
        status = launch_p2p(caller, run, n_run, stream);
    free(run);
    return status;
}

/* The index of the first call of calls[at]'s communicator. All calls of a communicator are launched
 * on the stream of its first call; on separate streams a receive could wait for an earlier send. */
static size_t find_first(const struct gyre_pending *calls, size_t at)
{
    size_t first = 0;
    while (calls[first].caller != calls[at].caller)
        first++;
    return first;
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
        const gyre_stream stream = calls[find_first(calls, i)].call.stream;
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
        if (caller == NULL || find_first(calls, i) != i)
            continue;
        const gyre_status begun = calls[i].ops->begin(caller);
        if (begun == GYRE_SUCCESS)
            continue;
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
        if (calls[i].caller != NULL && find_first(calls, i) == i)
            calls[i].ops->end(calls[i].caller);
}

/* Loads all programs that the calls need before the first launch, so that the launches follow each
 * other closely. */
static void prepare_all(const struct gyre_pending *calls, size_t n_calls)
{
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i].caller != NULL && !calls[i].is_joined)
            /* An error is ignored here, because the launch fails again and reports it. */
            (void)gyre_plan_prepare(calls[i].caller->plans, &calls[i].call);
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
        const gyre_status launched = launch_in_order(&parts[i], calls, n_calls);
        end_unless_refused_alike(parts[i].caller, launched);
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
        n_parts += calls[i].caller != NULL && find_first(calls, i) == i;
    if (n_parts > GYRE_ARRAY_LENGTH(few))
        parts = malloc(n_parts * sizeof(*parts));
    if (parts == NULL)
        return gyre_fail_errno(ENOMEM, "group of %zu communicators", n_parts);
    n_parts = 0;
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i].caller != NULL && find_first(calls, i) == i)
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
    GYRE_TRY(join_self_calls(calls, n_calls));
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
                end_unless_refused_alike(calls[i].caller, status);
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
        struct gyre_pending alone = {caller, caller->ops, *call, false};
        return launch_held(&alone, 1);
    }
    find_window(caller, call);
    return launch(caller, calls, 1, call->stream, NULL);
}
