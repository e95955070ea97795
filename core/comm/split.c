/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators out of a communicator's ranks. A split is collective: its ranks tell each other
 * through the parent's bootstrap. A shrink goes without the excluded ranks, and without a bootstrap
 * that may have died with them: those that go on find each other at the lowest one's door.
 */
#include "core/comm/comm.h"

#include "core/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PARENT_WORD_NS 200000000ULL /* for the parent's links to tell who died */

/* The caller's configuration, or the parent's; on the parent's device unless it says otherwise. */
static gyre_status child_config(const gyre_comm *parent, const gyre_config *given,
                                gyre_config *config_out)
{
    if (given == NULL) {
        *config_out = parent->config;
        return GYRE_SUCCESS;
    }
    GYRE_TRY(gyre_config_take(given, config_out));
    if (config_out->device_kind == GYRE_DEVICE_AUTO)
        config_out->device_kind = parent->config.device_kind;
    if (config_out->device_ordinal == GYRE_CONFIG_UNDEFINED)
        config_out->device_ordinal = parent->config.device_ordinal;
    return GYRE_SUCCESS;
}

/* ---- split -------------------------------------------------------------------------------- */

/* What a rank says of its place after a split. Exchanged: fixed layout. */
struct split_place {
    int32_t color;
    int32_t key;
};

/* Then the first of each color makes a rendezvous, or says why it cannot. Exchanged likewise. */
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

/* The rendezvous of each color, of which this rank makes its own's if it comes first. */
static gyre_status gather_offers(const struct gyre_meeting *meeting, bool is_first,
                                 struct split_offer *offers)
{
    gyre_comm *parent = meeting->parent;
    struct split_offer mine = {.status = (int32_t)meeting->failure};
    if (is_first && mine.status == GYRE_SUCCESS)
        mine.status = (int32_t)gyre_unique_id_create(&parent->params, &mine.id);
    if (mine.status != GYRE_SUCCESS)
        snprintf(mine.cause, sizeof(mine.cause), "%s",
                 meeting->failure != GYRE_SUCCESS ? meeting->failure_text : gyre_cause());
    return parent->bootstrap->ops->all_gather(parent->bootstrap, &mine, sizeof(mine), offers);
}

/* The first member's rendezvous, unless a member cannot take part. */
static gyre_status take_offer(const gyre_comm *parent, const int *parent_ranks, int n_ranks,
                              struct split_offer *offers, gyre_unique_id *id_out)
{
    char name[GYRE_RANK_NAME_BYTES];
    for (int i = 0; i < n_ranks; i++) {
        struct split_offer *offer = &offers[parent_ranks[i]];
        offer->cause[sizeof(offer->cause) - 1] = '\0';
        if (offer->status != GYRE_SUCCESS)
            return gyre_fail(offer->status > 0 && offer->status < GYRE_IN_PROGRESS
                                 ? (gyre_status)offer->status
                                 : GYRE_ERROR_REMOTE,
                             "%s of the parent: %s", gyre_rank_name(parent, parent_ranks[i], name),
                             offer->cause);
    }
    *id_out = offers[parent_ranks[0]].id;
    return GYRE_SUCCESS;
}

/* What ended the parent, if it did, says more than what the exchange ended with; it may be on its
 * way. */
static gyre_status blame_parent(gyre_comm *parent, gyre_status status)
{
    const struct timespec nap = {0, 1000000};
    const uint64_t deadline_ns = gyre_now_ns() + PARENT_WORD_NS;
    while (status == GYRE_ERROR_REMOTE && !gyre_fault_is_raised(&parent->fault) &&
           gyre_now_ns() < deadline_ns)
        nanosleep(&nap, NULL);
    GYRE_TRY(gyre_fault_status(&parent->fault));
    return status;
}

/* What the ranks tell each other; room for all ranks of the parent. */
struct split_tables {
    struct split_place *places;
    struct split_member *members;
    int *parent_ranks; /* by rank of the child */
    struct split_offer *offers;
};

