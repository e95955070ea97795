/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching what a group has collected: which calls run at the same time, in which order and on
 * which streams; the record of each on the board, and their comparison before (GYRE_CHECK=calls).
 */
#include "core/comm/launch.h"

#include "core/base/thread.h"
#include "core/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number of a collective is the board's to give. */
static struct gyre_record make_record(gyre_comm *comm, const struct gyre_call *call)
{
    const bool is_p2p = call->coll == GYRE_COLL_SEND_RECV;
    const int op = gyre_collectives[call->coll].reduces ? (int)call->op : 0;
    struct gyre_record record = {
        .count = call->count,
        .coll = (uint8_t)call->coll,
        .dtype = (uint8_t)call->dtype,
        .op = (uint8_t)(op >= GYRE_FIRST_USER_OP ? GYRE_FIRST_USER_OP : op),
        .is_send = call->is_send,
        .root = gyre_collectives[call->coll].has_root ? call->root : -1,
    };
    const struct gyre_window_entry *window = gyre_window_of(comm, call, &record.window_offset);
    record.window = window != NULL ? window->number : 0;
    if (is_p2p)
        record.sequence = ++comm->n_p2p[call->root * 2 + call->is_send];
    return record;
}

/* GYRE_CHECK=calls: every rank's record is gathered and compared before anything is launched. */
static gyre_status compare_calls(gyre_comm *comm, const struct gyre_record *record)
{
    const size_t n = (size_t)comm->n_ranks;
    struct gyre_record *all = malloc(n * sizeof(*all));
    if (all == NULL)
        return gyre_comm_give_up(comm, gyre_fail_errno(ENOMEM, "GYRE_CHECK=calls"));
    gyre_status status =
        comm->bootstrap->ops->all_gather(comm->bootstrap, record, sizeof(*record), all);
    if (status != GYRE_SUCCESS && gyre_fault_is_raised(&comm->fault))
        status = gyre_fault_status(&comm->fault); /* what ended the communicator says more */
    for (int rank = 1; rank < comm->n_ranks && status == GYRE_SUCCESS; rank++) {
        if (gyre_record_fits(&all[0], &all[rank]) && all[0].sequence == all[rank].sequence)
            continue;
        char first[160];
        char other[160];
        status = gyre_fail(
            GYRE_ERROR_INVALID_USAGE,
            "calls do not fit: rank 0 (%s) called %s, rank %d (%s) called %s; no data "
            "was moved",
            comm->links.infos[0].host_name, gyre_record_text(&all[0], first, sizeof(first)), rank,
            comm->links.infos[rank].host_name, gyre_record_text(&all[rank], other, sizeof(other)));
        gyre_fault_raise(&comm->fault, status, gyre_cause());
    }
    free(all);
    return status;
}

/* Plan, record and launch calls that run at the same time. */
static gyre_status launch(gyre_comm *comm, const struct gyre_call *const *calls, int n_calls,
                          gyre_stream stream)
{
    struct gyre_work few[8];
    struct gyre_work *works = few;
    if (n_calls > 8)
        works = malloc((size_t)n_calls * sizeof(*works));
    if (works == NULL)
        return gyre_fail_errno(ENOMEM, "group of %d calls", n_calls);
    const uint64_t n_launched = comm->executor->n_launched;
    const bool compares = gyre_param_is_set(&comm->params, GYRE_PARAM_CHECK);
    gyre_status status = GYRE_SUCCESS;
    int n_works = 0;
    for (int i = 0; i < n_calls; i++) {
        struct gyre_record record = make_record(comm, calls[i]);
        const uint64_t index = gyre_board_post(&comm->board, &record);
        gyre_health_posted(comm->health, &record);
        if (compares && record.coll != GYRE_COLL_SEND_RECV)
            GYRE_TRY_GOTO(status, compare_calls(comm, &record), out);
        struct gyre_work *work = &works[n_works];
        GYRE_TRY_GOTO(status, gyre_plan_work(comm, calls[i], work), out);
        work->signature = gyre_record_signature(&record, comm->rank);
        work->sequence = record.sequence;
        gyre_health_launched(comm->health, n_launched + (uint64_t)n_works, index);
        n_works++;
    }
    GYRE_TRY_GOTO(status, comm->executor->ops->launch(comm->executor, works, n_works, stream), out);
    if (!comm->executor->ops->helps)
        gyre_links_wake(comm);
out:
    /* The call has its number, but this rank alone is not in it: no next call of anybody's would
     * fit. What all ranks are refused alike (usage, arguments, what is unsupported) is no failure.
     */
    if (status == GYRE_ERROR_OUT_OF_MEMORY || status == GYRE_ERROR_SYSTEM)
        gyre_fault_raise(&comm->fault, status, gyre_cause());
    if (works != few)
        free(works);
    return status;
}

