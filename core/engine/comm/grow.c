/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a larger communicator out of a communicator and new ranks. The ranks of the parent agree on
 * the size and on the rendezvous over the parent's bootstrap. After that the growth is an init like
 * any other, in which the new ranks take part by gyre_comm_init_rank().
 */
#include "core/engine/comm/comm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The growth that a rank asks for. Ranks gather it, so its layout is fixed. */
struct grow_offer {
    int32_t status;
    int32_t n_ranks;
    int32_t has_id;
    gyre_unique_id id;
    char cause[256];
};

static gyre_status take_offers(const gyre_comm *parent, struct grow_offer *offers,
                               struct gyre_init_request *request)
{
    char name[GYRE_RANK_NAME_BYTES];
    int root = -1;
    for (int rank = 0; rank < parent->member.n_ranks; rank++) {
        struct grow_offer *offer = &offers[rank];
        offer->cause[sizeof(offer->cause) - 1] = '\0';
        if (offer->status != GYRE_SUCCESS)
            return gyre_fail(
                offer->status > 0 && offer->status < GYRE_IN_PROGRESS ? (gyre_status)offer->status
                                                                      : GYRE_ERROR_REMOTE,
                "%s of the parent: %s",
                gyre_rank_name(parent->origin, parent->links.infos, rank, name), offer->cause);
        if (offer->n_ranks != request->n_ranks)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "rank %d grows to %d ranks, this rank to %d ranks", rank,
                             offer->n_ranks, request->n_ranks);
        if (offer->has_id == 0)
            continue;
        if (root >= 0)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "ranks %d and %d both give a unique id; one rank gives it", root,
                             rank);
        root = rank;
    }
    if (root < 0)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "no rank gives a unique id; one rank gives it");
    request->id = offers[root].id;
    return GYRE_SUCCESS;
}

/* The new ranks wait in the rendezvous for the ranks of the parent, which will not come. Tell them
 * the cause. The size that this rank was given may be the cause, so the size here is the least that
 * is legal; the rendezvous does not compare it when a rank gives up. */
static void dismiss_new_ranks(const struct gyre_init_request *request)
{
    const struct gyre_bootstrap_place place = {request->parent->member.n_ranks + 1, request->rank,
                                               NULL};
    char cause[GYRE_CAUSE_MAX_BYTES];
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    gyre_bootstrap_tcp_give_up(&request->id, &place, cause);
    gyre_set_cause(cause);
}

static gyre_status find_grown(struct gyre_init_request *request, gyre_comm *child)
{
    (void)child; /* it needs no facts of its own yet */
    gyre_comm *parent = request->parent;
    struct grow_offer mine = {.status = (int32_t)request->failure,
                              .n_ranks = request->n_ranks,
                              .has_id = request->has_id,
                              .id = request->id};
    struct grow_offer *offers = calloc((size_t)parent->member.n_ranks, sizeof(*offers));
    if (offers == NULL) /* the other ranks wait for this one */
        return gyre_comm_give_up(parent, gyre_fail_errno(ENOMEM, "grow"));
    snprintf(mine.cause, sizeof(mine.cause), "%s", request->failure_text);
    gyre_status status = parent->member.bootstrap->ops->all_gather(parent->member.bootstrap, &mine,
                                                                   sizeof(mine), offers);
    if (status == GYRE_SUCCESS)
        status = take_offers(parent, offers, request);
    else
        status = gyre_comm_blame_parent(parent, status);
    free(offers);
    if (status == GYRE_SUCCESS)
        return status;
    gyre_fail_context(status, "grow of %s from %d to %d ranks", parent->member.name,
                      parent->member.n_ranks, request->n_ranks);
    if (request->has_id)
        dismiss_new_ranks(request);
    return status;
}

static gyre_status check_grow(gyre_comm *comm, int n_ranks, gyre_comm **comm_out,
                              const gyre_config *config, gyre_config *config_out)
{
    if (comm_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "grow: comm_out is NULL");
    if (n_ranks <= comm->member.n_ranks || n_ranks > GYRE_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "grow: n_ranks is %d, legal is %d..%d",
                         n_ranks, comm->member.n_ranks + 1, GYRE_MAX_RANKS);
    return gyre_comm_child_config(comm, config, config_out);
}

static gyre_status grow(gyre_comm *comm, int n_ranks, const gyre_unique_id *id,
                        gyre_comm **comm_out, const gyre_config *config)
{
    gyre_config own;
    struct gyre_init_request request = {.find = find_grown,
                                        .parent = comm,
                                        .n_ranks = n_ranks,
                                        .rank = comm->member.rank,
                                        .has_id = id != NULL,
                                        .takes_failures = true};
    if (id != NULL)
        request.id = *id;
    const gyre_status status = check_grow(comm, n_ranks, comm_out, config, &own);
    if (status != GYRE_SUCCESS)
        return gyre_comm_refuse(&request, status);
    return gyre_comm_make(&own, &request, comm_out);
}

gyre_status gyre_comm_grow(gyre_comm *comm, int n_ranks, const gyre_unique_id *id,
                           gyre_comm **comm_out, const gyre_config *config)
{
    GYRE_TRY(gyre_comm_begin_call(comm));
    const gyre_status status = grow(comm, n_ranks, id, comm_out, config);
    gyre_comm_end_call(comm);
    return status;
}
