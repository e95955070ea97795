/* SPDX-License-Identifier: Apache-2.0
 *
 * How a leaving rank waits for its own operations. It detects here ranks that leave while they wait
 * for each other's signals, because none of them could say goodbye:
 *
 *     rank 0: wait for rank 1's signal; destroy     rank 1: wait for rank 0's signal; destroy
 *
 * A leaving rank makes no more calls. Once all of its one-sided operations wait, it sends no signal
 * before one comes, and its n_ended stays the same. So it tells all ranks its n_ended, the ranks
 * that it waits for, and the n_ended that it had seen of each before it found that it waits. Then
 * it had all signals that the other rank had sent by that n_ended: within a host they are there at
 * once, and else the rank tells its n_ended on the put link, behind its signals. A set of ranks
 * that wait for each other alone, and have all seen each other's latest n_ended, waits for ever:
 * the first to go on would need a signal of another one that had gone on before.
 */
#include "core/engine/comm/parts.h"

#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAP_NS   50000
#define CHECK_NS 100000000ULL

/* What a rank told last; of this rank it is `own`. */
static struct gyre_health_blocked report_of(gyre_comm *comm, const struct gyre_health_blocked *own,
                                            int rank)
{
    return rank == comm->self.rank ? *own : gyre_health_blocked_of(comm->health, rank);
}

/* all signals that the rank had sent by then are here */
static uint64_t seen_ended(gyre_comm *comm, const struct gyre_health_blocked *own, int rank)
{
    if (rank != comm->self.rank && gyre_links_is_proxied_to(&comm->links, rank))
        return gyre_put_peers_blocked_of(comm, rank);
    return report_of(comm, own, rank).n_ended;
}

/* The ranks that `rank` waits for. False if one may go on. */
static bool add_senders(gyre_comm *comm, const struct gyre_health_blocked *own, int rank,
                        bool *is_in_set, int *set, int *n_ranks)
{
    const struct gyre_health_blocked report = report_of(comm, own, rank);
    for (uint32_t i = 0; i < report.n_senders; i++) {
        const int sender = (int)report.senders[i].rank;
        const uint64_t n_ended = report_of(comm, own, sender).n_ended;
        if (n_ended == 0 || report.senders[i].seen_ended != n_ended)
            return false;
        if (!is_in_set[sender])
            set[(*n_ranks)++] = sender;
        is_in_set[sender] = true;
    }
    return true;
}

/* @told: so far, by this rank. */
static void check_waits(gyre_comm *comm, struct gyre_health_blocked *told)
{
    /* The executor is asked again after other ranks' reports were read. */
    struct gyre_executor *executor = comm->executor;
    struct gyre_health_blocked own = {0};
    struct gyre_blocked before, after;
    if (!executor->ops->find_blocked(executor, &before))
        return;
    own.n_ended = before.n_ended;
    own.n_senders = before.n_senders;
    for (uint32_t i = 0; i < before.n_senders; i++) {
        own.senders[i].rank = before.senders[i];
        own.senders[i].seen_ended = seen_ended(comm, &own, (int)before.senders[i]);
    }
    if (!executor->ops->find_blocked(executor, &after) ||
        memcmp(&before, &after, sizeof(before)) != 0)
        return;
    gyre_put_peers_tell_blocked(comm, own.n_ended);
    if (memcmp(&own, told, sizeof(own)) != 0)
        gyre_health_tell_blocked(comm->health, &own);
    *told = own;
    /* Without memory a later check answers. */
    const size_t n = (size_t)comm->self.n_ranks;
    GYRE_FREED bool *is_in_set = calloc(n, sizeof(*is_in_set));
    GYRE_FREED int *set = malloc(n * sizeof(*set));
    int n_ranks = 0;
    if (is_in_set == NULL || set == NULL)
        return;
    set[n_ranks++] = comm->self.rank;
    is_in_set[comm->self.rank] = true;
    for (int i = 0; i < n_ranks; i++)
        if (!add_senders(comm, &own, set[i], is_in_set, set, &n_ranks))
            return;
    for (uint32_t i = 0; i < own.n_senders; i++)
        comm->executor->ops->peer_left(comm->executor, (int)own.senders[i].rank);
}

void gyre_comm_drain(gyre_comm *comm)
{
    const struct timespec nap = {0, NAP_NS};
    struct gyre_health_blocked told = {0};
    uint64_t checked_ns = gyre_now_ns();
    while (!gyre_fault_is_raised(&comm->self.fault) &&
           !comm->executor->ops->is_idle(comm->executor)) {
        nanosleep(&nap, NULL);
        if (gyre_now_ns() - checked_ns < CHECK_NS)
            continue;
        check_waits(comm, &told);
        checked_ns = gyre_now_ns();
    }
}