/* A send to oneself is one local copy: it takes the receive that matches it. */
static struct gyre_pending *find_self_recv(struct gyre_pending *calls, size_t n_calls,
                                           const gyre_comm *comm)
{
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i].comm == comm && !calls[i].is_joined &&
            calls[i].call.coll == GYRE_COLL_SEND_RECV && !calls[i].call.is_send &&
            calls[i].call.root == comm->rank)
            return &calls[i];
    return NULL;
}

static gyre_status join_self_calls(struct gyre_pending *calls, size_t n_calls)
{
    for (size_t i = 0; i < n_calls; i++) {
        gyre_comm *comm = calls[i].comm;
        struct gyre_call *call = &calls[i].call;
        if (comm == NULL || call->coll != GYRE_COLL_SEND_RECV || call->root != comm->rank ||
            !call->is_send)
            continue;
        struct gyre_pending *recv = find_self_recv(calls, n_calls, comm);
        if (recv == NULL || recv->call.count != call->count || recv->call.dtype != call->dtype)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "rank %d sends %zu x %s to itself: the same group needs a recv from "
                             "itself of as many elements of that type",
                             comm->rank, (size_t)call->count, gyre_dtype_names[call->dtype]);
        call->recv = recv->call.recv;
        recv->is_joined = true;
    }
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i].comm != NULL && !calls[i].is_joined &&
            calls[i].call.coll == GYRE_COLL_SEND_RECV && !calls[i].call.is_send &&
            calls[i].call.root == calls[i].comm->rank)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "rank %d receives from itself without a send to itself in the group",
                             calls[i].comm->rank);
    return GYRE_SUCCESS;
}

/* Those of a wave that go by one protocol run at the same time, the protocols one after the other:
 * both ends of a message choose alike, by its size. Short messages go first: they may end without
 * their receivers. */
static gyre_status launch_wave(gyre_comm *comm, const struct gyre_call *const *wave, int n_wave,
                               const struct gyre_call **part, gyre_stream stream)
{
    static const enum gyre_proto protos[] = {GYRE_PROTO_LL, GYRE_PROTO_LL128, GYRE_PROTO_SIMPLE};
    int n_launched = 0;
    for (size_t p = 0; p < GYRE_ARRAY_LENGTH(protos) && n_launched < n_wave; p++) {
        int n_part = 0;
        for (int i = 0; i < n_wave; i++) {
            struct gyre_choice choice;
            GYRE_TRY(gyre_plan_choice(comm, wave[i], &choice));
            if (choice.proto == protos[p])
                part[n_part++] = wave[i];
        }
        if (n_part > 0)
            GYRE_TRY(launch(comm, part, n_part, stream));
        n_launched += n_part;
    }
    return n_launched == n_wave ? GYRE_SUCCESS
                                : gyre_fail(GYRE_ERROR_INTERNAL, "sends and receives by a protocol "
                                                                 "that does not copy");
}

/* Of a run of point-to-point calls, those that may run together: the first on every pair and
 * direction. Both ends count alike, so wave k here meets wave k there. */
static gyre_status launch_p2p(gyre_comm *comm, const struct gyre_call **run, int n_run,
                              gyre_stream stream)
{
    const struct gyre_call **wave = malloc((size_t)n_run * 2 * sizeof(*wave));
    const struct gyre_call **part = wave != NULL ? wave + n_run : NULL;
    bool *is_busy = calloc((size_t)comm->n_ranks * 2, sizeof(*is_busy));
    gyre_status status =
        wave != NULL && is_busy != NULL ? GYRE_SUCCESS : gyre_fail_errno(ENOMEM, "group");
    while (status == GYRE_SUCCESS && n_run > 0) {
        int n_wave = 0;
        int n_later = 0;
        memset(is_busy, 0, (size_t)comm->n_ranks * 2 * sizeof(*is_busy));
        for (int i = 0; i < n_run; i++) {
            bool *busy = &is_busy[run[i]->root * 2 + run[i]->is_send];
            if (!*busy)
                wave[n_wave++] = run[i];
            else
                run[n_later++] = run[i];
            *busy = true;
        }
        n_run = n_later;
        status = launch_wave(comm, wave, n_wave, part, stream);
    }
    free(is_busy);
    free(wave);
    return status;
}

