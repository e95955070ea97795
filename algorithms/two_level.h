/* SPDX-License-Identifier: Apache-2.0
 *
 * A rail is a line of ranks, one of each host; there are as many rails as the smallest host has
 * ranks. The rank on rail r of a host owns part r of its data: the host's ranks exchange part r
 * with it, and owners along their rail, so that the fewest bytes cross between hosts.
 *
 * With one vector, one worker sums inside the host and moves data along the rail, and a second one
 * receives what owners have finished. Inside a host the first one receives over lane 0, the second
 * over lane 1, except in a broadcast on the root's host.
 */
#ifndef GYRE_ALGORITHMS_TWO_LEVEL_H
#define GYRE_ALGORITHMS_TWO_LEVEL_H

#include "algorithms/hosts.h"

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
