/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends and receives of a group: those of a rank with itself become one local copy, and the others
 * run at the same time as far as the order of each peer's calls and the executor allow.
 */
#include "core/call/launch_p2p.h"

#include "core/base/util.h"
#include "core/call/launch_together.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Finds the receive that matches the next send to itself of the rank whose first call is
 * calls[first]. The send carries out both as one local copy. */
static struct gyre_pending *find_self_recv(struct gyre_pending *calls, size_t n_calls, size_t first)
{
    const struct gyre_caller *caller = calls[first].caller;
    for (size_t *at = &calls[first].next_self; *at < n_calls; (*at)++)
        if (calls[*at].caller == caller && !calls[*at].is_joined &&
            calls[*at].call.coll == GYRE_COLL_SEND_RECV && !calls[*at].call.is_send &&
            calls[*at].call.root == caller->member->rank)
            return &calls[*at];
    return NULL;
}

gyre_status gyre_launch_join_self(struct gyre_pending *calls, size_t n_calls)
{
    for (size_t i = 0; i < n_calls; i++) {
        struct gyre_caller *caller = calls[i].caller;
        struct gyre_call *call = &calls[i].call;
        if (caller == NULL || call->coll != GYRE_COLL_SEND_RECV ||
            call->root != caller->member->rank || !call->is_send)
            continue;
        struct gyre_pending *recv = find_self_recv(calls, n_calls, calls[i].first);
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

/* A call of a wave: the sends and receives that run at the same time. */
struct wave_call {
    const struct gyre_call *call;
    enum gyre_proto proto;
    bool is_apart; /* one of two ranks copies to itself */
};

/* The parts of a wave in the order of their launches. Both ends of a message choose the same
 * protocol, by the size of the message and the kind of the link between them. Short messages go
 * first, because they may complete before their receivers take them. Where there are two ranks, a
 * short copy of one to itself has a launch of its own: a send and a receive without it are a single
 * kernel. */
static const struct wave_part {
    enum gyre_proto proto;
    bool takes_apart; /* calls that are */
    bool takes_rest;
} wave_parts[] = {
    {GYRE_PROTO_LL, false, true},    {GYRE_PROTO_LL, true, false},
    {GYRE_PROTO_LL128, false, true}, {GYRE_PROTO_LL128, true, false},
    {GYRE_PROTO_SIMPLE, true, true},
};

static gyre_status choose_protos(struct gyre_caller *caller, struct wave_call *wave, int n_wave)
{
    for (int i = 0; i < n_wave; i++) {
        GYRE_TRY(gyre_plan_proto(caller->plans, wave[i].call, &wave[i].proto));
        wave[i].is_apart =
            caller->member->n_ranks == 2 && wave[i].call->root == caller->member->rank;
    }
    return GYRE_SUCCESS;
}

/* Launches a wave: the calls of a part at the same time, and the parts one after the other.
 * @calls: room for n_wave calls. */
static gyre_status launch_wave(struct gyre_caller *caller, struct wave_call *wave, int n_wave,
                               const struct gyre_call **calls, gyre_stream stream)
{
    int n_launched = 0;
    GYRE_TRY(choose_protos(caller, wave, n_wave));
    for (size_t p = 0; p < GYRE_ARRAY_LENGTH(wave_parts) && n_launched < n_wave; p++) {
        const struct wave_part *part = &wave_parts[p];
        int n_calls = 0;
        for (int i = 0; i < n_wave; i++)
            if (wave[i].proto == part->proto &&
                (wave[i].is_apart ? part->takes_apart : part->takes_rest))
                calls[n_calls++] = wave[i].call;
        if (n_calls > 0)
            GYRE_TRY(gyre_launch_together(
                caller, &(struct gyre_together){.calls = calls, .n_calls = n_calls}, stream));
        n_launched += n_calls;
    }
    return n_launched == n_wave ? GYRE_SUCCESS
                                : gyre_fail(GYRE_ERROR_INTERNAL, "sends and receives by a protocol "
                                                                 "that does not copy");
}

/* Launches a run of calls in waves, one after the other. */
static gyre_status launch_waves(struct gyre_caller *caller, const struct gyre_call **run, int n_run,
                                gyre_stream stream)
{
    struct wave_call *wave = malloc((size_t)n_run * sizeof(*wave));
    const struct gyre_call **calls = malloc((size_t)n_run * sizeof(*calls));
    bool *is_busy = calloc((size_t)caller->member->n_ranks * 2, sizeof(*is_busy));
    gyre_status status = wave != NULL && calls != NULL && is_busy != NULL
                             ? GYRE_SUCCESS
                             : gyre_fail_errno(ENOMEM, "group");
    while (status == GYRE_SUCCESS && n_run > 0) {
        int n_wave = 0;
        int n_later = 0;
        memset(is_busy, 0, (size_t)caller->member->n_ranks * 2 * sizeof(*is_busy));
        for (int i = 0; i < n_run; i++) {
            bool *busy = &is_busy[run[i]->root * 2 + run[i]->is_send];
            if (!*busy)
                wave[n_wave++].call = run[i];
            else
                run[n_later++] = run[i];
            *busy = true;
        }
        n_run = n_later;
        status = launch_wave(caller, wave, n_wave, calls, stream);
    }
    free(is_busy);
    free(calls);
    free(wave);
    return status;
}

/* Launches a run of calls at once. Each call follows the one before it of the same peer and
 * direction, and waits for no other one. */
static gyre_status launch_queues(struct gyre_caller *caller, const struct gyre_call **run,
                                 int n_run, gyre_stream stream)
{
    uint32_t *follows = malloc((size_t)n_run * sizeof(*follows));
    uint32_t *latest = calloc((size_t)caller->member->n_ranks * 2, sizeof(*latest));
    gyre_status status = follows != NULL && latest != NULL
                             ? GYRE_SUCCESS
                             : gyre_fail_errno(ENOMEM, "group of %d sends and receives", n_run);
    for (int i = 0; i < n_run && status == GYRE_SUCCESS; i++) {
        uint32_t *before = &latest[run[i]->root * 2 + run[i]->is_send];
        follows[i] = *before;
        *before = (uint32_t)i + 1;
    }
    const struct gyre_together all = {run, n_run, follows, NULL};
    if (status == GYRE_SUCCESS)
        status = gyre_launch_together(caller, &all, stream);
    free(latest);
    free(follows);
    return status;
}

gyre_status gyre_launch_p2p(struct gyre_caller *caller, const struct gyre_call **run, int n_run,
                            gyre_stream stream)
{
    return caller->executor->ops->queues ? launch_queues(caller, run, n_run, stream)
                                         : launch_waves(caller, run, n_run, stream);
}
