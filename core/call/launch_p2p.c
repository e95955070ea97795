/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends and receives of a group: those of a rank with itself become one local copy, and the others
 * run at the same time as far as the order of each peer's calls allows.
 */
#include "core/call/launch_p2p.h"

#include "core/call/launch_together.h"
#include "core/call/wave.h"

#include <errno.h>
#include <stdlib.h>

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

gyre_status gyre_launch_join_self(struct gyre_pending *calls, size_t n_calls)
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

/* Launches a wave. @calls: room for n_wave calls. */
static gyre_status launch_wave(struct gyre_caller *caller, struct gyre_wave_call *wave, int n_wave,
                               const struct gyre_call **calls, gyre_stream stream)
{
    const struct gyre_member *member = caller->member;
    for (int i = 0; i < n_wave; i++)
        GYRE_TRY(gyre_plan_proto(caller->plans, wave[i].call, &wave[i].proto));
    const int n_first = gyre_wave_launches(wave, n_wave, member->rank, member->n_ranks, calls);
    GYRE_TRY(gyre_launch_together(caller, calls, n_first, stream, NULL));
    return n_first == n_wave
               ? GYRE_SUCCESS
               : gyre_launch_together(caller, calls + n_first, n_wave - n_first, stream, NULL);
}

gyre_status gyre_launch_p2p(struct gyre_caller *caller, const struct gyre_call **run, int n_run,
                            gyre_stream stream)
{
    const int n_ranks = caller->member->n_ranks;
    struct gyre_wave_call *wave = malloc((size_t)n_run * sizeof(*wave));
    const struct gyre_call **calls = malloc((size_t)n_run * sizeof(*calls));
    bool *is_busy = calloc((size_t)n_ranks * 2, sizeof(*is_busy));
    gyre_status status = wave != NULL && calls != NULL && is_busy != NULL
                             ? GYRE_SUCCESS
                             : gyre_fail_errno(ENOMEM, "group");
    while (status == GYRE_SUCCESS && n_run > 0) {
        const int n_wave = gyre_wave_take(run, &n_run, is_busy, n_ranks, wave);
        status = launch_wave(caller, wave, n_wave, calls, stream);
    }
    free(is_busy);
    free(calls);
    free(wave);
    return status;
}