static gyre_status exchange_split(struct gyre_meeting *meeting, gyre_comm *child,
                                  const struct split_tables *tables)
{
    gyre_comm *parent = meeting->parent;
    const struct split_place mine = {.color = meeting->color, .key = meeting->key};
    GYRE_TRY(
        parent->bootstrap->ops->all_gather(parent->bootstrap, &mine, sizeof(mine), tables->places));
    meeting->n_ranks = find_members(tables->places, parent->n_ranks, parent->rank, tables->members);
    for (int rank = 0; rank < meeting->n_ranks; rank++) {
        tables->parent_ranks[rank] = tables->members[rank].rank;
        if (tables->members[rank].rank == parent->rank)
            meeting->rank = rank;
    }
    GYRE_TRY(gather_offers(meeting, child != NULL && meeting->rank == 0, tables->offers));
    if (child == NULL)
        return GYRE_SUCCESS;
    GYRE_TRY(
        take_offer(parent, tables->parent_ranks, meeting->n_ranks, tables->offers, &meeting->id));
    return gyre_origin_open(parent, child, GYRE_ORIGIN_SPLIT, tables->parent_ranks,
                            meeting->n_ranks);
}

static gyre_status find_split(struct gyre_meeting *meeting, gyre_comm *child)
{
    gyre_comm *parent = meeting->parent;
    const size_t n = (size_t)parent->n_ranks;
    const struct split_tables tables = {
        malloc(n * sizeof(*tables.places)), malloc(n * sizeof(*tables.members)),
        malloc(n * sizeof(*tables.parent_ranks)), malloc(n * sizeof(*tables.offers))};
    gyre_status status;
    if (tables.places == NULL || tables.members == NULL || tables.parent_ranks == NULL ||
        tables.offers == NULL) /* the others wait */
        status = gyre_comm_give_up(parent, gyre_fail_errno(ENOMEM, "split"));
    else
        status = exchange_split(meeting, child, &tables);
    free(tables.places);
    free(tables.members);
    free(tables.parent_ranks);
    free(tables.offers);
    if (status == GYRE_SUCCESS)
        return status;
    char cause[GYRE_CAUSE_MAX_BYTES];
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    GYRE_TRY(blame_parent(parent, status));
    gyre_set_cause(cause);
    return gyre_fail_context(status, "split(color %d, key %d)", meeting->color, meeting->key);
}

static gyre_status split(gyre_comm *comm, int color, int key, gyre_comm **comm_out,
                         const gyre_config *config)
{
    gyre_config own;
    if (comm_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "split: comm_out is NULL");
    if (color < 0 && color != GYRE_SPLIT_NOCOLOR)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "split: color %d is neither >= 0 nor GYRE_SPLIT_NOCOLOR", color);
    GYRE_TRY(child_config(comm, config, &own));
    const struct gyre_meeting meeting = {
        .find = find_split, .parent = comm, .color = color, .key = key, .takes_failures = true};
    if (color != GYRE_SPLIT_NOCOLOR)
        return gyre_comm_make(&own, &meeting, comm_out);
    *comm_out = NULL;
    return gyre_comm_make(&own, &meeting, NULL);
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
    gyre_comm *child;
    bool is_aborted; /* the parent is in error already: only the child's fault counts */
};

/* May the wait for the others go on? */
static gyre_status check_shrink(void *context, const bool *missing)
{
    const struct shrink_watch *watch = context;
    GYRE_TRY(gyre_fault_status(&watch->child->fault));
    if (!watch->is_aborted)
        GYRE_TRY(gyre_fault_status(&watch->parent->fault));
    for (int rank = 0; missing != NULL && rank < watch->parent->n_ranks; rank++)
        if (missing[rank] && gyre_health_has_left(watch->parent->health, rank))
            return gyre_fail(GYRE_ERROR_REMOTE,
                             "rank %d (%s) has died or left too: exclude it as well", rank,
                             watch->parent->links.infos[rank].host_name);
    return GYRE_SUCCESS;
}

/* From now on the parent's links, where they are left, tell of deaths among the members. */
static gyre_status open_shrunk(const struct gyre_meeting *meeting, gyre_comm *child)
{
    gyre_comm *parent = meeting->parent;
    int *parent_ranks = malloc((size_t)meeting->n_ranks * sizeof(*parent_ranks));
    if (parent_ranks == NULL)
        return gyre_fail_errno(ENOMEM, "shrink");
    int n = 0;
    for (int rank = 0; rank < parent->n_ranks; rank++)
        if (meeting->is_member[rank])
            parent_ranks[n++] = rank;
    const gyre_status status = gyre_origin_open(parent, child, GYRE_ORIGIN_SHRUNK, parent_ranks, n);
    free(parent_ranks);
    return status;
}