/* All calls of one communicator, in order, on one stream. */
static gyre_status launch_in_order(gyre_comm *comm, const struct gyre_pending *calls,
                                   size_t n_calls, gyre_stream stream)
{
    const struct gyre_call **run = malloc(n_calls * sizeof(*run));
    if (run == NULL)
        return gyre_fail_errno(ENOMEM, "group of %zu calls", n_calls);
    gyre_status status = GYRE_SUCCESS;
    int n_run = 0;
    for (size_t i = 0; i < n_calls && status == GYRE_SUCCESS; i++) {
        const struct gyre_call *call = &calls[i].call;
        if (calls[i].comm != comm || calls[i].is_joined)
            continue;
        if (call->coll == GYRE_COLL_SEND_RECV) {
            run[n_run++] = call;
            continue;
        }
        if (n_run > 0)
            status = launch_p2p(comm, run, n_run, stream);
        n_run = 0;
        if (status == GYRE_SUCCESS)
            status = launch(comm, &call, 1, stream);
    }
    if (status == GYRE_SUCCESS && n_run > 0)
        status = launch_p2p(comm, run, n_run, stream);
    free(run);
    return status;
}

/* The first call of calls[at]'s communicator, on whose stream all of them are launched: on streams
 * of their own a receive would wait for a send before it. */
static size_t find_first(const struct gyre_pending *calls, size_t at)
{
    size_t first = 0;
    while (calls[first].comm != calls[at].comm)
        first++;
    return first;
}

/* Every other stream that a communicator's calls name goes ahead of the one that they are launched
 * on, or follows it. All communicators go ahead before the first is launched: they may share
 * streams. */
static gyre_status order_streams(const struct gyre_pending *calls, size_t n_calls, bool go_ahead)
{
    for (size_t i = 0; i < n_calls; i++) {
        if (calls[i].comm == NULL)
            continue;
        struct gyre_device *device = calls[i].comm->device;
        const gyre_stream stream = calls[find_first(calls, i)].call.stream;
        const gyre_stream other = calls[i].call.stream;
        bool is_done = other == stream;
        for (size_t j = 0; j < i && !is_done; j++)
            is_done = calls[j].comm == calls[i].comm && calls[j].call.stream == other;
        if (!is_done)
            GYRE_TRY(go_ahead ? device->ops->stream_follow(device, stream, other)
                              : device->ops->stream_follow(device, other, stream));
    }
    return GYRE_SUCCESS;
}

/* One thread a communicator, for GYRE_CHECK=calls: the comparison waits for the other ranks, which
 * may be served by this very thread. */
struct launcher {
    pthread_t thread;
    gyre_comm *comm;
    const struct gyre_pending *calls;
    size_t n_calls;
    gyre_stream stream;
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
};

static void *run_launcher(void *argument)
{
    struct launcher *launcher = argument;
    gyre_comm_attach(launcher->comm);
    launcher->status =
        launch_in_order(launcher->comm, launcher->calls, launcher->n_calls, launcher->stream);
    memcpy(launcher->cause, gyre_cause(), strlen(gyre_cause()) + 1);
    return NULL;
}

