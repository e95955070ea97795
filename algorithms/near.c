/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the pairs of ranks that are near. On several hosts, large calls send data along rails, from
 * a rank of one host to the rank on the same rail of a host at a distance of 1, 2, 4, ... (rings,
 * trees, pairs). This file knows the rails of the two-level algorithms, the rails of the variants
 * of rings and trees, and the distances that these algorithms use. A test compares the pairs with
 * the programs of the algorithms.
 */
#include "algorithms/algorithm.h"
#include "algorithms/hosts.h"
#include "core/foundation/base/status.h"

#include <stdlib.h>
#include <string.h>

struct near {
    const struct gyre_hosts *hosts;
    int n_rails;
    int host;     /* of the rank whose peers are looked for */
    int position; /* likewise */
    uint8_t *is_far;
    uint32_t n_near; /* ranks of other hosts that were marked as near */
};

/* Can two hosts at this distance be neighbours in a ring or a tree? Distances count in both
 * directions round the ring of hosts, and neighbours are at powers of two. There is one exception:
 * in a broadcast the root is above both trees of the other hosts, and if the number of hosts is
 * even the top of the second tree is one host before a power of two. */
static bool is_near_distance(int n_hosts, int distance)
{
    int power = 1;
    while (power * 2 < n_hosts)
        power *= 2;
    const int top = n_hosts % 2 == 0 ? power - 1 : power;
    for (int i = 0; i < 2; i++, distance = n_hosts - distance)
        if ((distance & (distance - 1)) == 0 || distance == top)
            return true;
    return false;
}

static void mark(struct near *near, int host, int position)
{
    uint8_t *is_far = &near->is_far[gyre_hosts_rank(near->hosts, host, position)];
    near->n_near += *is_far;
    *is_far = 0;
}

/* May a ring cross to another host at a rank of this host next to the rail? That happens if the
 * ring would otherwise leave the host from the rank at which it entered, or come back to the root
 * of a broadcast. */
static bool may_slip(const struct gyre_hosts *hosts, int host)
{
    return gyre_hosts_size(hosts, host) < hosts->n_variants || hosts->n_hosts % 2 != 0;
}

/* The position on a host of the rank that is `after` positions after the rank on a rail. */
static int position_of(const struct near *near, int host, int rail, int n_rails, int after)
{
    const int size = gyre_hosts_size(near->hosts, host);
    return (gyre_hosts_at_rail(near->hosts, host, rail, n_rails) + after + size) % size;
}

/* If this rank is `after` positions after the rail on its host, mark the rank that is
 * `other_after` positions after the same rail on the other host. */
static void join(struct near *near, int other, int rail, int n_rails, int after, int other_after)
{
    if (position_of(near, near->host, rail, n_rails, after) == near->position)
        mark(near, other, position_of(near, other, rail, n_rails, other_after));
}

/* Mark the ranks at which rings cross to the next host next to the rails. */
static void mark_crossings(struct near *near, int other)
{
    const struct gyre_hosts *hosts = near->hosts;
    const int n_variants = hosts->n_variants;
    for (int position = 0; n_variants == 1 && position < gyre_hosts_size(hosts, other); position++)
        mark(near, other, position); /* a chain begins at any root */
    for (int v = 0; n_variants > 1 && v < n_variants; v++) {
        for (int after = -1; after <= 1; after += 2) {
            if (may_slip(hosts, near->host))
                join(near, other, v, n_variants, after, 0);
            if (may_slip(hosts, other))
                join(near, other, v, n_variants, 0, after);
            if (may_slip(hosts, near->host) && may_slip(hosts, other))
                join(near, other, v, n_variants, after, -after);
        }
    }
}

static void mark_host(struct near *near, int other)
{
    const struct gyre_hosts *hosts = near->hosts;
    const int distance = (other - near->host + hosts->n_hosts) % hosts->n_hosts;
    if (!is_near_distance(hosts->n_hosts, distance))
        return;
    for (int rail = 0; rail < near->n_rails; rail++)
        join(near, other, rail, near->n_rails, 0, 0);
    for (int v = 0; v < hosts->n_variants; v++) {
        join(near, other, v, hosts->n_variants, 0, 0);
        join(near, other, v, hosts->n_variants, -1, -1); /* the second tree */
    }
    if (distance == 1 || distance == hosts->n_hosts - 1)
        mark_crossings(near, other);
}

/* Fill in near->is_far for the rank at (host, position). */
static void find(struct near *near, int host, int position)
{
    near->host = host;
    near->position = position;
    near->n_near = 0;
    memset(near->is_far, 1, (size_t)near->hosts->n_ranks);
    for (int other = 0; other < near->hosts->n_hosts; other++) {
        if (other != host)
            mark_host(near, other);
        for (int i = 0; other == host && i < gyre_hosts_size(near->hosts, host); i++)
            near->is_far[gyre_hosts_rank(near->hosts, host, i)] = 0;
    }
}

static gyre_status open_near(const struct gyre_grouping *grouping, unsigned n_ranks,
                             struct near *near_out)
{
    const struct gyre_shape shape = {.n_ranks = (uint16_t)n_ranks, .grouping = grouping};
    *near_out =
        (struct near){.hosts = gyre_hosts_make(&shape, false), .n_rails = gyre_hosts_rails(&shape)};
    if (near_out->hosts == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the hosts of %u ranks", n_ranks);
    return GYRE_SUCCESS;
}

gyre_status gyre_near_peers_find(const struct gyre_grouping *grouping, unsigned n_ranks, int rank,
                                 uint8_t *is_far_out)
{
    struct near near;
    int host, position;
    GYRE_TRY(open_near(grouping, n_ranks, &near));
    near.is_far = is_far_out;
    gyre_hosts_find(near.hosts, rank, &host, &position);
    find(&near, host, position);
    free((void *)(uintptr_t)near.hosts);
    return GYRE_SUCCESS;
}

gyre_status gyre_near_peers_count(const struct gyre_grouping *grouping, unsigned n_ranks,
                                  struct gyre_peer_counts *counts_out)
{
    struct gyre_peer_counts counts = {0};
    struct near near;
    GYRE_TRY(open_near(grouping, n_ranks, &near));
    near.is_far = malloc(n_ranks);
    for (int host = 0; near.is_far != NULL && host < near.hosts->n_hosts; host++) {
        const uint32_t n_inside = (uint32_t)gyre_hosts_size(near.hosts, host) - 1;
        for (uint32_t position = 0; position <= n_inside; position++) {
            find(&near, host, (int)position);
            const uint32_t n_far = n_ranks - 1 - n_inside - near.n_near;
            counts.n_inside = n_inside > counts.n_inside ? n_inside : counts.n_inside;
            counts.n_near = near.n_near > counts.n_near ? near.n_near : counts.n_near;
            counts.n_far = n_far > counts.n_far ? n_far : counts.n_far;
        }
    }
    const bool is_done = near.is_far != NULL;
    free(near.is_far);
    free((void *)(uintptr_t)near.hosts);
    if (!is_done)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to count the peers of %u ranks",
                         n_ranks);
    *counts_out = counts;
    return GYRE_SUCCESS;
}
