/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes communicators out of a communicator's ranks. A split is collective, and its ranks use the
 * parent's bootstrap. A shrink needs neither the excluded ranks nor the parent's bootstrap, which
 * may have died with them: the remaining ranks connect to the regroup listener of the lowest
 * remaining rank.
 */
#include "core/engine/comm/comm.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PARENT_WORD_NS 200000000ULL /* how long the parent's links may take to name a dead rank */

gyre_status gyre_comm_child_config(const gyre_comm *parent, const gyre_config *given,
                                   gyre_config *config_out)
{
    if (given == NULL) {
        *config_out = parent->member.config;
        return GYRE_SUCCESS;
    }
    GYRE_TRY(gyre_config_take(given, config_out));
    if (config_out->device_kind == GYRE_DEVICE_AUTO)
        config_out->device_kind = parent->member.config.device_kind;
    if (config_out->device_ordinal == GYRE_CONFIG_UNDEFINED)
        config_out->device_ordinal = parent->member.config.device_ordinal;
    return GYRE_SUCCESS;
}

/* From now on the parent's links report events that concern the child. @parent_ranks: by rank of
 * the child. Errors: the parent's fault, OUT_OF_MEMORY. */
static gyre_status open_origin(const struct gyre_init_request *request, gyre_comm *child,
                               enum gyre_origin_kind kind, const int *parent_ranks)
{
    const gyre_comm *parent = request->parent;
    const struct gyre_origin_config config = {
        .kind = kind,
        .infos = parent->links.infos,
        .parent_ranks = parent_ranks,
        .n_ranks = request->n_ranks,
        .fault = &child->member.fault,
    };
    GYRE_TRY(gyre_origin_open(&config, &child->origin));
    gyre_health_watch_child(parent->health, child->origin);
    return gyre_fault_status(&child->member.fault);
}

/* ---- split -------------------------------------------------------------------------------- */

/* The color and key that a rank gives to a split. Ranks gather it, so its layout is fixed. */
struct split_place {
    int32_t color;
    int32_t key;
};

/* The rendezvous that the first rank of each color makes, or the reason why it cannot. Gathered
 * after the colors. */
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

/* The ranks of the parent that have the color of `rank`, in their order. Returns how many.
 * @members_out: room for all. */
static int find_members(const struct split_place *all, int n_ranks, int rank,
                        struct split_member *members_out)
{
    int n = 0;
    for (int other = 0; other < n_ranks; other++)
        if (all[other].color == all[rank].color)
            members_out[n++] = (struct split_member){all[other].key, other};
    qsort(members_out, (size_t)n, sizeof(*members_out), compare_members);
    return n;
}

/* Gathers the rendezvous of each color. If this rank is the first of its color, it makes that
 * rendezvous. */
static gyre_status gather_offers(const struct gyre_init_request *request, bool is_first,
                                 struct split_offer *offers)
{
    gyre_comm *parent = request->parent;
    struct split_offer mine = {.status = (int32_t)request->failure};
    if (is_first && mine.status == GYRE_SUCCESS)
        mine.status = (int32_t)gyre_unique_id_create(&parent->member.params, &mine.id);
    if (mine.status != GYRE_SUCCESS)
        snprintf(mine.cause, sizeof(mine.cause), "%s",
                 request->failure != GYRE_SUCCESS ? request->failure_text : gyre_cause());
    return parent->member.bootstrap->ops->all_gather(parent->member.bootstrap, &mine, sizeof(mine),
                                                     offers);
}

