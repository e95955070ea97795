/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends and receives of a group: those of a rank with itself become one local copy, and the others
 * run at the same time as far as the order of each peer's calls and the executor allow.
 */
#include "core/engine/call/launch_p2p.h"

#include "core/engine/call/launch_together.h"
#include "core/engine/call/wave.h"

#include <errno.h>
#include <stdlib.h>

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

/* Room for the calls of a run. */
struct room {
    struct gyre_wave_call *wave;
    const struct gyre_call **calls;
    int *ends;
    bool *is_busy;
};

static gyre_status launch_wave(struct gyre_caller *caller, const struct room *room, int n_wave,
                               gyre_stream stream)
{
    const struct gyre_wave_place place = {caller->member->rank, caller->member->n_ranks,
                                          caller->links->least_sms};
    for (int i = 0; i < n_wave; i++) {
        const struct gyre_plan *plan;
        GYRE_TRY(gyre_plan_get(caller->plans, room->wave[i].call, &plan));
        room->wave[i].proto = plan->choice.proto;
    }
    const int n_launches = gyre_wave_launches(room->wave, n_wave, &place, room->calls, room->ends);
    for (int i = 0; i < n_launches; i++) {
        const int first = i > 0 ? room->ends[i - 1] : 0;
        const struct gyre_together launch = {.calls = &room->calls[first],
                                             .n_calls = room->ends[i] - first};
        GYRE_TRY(gyre_launch_together(caller, &launch, stream));
    }
    return GYRE_SUCCESS;
}

/* Launches a run of calls in waves, one after the other. */
static gyre_status launch_waves(struct gyre_caller *caller, const struct gyre_call **run, int n_run,
                                gyre_stream stream)
{
    const int n_ranks = caller->member->n_ranks;
    const struct room room = {.wave = malloc((size_t)n_run * sizeof(*room.wave)),
                              .calls = malloc((size_t)n_run * sizeof(*room.calls)),
                              .ends = malloc((size_t)n_run * sizeof(*room.ends)),
                              .is_busy = malloc((size_t)n_ranks * 2 * sizeof(*room.is_busy))};
    gyre_status status =
        room.wave != NULL && room.calls != NULL && room.ends != NULL && room.is_busy != NULL
            ? GYRE_SUCCESS
            : gyre_fail_errno(ENOMEM, "group");
    while (status == GYRE_SUCCESS && n_run > 0) {
        const int n_wave = gyre_wave_take(run, &n_run, room.is_busy, n_ranks, room.wave);
        status = launch_wave(caller, &room, n_wave, stream);
    }
    free(room.is_busy);
    free(room.ends);
    free(room.calls);
    free(room.wave);
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
