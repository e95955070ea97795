/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends and receives of a group: those of a rank with itself become one local copy, and the others
 * run at the same time as far as the order of each peer's calls allows.
 */
#include "core/call/launch_p2p.h"

#include "core/base/util.h"
#include "core/call/launch_together.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* Launches a wave: the calls of one protocol at the same time, and the protocols one after the
 * other. Both ends of a message choose the same protocol, by the size of the message and the kind
 * of the link between them. Short messages go first, because they may complete before their
 * receivers take them. */
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
            GYRE_TRY(gyre_launch_together(caller, part, n_part, stream, NULL));
        n_launched += n_part;
    }
    return n_launched == n_wave ? GYRE_SUCCESS
                                : gyre_fail(GYRE_ERROR_INTERNAL, "sends and receives by a protocol "
                                                                 "that does not copy");
}

gyre_status gyre_launch_p2p(struct gyre_caller *caller, const struct gyre_call **run, int n_run,
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