static gyre_status launch_side_by_side(const struct gyre_pending *calls, size_t n_calls)
{
    struct launcher *launchers = calloc(n_calls, sizeof(*launchers));
    if (launchers == NULL)
        return gyre_fail_errno(ENOMEM, "group of %zu calls", n_calls);
    size_t n = 0;
    gyre_status status = GYRE_SUCCESS;
    for (size_t i = 0; i < n_calls && status == GYRE_SUCCESS; i++) {
        struct launcher *launcher = &launchers[n];
        gyre_comm *comm = calls[i].comm;
        if (comm == NULL || find_first(calls, i) != i)
            continue;
        *launcher = (struct launcher){.comm = comm, .calls = calls, .n_calls = n_calls};
        status = comm->device->ops->stream_resolve(comm->device, calls[i].call.stream,
                                                   &launcher->stream);
        if (status == GYRE_SUCCESS)
            status = gyre_thread_start(&launcher->thread, 0, run_launcher, launcher,
                                       "a communicator's launches");
        n += status == GYRE_SUCCESS;
    }
    for (size_t i = 0; i < n; i++) {
        pthread_join(launchers[i].thread, NULL);
        if (status == GYRE_SUCCESS && launchers[i].status != GYRE_SUCCESS) {
            status = launchers[i].status;
            gyre_set_cause(launchers[i].cause);
        }
    }
    free(launchers);
    return status;
}

/* Communicators that another thread has ended since, or that have failed, take no part; the others'
 * ranks wait for these calls. Returns the first failure. */
static gyre_status drop_ended(struct gyre_pending *calls, size_t n_calls)
{
    gyre_status status = GYRE_SUCCESS;
    for (size_t i = 0; i < n_calls; i++) {
        gyre_comm *comm = calls[i].comm;
        const gyre_status ended = comm != NULL ? gyre_comm_check_live(comm) : GYRE_SUCCESS;
        if (status == GYRE_SUCCESS)
            status = ended;
        for (size_t j = i; j < n_calls && ended != GYRE_SUCCESS; j++)
            if (calls[j].comm == comm)
                calls[j].comm = NULL;
    }
    return status;
}

/* Load what the calls need: that may wait for kernels that run, so no launch comes before it. */
static void prepare_all(const struct gyre_pending *calls, size_t n_calls)
{
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i].comm != NULL && !calls[i].is_joined)
            /* What fails here fails again, and is told, when it is launched. */
            (void)gyre_plan_prepare(calls[i].comm, &calls[i].call);
}

static gyre_status launch_one_by_one(const struct gyre_pending *calls, size_t n_calls)
{
    gyre_status status = GYRE_SUCCESS;
    for (size_t i = 0; i < n_calls; i++) {
        if (calls[i].comm == NULL || find_first(calls, i) != i)
            continue;
        /* The other communicators' ranks wait for these calls: launch them all the same. */
        const gyre_status launched =
            launch_in_order(calls[i].comm, calls, n_calls, calls[i].call.stream);
        if (status == GYRE_SUCCESS)
            status = launched;
    }
    return status;
}

gyre_status gyre_launch_all(struct gyre_pending *calls, size_t n_calls)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    const gyre_status ended = drop_ended(calls, n_calls);
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    GYRE_TRY(join_self_calls(calls, n_calls));
    if (n_calls > 1)
        prepare_all(calls, n_calls);
    const gyre_comm *one = NULL;
    const gyre_comm *another = NULL;
    for (size_t i = 0; i < n_calls; i++) {
        another = one != NULL && calls[i].comm != NULL && calls[i].comm != one ? one : another;
        one = calls[i].comm != NULL ? calls[i].comm : one;
    }
    GYRE_TRY(order_streams(calls, n_calls, true));
    gyre_status status = another != NULL && gyre_param_is_set(&one->params, GYRE_PARAM_CHECK)
                             ? launch_side_by_side(calls, n_calls)
                             : launch_one_by_one(calls, n_calls);
    if (ended == GYRE_SUCCESS && status != GYRE_SUCCESS)
        snprintf(cause, sizeof(cause), "%s", gyre_cause());
    /* Also behind what was launched before a failure. */
    const gyre_status ordered = order_streams(calls, n_calls, false);
    if (ended == GYRE_SUCCESS && status == GYRE_SUCCESS)
        return ordered;
    gyre_set_cause(cause);
    return ended != GYRE_SUCCESS ? ended : status;
}

gyre_status gyre_launch_one(gyre_comm *comm, const struct gyre_call *call)
{
    const bool is_self = call->coll == GYRE_COLL_SEND_RECV && call->root == comm->rank;
    if (!is_self)
        return launch(comm, &call, 1, call->stream);
    struct gyre_pending alone = {comm, *call, false};
    return gyre_launch_all(&alone, 1);
}
