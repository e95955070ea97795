/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks by host, rings, chains and binary trees.
 */
#ifndef GYRE_ALGORITHMS_HOSTS_H
#define GYRE_ALGORITHMS_HOSTS_H

#include "core/foundation/model/schedule.h"

/* Ranks of a host ascend; hosts are in order of their lowest rank. */
struct gyre_hosts {
    int n_ranks;
    int n_hosts;
    int n_variants;
    const uint16_t *first; /* host i has order[first[i]] to order[first[i + 1] - 1] */
    const uint16_t *order;
};

/** Malloc'ed; NULL = no memory. @apart: every rank counts as a host. */
struct gyre_hosts *gyre_hosts_make(const struct gyre_shape *shape, bool apart);

/** As gyre_hosts_make(), but @builder owns the memory and remembers the error. */
const struct gyre_hosts *gyre_hosts_open(const struct gyre_shape *shape, bool apart,
                                         struct gyre_builder *builder);

/** As many as let every NIC of a host carry its share. 1 on one host. */
int gyre_hosts_variants(const struct gyre_shape *shape);

/** Those of the smallest host, because a rail takes one rank of each. */
int gyre_hosts_rails(const struct gyre_shape *shape);

static inline int gyre_hosts_size(const struct gyre_hosts *hosts, int host)
{
    return hosts->first[host + 1] - hosts->first[host];
}

/** @position: modulo the host's size. */
int gyre_hosts_rank(const struct gyre_hosts *hosts, int host, int position);

void gyre_hosts_find(const struct gyre_hosts *hosts, int rank, int *host_out, int *position_out);

/** The rank that uses a rail; the host may have more or fewer ranks than there are rails. @rail:
 * modulo @n_rails. */
int gyre_hosts_at_rail(const struct gyre_hosts *hosts, int host, int rail, int n_rails);

/** The ring of the shape's variant; for broadcast a chain from the root, for reduce one to it. A
 * host's ranks follow each other. Variant v crosses from host i at rail v if i is even, else v + 1,
 * so that over all variants every rank sends to other hosts as often as it receives. @order_out:
 * n_ranks entries. */
void gyre_hosts_ring(const struct gyre_hosts *hosts, const struct gyre_shape *shape,
                     uint16_t *order_out);

#define GYRE_N_TREES 2

/** Two binary trees over items 0..n-1, for halves of the data. An inner item of one is a leaf of
 * the other, so every item sends and receives all data once. @tree: 0 or 1. */
int gyre_tree_top(int tree, int n);

/** -1 at the top. */
int gyre_tree_parent(int tree, int n, int item);

/** @children_out: 2 entries. Returns how many. */
int gyre_tree_children(int tree, int n, int item, int *children_out);

#endif
