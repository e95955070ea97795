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

/* A rail is a line of ranks, one of each host; there are as many rails as the smallest host has
 * ranks. The rank on rail r of a host owns part r of its data: the host's ranks exchange part r
 * with it, and owners along their rail, so that the fewest bytes cross between hosts.
 *
 * With one vector, one worker sums inside the host and moves data along the rail, and a second one
 * receives what owners have finished. Inside a host the first one receives over lane 0, the second
 * over lane 1, except in a broadcast on the root's host. */

#define GYRE_LANE_FIRST  0
#define GYRE_LANE_SECOND 1

#define GYRE_MORE_REFS   16 /* of a step, beyond its host */

struct gyre_two_level {
    const struct gyre_hosts *hosts;
    struct gyre_builder *builder;
    int n_rails;
    int variant;
    int rank;
    int host;
    int position;
    int rail; /* this rank's; -1 = none */
    struct gyre_ref *ins;
    struct gyre_ref *outs;
};

static inline int gyre_two_level_owner(const struct gyre_two_level *level, int host, int rail)
{
    return gyre_hosts_rank(level->hosts, host,
                           gyre_hosts_at_rail(level->hosts, host, rail, level->n_rails));
}

/** @host: modulo n_hosts. */
static inline struct gyre_ref gyre_two_level_at_host(const struct gyre_two_level *level, int host)
{
    const int n = level->hosts->n_hosts;
    return gyre_peer(gyre_two_level_owner(level, (host + n) % n, level->rail), GYRE_LANE_FIRST);
}

/** Rails that this rank does not own. */
static inline int gyre_two_level_others(const struct gyre_two_level *level)
{
    return level->n_rails - (level->rail < 0 ? 0 : 1);
}

/** All contributions of this host, this rank's own being IN. @ins_out: the host's size. Returns how
 * many. */
int gyre_two_level_collect(const struct gyre_two_level *level, int chunk, int lane,
                           struct gyre_ref *ins_out);

/** The other ranks of this host. @but: has the data already; -1 = none. Returns how many. */
int gyre_two_level_hand_out(const struct gyre_two_level *level, int but, int lane,
                            struct gyre_ref *outs_out);

/** Any number of inputs and outputs; the first outputs get the result first. @outs: with more than
 * GYRE_STEP_MAX_OUTS, the first one is in OUT. */
void gyre_two_level_move(const struct gyre_two_level *level, int chunk, const struct gyre_ref *ins,
                         int n_ins, const struct gyre_ref *outs, int n_outs, unsigned flags);

/** @is_chain: the blocks go along the rails in rings, else each along a tree. */
void gyre_two_level_reduce_scatter(const struct gyre_two_level *level, bool is_chain);
void gyre_two_level_all_gather(const struct gyre_two_level *level, bool is_chain);

#endif
