/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits and growths are collective and use the parent's bootstrap. A growth is then an init in
 * which the new ranks take part by gyre_comm_init_rank().
 */
#include "core/engine/comm/parts.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PARENT_WORD_NS 200000000ULL /* for the parent's links to name a dead rank */

gyre_status gyre_comm_child_config(const gyre_comm *parent, const gyre_config *given,
                                   gyre_config *config_out)
{
    if (given == NULL) {
        *config_out = parent->self.config;
        return GYRE_SUCCESS;
    }
    GYRE_TRY(gyre_config_take(given, config_out));
    if (config_out->device_kind == GYRE_DEVICE_AUTO)
        config_out->device_kind = parent->self.config.device_kind;
    if (config_out->device_ordinal == GYRE_CONFIG_UNDEFINED)
        config_out->device_ordinal = parent->self.config.device_ordinal;
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_open_origin(const struct gyre_init_request *request, gyre_comm *child,
                                  enum gyre_origin_kind kind, const int *parent_ranks)
{
    const gyre_comm *parent = request->parent;
    const struct gyre_origin_config config = {
        .kind = kind,
        .infos = parent->links.infos,
        .parent_ranks = parent_ranks,
        .n_ranks = request->n_ranks,
        .fault = &child->self.fault,
    };
    GYRE_TRY(gyre_origin_open(&config, &child->origin));
    gyre_health_watch_child(parent->health, child->origin);
    return gyre_fault_status(&child->self.fault);
}

static gyre_status fail_of_rank(const gyre_comm *parent, int rank, int32_t status,
                                const char *cause)
{
    char name[GYRE_RANK_NAME_BYTES];
    return gyre_fail(status > 0 && status < GYRE_IN_PROGRESS ? (gyre_status)status
                                                             : GYRE_ERROR_REMOTE,
                     "%s of the parent: %s",
                     gyre_rank_name(parent->origin, parent->links.infos, rank, name), cause);
}

/* Gathered: fixed layout. */
struct split_place {
    int32_t color;
    int32_t key;
};

/* A color's rendezvous, or why its first rank cannot make it. Gathered after the colors: fixed
 * layout. */
struct split_offer {
    int32_t status;
    gyre_unique_id id;
    char cause[256];
};

struct split_member {
    int32_t key;
    int rank; /* of the parent */
};

static int compare_members(const void *a, const void *b)
{
    const struct split_member *first = a;
    const struct split_member *second = b;
    if (first->key != second->key)
        return first->key < second->key ? -1 : 1;
    return first->rank < second->rank ? -1 : 1;
}

/* A fault of the parent says more than an all-gather's error, so it waits a moment for one. */
static gyre_status blame_parent(gyre_comm *parent, gyre_status status)
{
    const struct timespec nap = {0, 1000000};
    const uint64_t deadline_ns = gyre_now_ns() + PARENT_WORD_NS;
    while (status == GYRE_ERROR_REMOTE && !gyre_fault_is_raised(&parent->self.fault) &&
           gyre_now_ns() < deadline_ns)
        nanosleep(&nap, NULL);
    GYRE_TRY(gyre_fault_status(&parent->self.fault));
    return status;
}

static gyre_status gather_split(struct gyre_init_request *request, gyre_comm *child)
{
    gyre_comm *parent = request->parent;
    const size_t n_parents = (size_t)parent->self.n_ranks;
    GYRE_FREED struct split_place *places = malloc(n_parents * sizeof(*places));
    GYRE_FREED struct split_member *members = malloc(n_parents * sizeof(*members));
    GYRE_FREED struct split_offer *offers = malloc(n_parents * sizeof(*offers));
    GYRE_FREED int *parent_ranks = malloc(n_parents * sizeof(*parent_ranks));
    if (places == NULL || members == NULL || offers == NULL || parent_ranks == NULL)
        /* the other ranks wait for this one */
        return gyre_comm_give_up(parent, gyre_fail_errno(ENOMEM, "split"));
    const struct split_place mine = {.color = request->color, .key = request->key};
    GYRE_TRY(gyre_rank_gather(&parent->self, &mine, sizeof(mine), places));
    int n = 0;
    for (int other = 0; other < parent->self.n_ranks; other++)
        if (places[other].color == places[parent->self.rank].color)
            members[n++] = (struct split_member){places[other].key, other};
    qsort(members, (size_t)n, sizeof(*members), compare_members);
    request->n_ranks = n;
    for (int rank = 0; rank < request->n_ranks; rank++) {
        parent_ranks[rank] = members[rank].rank;
        if (members[rank].rank == parent->self.rank)
            request->rank = rank;
    }
    struct split_offer offer = {.status = (int32_t)request->failure};
    if (child != NULL && request->rank == 0 && offer.status == GYRE_SUCCESS)
        offer.status = (int32_t)gyre_unique_id_create(&parent->self.params, &offer.id);
    if (offer.status != GYRE_SUCCESS)
        snprintf(offer.cause, sizeof(offer.cause), "%s",
                 request->failure != GYRE_SUCCESS ? request->failure_text : gyre_cause());
    GYRE_TRY(gyre_rank_gather(&parent->self, &offer, sizeof(offer), offers));
    if (child == NULL)
        return GYRE_SUCCESS;
    for (int i = 0; i < request->n_ranks; i++) {
        struct split_offer *theirs = &offers[parent_ranks[i]];
        theirs->cause[sizeof(theirs->cause) - 1] = '\0';
        if (theirs->status != GYRE_SUCCESS)
            return fail_of_rank(parent, parent_ranks[i], theirs->status, theirs->cause);
    }
    request->id = offers[parent_ranks[0]].id;
    return gyre_comm_open_origin(request, child, GYRE_ORIGIN_SPLIT, parent_ranks);
}

static gyre_status find_split(struct gyre_init_request *request, gyre_comm *child)
{
    gyre_comm *parent = request->parent;
    const gyre_status status = gather_split(request, child);
    if (status == GYRE_SUCCESS)
        return status;
    char cause[GYRE_CAUSE_MAX_BYTES];
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    GYRE_TRY(blame_parent(parent, status));
    gyre_set_cause(cause);
    return gyre_fail_context(status, "split(color %d, key %d)", request->color, request->key);
}

gyre_status gyre_comm_split(gyre_comm *comm, int color, int key, gyre_comm **comm_out,
                            const gyre_config *config)
{
    gyre_config own;
    gyre_status status;
    const struct gyre_init_request request = {
        .find = find_split, .parent = comm, .color = color, .key = key, .takes_failures = true};
    GYRE_IN_CALL(comm);
    if (comm_out == NULL)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "split: comm_out is NULL");
    else if (color < 0 && color != GYRE_SPLIT_NOCOLOR)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                           "split: color %d is neither >= 0 nor GYRE_SPLIT_NOCOLOR", color);
    else
        status = gyre_comm_child_config(comm, config, &own);
    if (status != GYRE_SUCCESS)
        return gyre_comm_refuse(&comm->self.config, &request, status);
    if (color != GYRE_SPLIT_NOCOLOR)
        return gyre_comm_make(&own, &request, comm_out);
    *comm_out = NULL;
    return gyre_comm_make(&own, &request, NULL);
}