/* Takes the first member's rendezvous. Fails if a member cannot take part. */
static gyre_status take_offer(const gyre_comm *parent, const int *parent_ranks, int n_ranks,
                              struct split_offer *offers, gyre_unique_id *id_out)
{
    char name[GYRE_RANK_NAME_BYTES];
    for (int i = 0; i < n_ranks; i++) {
        struct split_offer *offer = &offers[parent_ranks[i]];
        offer->cause[sizeof(offer->cause) - 1] = '\0';
        if (offer->status != GYRE_SUCCESS)
            return gyre_fail(
                offer->status > 0 && offer->status < GYRE_IN_PROGRESS ? (gyre_status)offer->status
                                                                      : GYRE_ERROR_REMOTE,
                "%s of the parent: %s",
                gyre_rank_name(parent->origin, parent->links.infos, parent_ranks[i], name),
                offer->cause);
    }
    *id_out = offers[parent_ranks[0]].id;
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_blame_parent(gyre_comm *parent, gyre_status status)
{
    const struct timespec nap = {0, 1000000};
    const uint64_t deadline_ns = gyre_now_ns() + PARENT_WORD_NS;
    while (status == GYRE_ERROR_REMOTE && !gyre_fault_is_raised(&parent->member.fault) &&
           gyre_now_ns() < deadline_ns)
        nanosleep(&nap, NULL);
    GYRE_TRY(gyre_fault_status(&parent->member.fault));
    return status;
}

/* What the ranks of the parent gather, with room for all of them. */
struct split_tables {
    struct split_place *places;
    struct split_member *members;
    int *parent_ranks; /* by rank of the child */
    struct split_offer *offers;
};

static gyre_status gather_split(struct gyre_init_request *request, gyre_comm *child,
                                const struct split_tables *tables)
{
    gyre_comm *parent = request->parent;
    const struct split_place mine = {.color = request->color, .key = request->key};
    GYRE_TRY(parent->member.bootstrap->ops->all_gather(parent->member.bootstrap, &mine,
                                                       sizeof(mine), tables->places));
    request->n_ranks =
        find_members(tables->places, parent->member.n_ranks, parent->member.rank, tables->members);
    for (int rank = 0; rank < request->n_ranks; rank++) {
        tables->parent_ranks[rank] = tables->members[rank].rank;
        if (tables->members[rank].rank == parent->member.rank)
            request->rank = rank;
    }
    GYRE_TRY(gather_offers(request, child != NULL && request->rank == 0, tables->offers));
    if (child == NULL)
        return GYRE_SUCCESS;
    GYRE_TRY(
        take_offer(parent, tables->parent_ranks, request->n_ranks, tables->offers, &request->id));
    return open_origin(request, child, GYRE_ORIGIN_SPLIT, tables->parent_ranks);
}

static gyre_status find_split(struct gyre_init_request *request, gyre_comm *child)
{
    gyre_comm *parent = request->parent;
    const size_t n = (size_t)parent->member.n_ranks;
    const struct split_tables tables = {
        malloc(n * sizeof(*tables.places)), malloc(n * sizeof(*tables.members)),
        malloc(n * sizeof(*tables.parent_ranks)), malloc(n * sizeof(*tables.offers))};
    gyre_status status;
    if (tables.places == NULL || tables.members == NULL || tables.parent_ranks == NULL ||
        tables.offers == NULL) /* the other ranks wait for this one */
        status = gyre_comm_give_up(parent, gyre_fail_errno(ENOMEM, "split"));
    else
        status = gather_split(request, child, &tables);
    free(tables.places);
    free(tables.members);
    free(tables.parent_ranks);
    free(tables.offers);
    if (status == GYRE_SUCCESS)
        return status;
    char cause[GYRE_CAUSE_MAX_BYTES];
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    GYRE_TRY(gyre_comm_blame_parent(parent, status));
    gyre_set_cause(cause);
    return gyre_fail_context(status, "split(color %d, key %d)", request->color, request->key);
}

static gyre_status check_split(const gyre_comm *comm, int color, gyre_comm **comm_out,
                               const gyre_config *config, gyre_config *config_out)
{
    if (comm_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "split: comm_out is NULL");
    if (color < 0 && color != GYRE_SPLIT_NOCOLOR)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "split: color %d is neither >= 0 nor GYRE_SPLIT_NOCOLOR", color);
    return gyre_comm_child_config(comm, config, config_out);
}

static gyre_status split(gyre_comm *comm, int color, int key, gyre_comm **comm_out,
                         const gyre_config *config)
{
    gyre_config own;
    const gyre_status status = check_split(comm, color, comm_out, config, &own);
    const struct gyre_init_request request = {
        .find = find_split, .parent = comm, .color = color, .key = key, .takes_failures = true};
    if (status != GYRE_SUCCESS)
        return gyre_comm_refuse(&request, status);
    if (color != GYRE_SPLIT_NOCOLOR)
        return gyre_comm_make(&own, &request, comm_out);
    *comm_out = NULL;
    return gyre_comm_make(&own, &request, NULL);
}