static gyre_status find_shrunk(struct gyre_meeting *meeting, gyre_comm *child)
{
    gyre_comm *parent = meeting->parent;
    struct shrink_watch watch = {parent, child, meeting->is_aborted};
    const struct gyre_regroup regroup = {
        .params = &parent->params,
        .secret = parent->bootstrap->secret,
        .rank = parent->rank,
        .n_ranks = parent->n_ranks,
        .is_member = meeting->is_member,
        .check = check_shrink,
        .context = &watch,
    };
    int lowest = -1;
    for (int rank = 0; rank < parent->n_ranks; rank++) {
        if (!meeting->is_member[rank])
            continue;
        if (lowest < 0)
            lowest = rank;
        if (rank == parent->rank)
            meeting->rank = meeting->n_ranks;
        meeting->n_ranks++;
    }
    const struct gyre_sock_list *door = &parent->links.infos[lowest].door;
    gyre_status status;
    if (meeting->n_ranks == 1) /* there is no other rank to meet */
        status = gyre_unique_id_create(&parent->params, &meeting->id);
    else if (lowest == parent->rank && parent->door != NULL)
        status = gyre_door_serve(parent->door, &regroup, &meeting->id);
    else if (lowest != parent->rank && door->network != 0)
        status = gyre_door_knock(door, &regroup, &meeting->id);
    else
        status = gyre_fail(GYRE_ERROR_UNSUPPORTED,
                           "rank %d found no network interface to be met at when the parent was "
                           "made",
                           lowest);
    if (status == GYRE_SUCCESS)
        status = open_shrunk(meeting, child);
    if (status != GYRE_SUCCESS)
        gyre_fail_context(status, "shrink of %s to %d of %d ranks, led by rank %d (%s)",
                          parent->name, meeting->n_ranks, parent->n_ranks, lowest,
                          parent->links.infos[lowest].host_name);
    return status;
}

static gyre_status take_excluded(const gyre_comm *comm, const int *ranks, int n_excluded,
                                 bool *is_member_out)
{
    for (int rank = 0; rank < comm->n_ranks; rank++)
        is_member_out[rank] = true;
    for (int i = 0; i < n_excluded; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->n_ranks)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "shrink: excluded rank %d is not a rank of 0..%d", ranks[i],
                             comm->n_ranks - 1);
        if (ranks[i] == comm->rank)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "shrink: rank %d excludes itself; excluded ranks do not call it",
                             comm->rank);
        is_member_out[ranks[i]] = false;
    }
    return GYRE_SUCCESS;
}

static gyre_status shrink(gyre_comm *comm, const int *excluded_ranks, int n_excluded, int flags,
                          gyre_comm **comm_out, const gyre_config *config)
{
    gyre_config own;
    if (comm_out == NULL || n_excluded < 0 || (n_excluded > 0 && excluded_ranks == NULL))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "shrink: %s",
                         comm_out == NULL ? "comm_out is NULL" : "no list of excluded ranks");
    if (flags != GYRE_SHRINK_DEFAULT && flags != GYRE_SHRINK_ABORT)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "shrink: unknown flags 0x%x", flags);
    if (flags == GYRE_SHRINK_DEFAULT && gyre_comm_check(comm) != GYRE_SUCCESS)
        return gyre_fail_context(GYRE_ERROR_INVALID_USAGE,
                                 "shrink: only GYRE_SHRINK_ABORT takes a communicator that failed "
                                 "or was finalized");
    GYRE_TRY(child_config(comm, config, &own));
    struct gyre_meeting meeting = {
        .find = find_shrunk, .parent = comm, .is_aborted = flags == GYRE_SHRINK_ABORT};
    meeting.is_member = malloc((size_t)comm->n_ranks * sizeof(bool));
    if (meeting.is_member == NULL)
        return gyre_fail_errno(ENOMEM, "shrink");
    gyre_status status = take_excluded(comm, excluded_ranks, n_excluded, meeting.is_member);
    if (status == GYRE_SUCCESS && flags == GYRE_SHRINK_ABORT)
        status = gyre_comm_abort(comm);
    if (status != GYRE_SUCCESS) {
        free(meeting.is_member);
        return status;
    }
    return gyre_comm_make(&own, &meeting, comm_out);
}

gyre_status gyre_comm_shrink(gyre_comm *comm, const int *excluded_ranks, int n_excluded, int flags,
                             gyre_comm **comm_out, const gyre_config *config)
{
    /* Not as a call: another thread's may wait for the ranks that are to be excluded. */
    GYRE_TRY(gyre_comm_pin_made(comm));
    const gyre_status status = shrink(comm, excluded_ranks, n_excluded, flags, comm_out, config);
    gyre_comm_unpin(comm);
    return status;
}