/* Gathered: fixed layout. */
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
    int root = -1;
    for (int rank = 0; rank < parent->self.n_ranks; rank++) {
        struct grow_offer *offer = &offers[rank];
        offer->cause[sizeof(offer->cause) - 1] = '\0';
        if (offer->status != GYRE_SUCCESS)
            return fail_of_rank(parent, rank, offer->status, offer->cause);
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

static gyre_status find_grown(struct gyre_init_request *request, gyre_comm *child)
{
    (void)child; /* it needs no facts of its own yet */
    gyre_comm *parent = request->parent;
    struct grow_offer mine = {.status = (int32_t)request->failure,
                              .n_ranks = request->n_ranks,
                              .has_id = request->has_id,
                              .id = request->id};
    GYRE_FREED struct grow_offer *offers = calloc((size_t)parent->self.n_ranks, sizeof(*offers));
    if (offers == NULL) /* the other ranks wait for this one */
        return gyre_comm_give_up(parent, gyre_fail_errno(ENOMEM, "grow"));
    snprintf(mine.cause, sizeof(mine.cause), "%s", request->failure_text);
    gyre_status status = gyre_rank_gather(&parent->self, &mine, sizeof(mine), offers);
    if (status == GYRE_SUCCESS)
        status = take_offers(parent, offers, request);
    else
        status = blame_parent(parent, status);
    if (status == GYRE_SUCCESS)
        return status;
    gyre_fail_context(status, "grow of %s from %d to %d ranks", parent->self.name,
                      parent->self.n_ranks, request->n_ranks);
    if (request->has_id) {
        /* The new ranks wait for the parent's, which will not come. This rank's size may be wrong,
         * but the rendezvous does not compare it when a rank gives up, so the least legal one
         * stands here. */
        const struct gyre_bootstrap_place place = {request->parent->self.n_ranks + 1, request->rank,
                                                   NULL};
        char cause[GYRE_CAUSE_MAX_BYTES];
        snprintf(cause, sizeof(cause), "%s", gyre_cause());
        gyre_bootstrap_tcp_give_up(&request->id, &place, cause);
        gyre_set_cause(cause);
    }
    return status;
}

gyre_status gyre_comm_grow(gyre_comm *comm, int n_ranks, const gyre_unique_id *id,
                           gyre_comm **comm_out, const gyre_config *config)
{
    GYRE_IN_CALL(comm);
    gyre_config own;
    gyre_status status;
    struct gyre_init_request request = {.find = find_grown,
                                        .parent = comm,
                                        .n_ranks = n_ranks,
                                        .rank = comm->self.rank,
                                        .has_id = id != NULL,
                                        .takes_failures = true};
    if (id != NULL)
        request.id = *id;
    if (comm_out == NULL)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "grow: comm_out is NULL");
    else if (n_ranks <= comm->self.n_ranks || n_ranks > GYRE_MAX_RANKS)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "grow: n_ranks is %d, legal is %d..%d",
                           n_ranks, comm->self.n_ranks + 1, GYRE_MAX_RANKS);
    else
        status = gyre_comm_child_config(comm, config, &own);
    return status == GYRE_SUCCESS ? gyre_comm_make(&own, &request, comm_out)
                                  : gyre_comm_refuse(&comm->self.config, &request, status);
}