gyre_status gyre_comm_split(gyre_comm *comm, int color, int key, gyre_comm **comm_out,
                            const gyre_config *config)
{
    GYRE_TRY(gyre_comm_begin_call(comm));
    const gyre_status status = split(comm, color, key, comm_out, config);
    gyre_comm_end_call(comm);
    return status;
}

/* ---- shrink ------------------------------------------------------------------------------- */

struct shrink_watch {
    gyre_comm *parent;
    gyre_comm *child; /* NULL: this rank cannot take part, and only tells the others so */
    bool is_aborted;  /* the parent has failed already, so only the child's fault counts */
};

/* May the wait for the other members go on? */
static gyre_status check_shrink(void *context, const bool *missing)
{
    const struct shrink_watch *watch = context;
    if (watch->child != NULL)
        GYRE_TRY(gyre_fault_status(&watch->child->member.fault));
    if (!watch->is_aborted)
        GYRE_TRY(gyre_fault_status(&watch->parent->member.fault));
    for (int rank = 0; missing != NULL && rank < watch->parent->member.n_ranks; rank++)
        if (missing[rank] && gyre_health_has_left(watch->parent->health, rank))
            return gyre_fail(GYRE_ERROR_REMOTE,
                             "rank %d (%s) has died or left too: exclude it as well", rank,
                             watch->parent->links.infos[rank].host_name);
    return GYRE_SUCCESS;
}

/* From now on the parent's links, as far as they still exist, report the death of a member. */
static gyre_status open_shrunk(const struct gyre_init_request *request, gyre_comm *child)
{
    gyre_comm *parent = request->parent;
    int *parent_ranks = malloc((size_t)request->n_ranks * sizeof(*parent_ranks));
    if (parent_ranks == NULL)
        return gyre_fail_errno(ENOMEM, "shrink");
    int n = 0;
    for (int rank = 0; rank < parent->member.n_ranks; rank++)
        if (request->is_member[rank])
            parent_ranks[n++] = rank;
    const gyre_status status = open_origin(request, child, GYRE_ORIGIN_SHRUNK, parent_ranks);
    free(parent_ranks);
    return status;
}

static gyre_status find_shrunk(struct gyre_init_request *request, gyre_comm *child)
{
    gyre_comm *parent = request->parent;
    struct shrink_watch watch = {parent, child, request->is_aborted};
    char name[GYRE_RANK_NAME_BYTES];
    char failure_text[GYRE_RANK_NAME_BYTES + sizeof(request->failure_text) + 32];
    snprintf(failure_text, sizeof(failure_text), "%s of the parent: %s",
             gyre_rank_name(parent->origin, parent->links.infos, parent->member.rank, name),
             request->failure_text);
    const struct gyre_regroup regroup = {
        .params = &parent->member.params,
        .secret = parent->member.bootstrap->secret,
        .rank = parent->member.rank,
        .n_ranks = parent->member.n_ranks,
        .is_member = request->is_member,
        .may_lose_ranks = request->is_aborted,
        .check = check_shrink,
        .context = &watch,
        .failure = request->failure,
        .failure_text = failure_text,
    };
    int lowest = -1;
    for (int rank = 0; rank < parent->member.n_ranks; rank++) {
        if (!request->is_member[rank])
            continue;
        if (lowest < 0)
            lowest = rank;
        if (rank == parent->member.rank)
            request->rank = request->n_ranks;
        request->n_ranks++;
    }
    const struct gyre_sock_list *addresses = &parent->links.infos[lowest].regroup_addresses;
    gyre_status status;
    if (request->n_ranks == 1) /* there is no other rank to connect to */
        status = gyre_unique_id_create(&parent->member.params, &request->id);
    else if (lowest == parent->member.rank && parent->links.regroup_listener != NULL)
        status = gyre_regroup_serve(parent->links.regroup_listener, &regroup, &request->id);
    else if (lowest != parent->member.rank && addresses->network != 0)
        status = gyre_regroup_join(addresses, &regroup, &request->id);
    else
        status = gyre_fail(GYRE_ERROR_UNSUPPORTED,
                           "rank %d found no network interface to be met at when the parent was "
                           "made",
                           lowest);
    if (status == GYRE_SUCCESS && child != NULL)
        status = open_shrunk(request, child);
    if (status != GYRE_SUCCESS)
        gyre_fail_context(status, "shrink of %s to %d of %d ranks, led by rank %d (%s)",
                          parent->member.name, request->n_ranks, parent->member.n_ranks, lowest,
                          parent->links.infos[lowest].host_name);
    return status;
}

