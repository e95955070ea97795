/* SPDX-License-Identifier: Apache-2.0
 *
 * Neighbours in binary trees, and in large calls on several hosts.
 *
 * In-order binary tree: the height of a position, from 1, is its number of trailing zero bits.
 *
 * Four items:
 *
 *   tree 0:    3          tree 1:    0
 *             1                       2
 *            0 2                     3 1
 */
#include "algorithms/hosts.h"

#include "algorithms/algorithm.h"
#include "core/foundation/base/status.h"

#include <stdlib.h>
#include <string.h>

static int top_position(int n)
{
    int top = 1;
    while (top * 2 <= n)
        top *= 2;
    return top;
}

/* Tree 1 is tree 0 mirrored if n is even, else shifted by one, which makes one item a leaf of
 * both. */
static int position_of(int tree, int n, int item)
{
    if (tree == 0)
        return item + 1;
    return n % 2 == 0 ? n - item : (item + 1) % n + 1;
}

static int item_at(int tree, int n, int position)
{
    if (tree == 0)
        return position - 1;
    return n % 2 == 0 ? n - position : (position - 2 + n) % n;
}

int gyre_tree_top(int tree, int n)
{
    return item_at(tree, n, top_position(n));
}

int gyre_tree_parent(int tree, int n, int item)
{
    int position = position_of(tree, n, item);
    if (position == top_position(n))
        return -1;
    do { /* past the end: take the parent's parent */
        const int low_bit = position & -position;
        position = (position & ~low_bit) | low_bit * 2;
    } while (position > n);
    return item_at(tree, n, position);
}

int gyre_tree_children(int tree, int n, int item, int *children_out)
{
    const int position = position_of(tree, n, item);
    int n_children = 0;
    int distance = (position & -position) / 2;
    if (distance == 0)
        return 0;
    children_out[n_children++] = item_at(tree, n, position - distance);
    while (distance > 1 &&
           position + distance > n) /* the subtree is cut off: go down its left side */
        distance /= 2;
    if (position + distance <= n)
        children_out[n_children++] = item_at(tree, n, position + distance);
    return n_children;
}

/* Rails go to hosts at a distance of 1, 2, 4, ... A test compares these pairs with the programs. */
struct near {
    const struct gyre_hosts *hosts;
    int n_rails;
    int host;
    int position;
    uint8_t *is_far;
    uint32_t n_near;
};

/* Powers of two, except in a broadcast over an even number of hosts: the root is above both
 * trees, and the top of the second one is one host before a power of two. @distance: in both
 * directions. */
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

/* May a ring cross beside the rail? Otherwise it would leave the host where it entered, or come
 * back to the root of a broadcast. */
static bool may_slip(const struct gyre_hosts *hosts, int host)
{
    return gyre_hosts_size(hosts, host) < hosts->n_variants || hosts->n_hosts % 2 != 0;
}

static int position_on(const struct near *near, int host, int rail, int n_rails, int after)
{
    const int size = gyre_hosts_size(near->hosts, host);
    return (gyre_hosts_at_rail(near->hosts, host, rail, n_rails) + after + size) % size;
}

/* If this rank is `after` positions after the rail, mark the other host's rank `other_after`
 * positions after it. */
static void join(struct near *near, int other, int rail, int n_rails, int after, int other_after)
{
    if (position_on(near, near->host, rail, n_rails, after) == near->position)
        mark(near, other, position_on(near, other, rail, n_rails, other_after));
}

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
        join(near, other, v, hosts->n_variants, -1, -1);
    }
    if (distance == 1 || distance == hosts->n_hosts - 1)
        mark_crossings(near, other);
}

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
