/* SPDX-License-Identifier: Apache-2.0
 *
 * A rail is a line of ranks, one of each host; there are as many rails as the smallest host has
 * ranks. The rank on rail r of a host owns part r of the host's data: every rank of the host
 * exchanges part r with it, and owners exchange it along their rail. So all rails carry as many
 * bytes, and as few as possible cross between hosts.
 *
 * In collectives of one vector a rank has a worker that sums inside the host and moves data along
 * the rail, and one that receives what owners have finished. Lane 0 of a pair in a host belongs to
 * the first one of the receiving rank, lane 1 to the second, except in a broadcast on the root's
 * host.
 */
#ifndef GYRE_ALGORITHMS_TWO_LEVEL_H
#define GYRE_ALGORITHMS_TWO_LEVEL_H

#include "algorithms/hosts.h"

#define GYRE_LANE_FIRST  0
#define GYRE_LANE_SECOND 1

#define GYRE_MORE_REFS   16 /* of a step, besides those of the own host */

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

/** gyre_two_level_at_host - the rank on this rank's rail of another host. @host: taken modulo
 * n_hosts. */
static inline struct gyre_ref gyre_two_level_at_host(const struct gyre_two_level *level, int host)
{
    const int n = level->hosts->n_hosts;
    return gyre_peer(gyre_two_level_owner(level, (host + n) % n, level->rail), GYRE_LANE_FIRST);
}

/** gyre_two_level_others - rails that this rank does not own. */
static inline int gyre_two_level_others(const struct gyre_two_level *level)
{
    return level->n_rails - (level->rail < 0 ? 0 : 1);
}

/** gyre_two_level_collect - the contributions of all ranks of this host to a chunk, this rank's own
 * being IN. @ins_out: the host's size. Returns how many. */
int gyre_two_level_collect(const struct gyre_two_level *level, int chunk, int lane,
                           struct gyre_ref *ins_out);

/** gyre_two_level_hand_out - the outputs to the other ranks of this host. @but: a rank that has the
 * data already; -1 = none. Returns how many. */
int gyre_two_level_hand_out(const struct gyre_two_level *level, int but, int lane,
                            struct gyre_ref *outs_out);

/** gyre_two_level_move - reduce any number of inputs into any number of outputs. If one step cannot
 * do that, the first outputs get the result first. @outs: if there are more than
 * GYRE_STEP_MAX_OUTS, the first one is in OUT. */
void gyre_two_level_move(const struct gyre_two_level *level, int chunk, const struct gyre_ref *ins,
                         int n_ins, const struct gyre_ref *outs, int n_outs, unsigned flags);

/** Collectives of blocks (two_level_blocks.c). @is_chain: the blocks go along the rails in rings,
 * else each goes along a tree. */
void gyre_two_level_reduce_scatter(const struct gyre_two_level *level, bool is_chain);
void gyre_two_level_all_gather(const struct gyre_two_level *level, bool is_chain);

#endif