static gyre_status take_excluded(const gyre_comm *comm, const int *ranks, int n_excluded,
                                 bool *is_member_out)
{
    if (n_excluded < 0 || (n_excluded > 0 && ranks == NULL))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "shrink: no list of excluded ranks");
    for (int rank = 0; rank < comm->member.n_ranks; rank++)
        is_member_out[rank] = true;
    for (int i = 0; i < n_excluded; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->member.n_ranks)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "shrink: excluded rank %d is not a rank of 0..%d", ranks[i],
                             comm->member.n_ranks - 1);
        if (ranks[i] == comm->member.rank)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "shrink: rank %d excludes itself; excluded ranks do not call it",
                             comm->member.rank);
        is_member_out[ranks[i]] = false;
    }
    return GYRE_SUCCESS;
}

/* The arguments that the other members need not know to hear from this rank. */
static gyre_status check_shrink_arguments(const gyre_comm *comm, int flags, gyre_comm **comm_out,
                                          const gyre_config *config, gyre_config *config_out)
{
    if (comm_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "shrink: comm_out is NULL");
    if (flags != GYRE_SHRINK_DEFAULT && flags != GYRE_SHRINK_ABORT)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "shrink: unknown flags 0x%x", flags);
    return gyre_comm_child_config(comm, config, config_out);
}

/* Without a legal list of excluded ranks this rank cannot know which ranks wait for it. With one,
 * it tells them what is wrong with its other arguments. */
static gyre_status shrink(gyre_comm *comm, const int *excluded_ranks, int n_excluded, int flags,
                          gyre_comm **comm_out, const gyre_config *config)
{
    gyre_config own;
    struct gyre_init_request request = {.find = find_shrunk,
                                        .parent = comm,
                                        .is_aborted = flags == GYRE_SHRINK_ABORT,
                                        .takes_failures = true};
    if (flags == GYRE_SHRINK_DEFAULT && gyre_comm_check(comm) != GYRE_SUCCESS)
        return gyre_fail_context(GYRE_ERROR_INVALID_USAGE,
                                 "shrink: only GYRE_SHRINK_ABORT takes a communicator that failed "
                                 "or was finalized");
    request.is_member = malloc((size_t)comm->member.n_ranks * sizeof(bool));
    if (request.is_member == NULL)
        return gyre_fail_errno(ENOMEM, "shrink");
    gyre_status status = take_excluded(comm, excluded_ranks, n_excluded, request.is_member);
    if (status != GYRE_SUCCESS) {
        free(request.is_member);
        return status;
    }
    status = check_shrink_arguments(comm, flags, comm_out, config, &own);
    if (status == GYRE_SUCCESS && flags == GYRE_SHRINK_ABORT)
        status = gyre_comm_abort(comm);
    if (status != GYRE_SUCCESS)
        return gyre_comm_refuse(&request, status);
    return gyre_comm_make(&own, &request, comm_out);
}

gyre_status gyre_comm_shrink(gyre_comm *comm, const int *excluded_ranks, int n_excluded, int flags,
                             gyre_comm **comm_out, const gyre_config *config)
{
    /* A shrink does not count as a call, because a call of another thread may wait for the ranks
     * that are to be excluded. */
    GYRE_TRY(gyre_comm_pin_made(comm));
    const gyre_status status = shrink(comm, excluded_ranks, n_excluded, flags, comm_out, config);
    gyre_comm_unpin(comm);
    return status;
}
