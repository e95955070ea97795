/* SPDX-License-Identifier: Apache-2.0
 *
 * The remaining ranks connect to the regroup listener of the lowest one, so shrinks need neither
 * the excluded ranks nor the parent's bootstrap.
 */
#include "core/engine/comm/parts.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct shrink_watch {
    gyre_comm *parent;
    gyre_comm *child; /* NULL: this rank cannot take part, and only tells the others so */
    bool is_aborted;  /* the parent has failed already, so only the child's fault counts */
};

static gyre_status check_shrink(void *context, const bool *missing)
{
    const struct shrink_watch *watch = context;
    if (watch->child != NULL)
        GYRE_TRY(gyre_fault_status(&watch->child->self.fault));
    if (!watch->is_aborted)
        GYRE_TRY(gyre_fault_status(&watch->parent->self.fault));
    for (int rank = 0; missing != NULL && rank < watch->parent->self.n_ranks; rank++)
        if (missing[rank] && gyre_health_has_left(watch->parent->health, rank))
            return gyre_fail(GYRE_ERROR_REMOTE,
                             "rank %d (%s) has died or left too: exclude it as well", rank,
                             watch->parent->links.infos[rank].host_name);
    return GYRE_SUCCESS;
}

static gyre_status find_shrunk(struct gyre_init_request *request, gyre_comm *child)
{
    gyre_comm *parent = request->parent;
    struct shrink_watch watch = {parent, child, request->is_aborted};
    char name[GYRE_RANK_NAME_BYTES];
    char failure_text[GYRE_RANK_NAME_BYTES + sizeof(request->failure_text) + 32];
    snprintf(failure_text, sizeof(failure_text), "%s of the parent: %s",
             gyre_rank_name(parent->origin, parent->links.infos, parent->self.rank, name),
             request->failure_text);
    const struct gyre_regroup regroup = {
        .params = &parent->self.params,
        .secret = parent->self.bootstrap->secret,
        .rank = parent->self.rank,
        .n_ranks = parent->self.n_ranks,
        .is_member = request->is_member,
        .may_lose_ranks = request->is_aborted,
        .check = check_shrink,
        .context = &watch,
        .failure = request->failure,
        .failure_text = failure_text,
    };
    GYRE_FREED int *parent_ranks = malloc((size_t)parent->self.n_ranks * sizeof(*parent_ranks));
    int lowest = -1;
    for (int rank = 0; rank < parent->self.n_ranks; rank++) {
        if (!request->is_member[rank])
            continue;
        if (lowest < 0)
            lowest = rank;
        if (rank == parent->self.rank)
            request->rank = request->n_ranks;
        if (parent_ranks != NULL)
            parent_ranks[request->n_ranks] = rank;
        request->n_ranks++;
    }
    const struct gyre_sock_list *addresses = &parent->links.infos[lowest].regroup_addresses;
    gyre_status status;
    if (request->n_ranks == 1)
        status = gyre_unique_id_create(&parent->self.params, &request->id);
    else if (lowest == parent->self.rank && parent->links.regroup_listeners.n > 0)
        status = gyre_regroup_serve(&parent->links.regroup_listeners, &regroup, &request->id);
    else if (lowest != parent->self.rank && addresses->network != 0)
        status = gyre_regroup_join(addresses, &regroup, &request->id);
    else
        status = gyre_fail(GYRE_ERROR_UNSUPPORTED,
                           "rank %d found no network interface to be met at when the parent was "
                           "made",
                           lowest);
    if (status == GYRE_SUCCESS && child != NULL)
        status = parent_ranks == NULL
                     ? gyre_fail_errno(ENOMEM, "shrink")
                     : gyre_comm_open_origin(request, child, GYRE_ORIGIN_SHRUNK, parent_ranks);
    if (status != GYRE_SUCCESS)
        gyre_fail_context(status, "shrink of %s to %d of %d ranks, led by rank %d (%s)",
                          parent->self.name, request->n_ranks, parent->self.n_ranks, lowest,
                          parent->links.infos[lowest].host_name);
    return status;
}

/* A rank with a wrong list cannot know which ranks wait for it. With a legal one it tells them what
 * is wrong with its other arguments. */
gyre_status gyre_comm_shrink(gyre_comm *comm, const int *excluded_ranks, int n_excluded, int flags,
                             gyre_comm **comm_out, const gyre_config *config)
{
    /* Not a call: another thread's may wait for the ranks that are to be excluded. */
    GYRE_PINNED(comm);
    gyre_config own;
    struct gyre_init_request request = {.find = find_shrunk,
                                        .parent = comm,
                                        .is_aborted = flags == GYRE_SHRINK_ABORT,
                                        .takes_failures = true};
    if (flags == GYRE_SHRINK_DEFAULT && gyre_comm_check(comm) != GYRE_SUCCESS)
        return gyre_fail_context(GYRE_ERROR_INVALID_USAGE,
                                 "shrink: only GYRE_SHRINK_ABORT takes a communicator that failed "
                                 "or was finalized");
    if (n_excluded < 0 || (n_excluded > 0 && excluded_ranks == NULL))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "shrink: no list of excluded ranks");
    for (int i = 0; i < n_excluded; i++) {
        if (excluded_ranks[i] < 0 || excluded_ranks[i] >= comm->self.n_ranks)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "shrink: excluded rank %d is not a rank of 0..%d", excluded_ranks[i],
                             comm->self.n_ranks - 1);
        if (excluded_ranks[i] == comm->self.rank)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "shrink: rank %d excludes itself; excluded ranks do not call it",
                             comm->self.rank);
    }
    request.is_member = malloc((size_t)comm->self.n_ranks * sizeof(bool));
    if (request.is_member == NULL)
        return gyre_fail_errno(ENOMEM, "shrink");
    for (int rank = 0; rank < comm->self.n_ranks; rank++)
        request.is_member[rank] = true;
    for (int i = 0; i < n_excluded; i++)
        request.is_member[excluded_ranks[i]] = false;
    gyre_status status;
    if (comm_out == NULL)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "shrink: comm_out is NULL");
    else if (flags != GYRE_SHRINK_DEFAULT && flags != GYRE_SHRINK_ABORT)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "shrink: unknown flags 0x%x", flags);
    else
        status = gyre_comm_child_config(comm, config, &own);
    if (status == GYRE_SUCCESS && flags == GYRE_SHRINK_ABORT)
        status = gyre_comm_abort(comm);
    if (status != GYRE_SUCCESS)
        return gyre_comm_refuse(&comm->self.config, &request, status);
    return gyre_comm_make(&own, &request, comm_out);
}
