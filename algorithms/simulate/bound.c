/* SPDX-License-Identifier: Apache-2.0
 *
 * The least number of bytes that a host must send in a collective of B bytes, with h hosts and n
 * ranks:
 *
 *   all-reduce                   2 B (h-1)/h   each byte is summed and handed out once
 *   reduce-scatter, all-gather     B (h-1)/h   (B: all blocks)
 *   broadcast, reduce              B           into, or out of, a host that is not the root's
 *
 * For a rank, n takes the place of h, and all its bytes count on its links inside the host. Some of
 * them go over NICs, so on several hosts a time can be shorter than this bound (simulate.h).
 */
#include "algorithms/simulate/simulate.h"

/* The part of B that each of `n` equal members (hosts or ranks) must send. */
static double share_of(enum gyre_collective coll, double n)
{
    switch (coll) {
    case GYRE_COLL_ALL_REDUCE:
        return 2 * (n - 1) / n;
    case GYRE_COLL_REDUCE_SCATTER:
    case GYRE_COLL_ALL_GATHER:
        return (n - 1) / n;
    case GYRE_COLL_BROADCAST:
    case GYRE_COLL_REDUCE:
        return n > 1 ? 1 : 0;
    default:
        return 0;
    }
}

/* The number of NICs of the host that has the fewest. */
static double fewest_nics(const struct gyre_grouping *grouping, unsigned n_ranks)
{
    uint16_t n_of[GYRE_MAX_RANKS] = {0};
    unsigned fewest = n_ranks;
    for (unsigned rank = 0; rank < n_ranks; rank++)
        n_of[grouping->host_of[rank]]++;
    for (unsigned host = 0; host < grouping->n_hosts; host++)
        if (n_of[host] < fewest)
            fewest = n_of[host];
    return grouping->n_nics > 0 && grouping->n_nics < fewest ? grouping->n_nics : fewest;
}

double gyre_bound_ns(const struct gyre_shape *shape, const struct gyre_cost *cost, uint64_t n_bytes)
{
    const struct gyre_grouping *grouping = shape->grouping;
    const double bytes = (double)n_bytes;
    double network_ns = 0, inside_ns = 0;
    if (cost->egress_bytes_per_ns[GYRE_LINK_HOST] > 0)
        inside_ns = bytes * share_of(shape->coll, shape->n_ranks) /
                    cost->egress_bytes_per_ns[GYRE_LINK_HOST];
    if (grouping == NULL || grouping->n_hosts < 2)
        return inside_ns;
    if (cost->nic_bytes_per_ns > 0)
        network_ns = bytes * share_of(shape->coll, grouping->n_hosts) /
                     (cost->nic_bytes_per_ns * fewest_nics(grouping, shape->n_ranks));
    return network_ns > inside_ns ? network_ns : inside_ns;
}
