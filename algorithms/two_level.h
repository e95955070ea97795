/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts that all two-level algorithms share. A rail is a line of ranks, one of each host; there
 * are as many rails as the smallest host has ranks. The rank on rail r of a host owns part r of the
 * host's data. Inside the host every rank exchanges part r with that owner, and owners exchange it
 * along their rail with the other hosts. So all rails carry the same number of bytes, and as few
 * bytes as possible cross between hosts.
 *
 * A rank has two workers. The first one sums inside the host and moves data along the rail. The
 * second one receives what owners have finished. Lane 0 of a pair in a host belongs to the first
 * worker of the receiving rank, lane 1 to its second one.
 */
#ifndef GYRE_ALGORITHMS_TWO_LEVEL_H
#define GYRE_ALGORITHMS_TWO_LEVEL_H

#include "algorithms/hosts.h"

#define GYRE_LANE_FIRST  0
#define GYRE_LANE_SECOND 1

struct gyre_two_level {
    const struct gyre_hosts *hosts;
    struct gyre_builder *builder;
    int n_rails;
    int rank;
    int host;
    int position;          /* on the host */
    int rail;              /* that this rank owns; -1 = none */
    struct gyre_ref *ins;  /* room for the inputs of a step: the host's ranks and 4 more */
    struct gyre_ref *outs; /* likewise */
};

/** gyre_two_level_open - find the host, the position and the rail of a rank. Returns false when
 * there is no memory; the builder remembers that error. */
bool gyre_two_level_open(const struct gyre_shape *shape, int rank, struct gyre_builder *builder,
                         struct gyre_two_level *level_out);

/** gyre_two_level_owner - the rank on a rail of a host. */
int gyre_two_level_owner(const struct gyre_two_level *level, int host, int rail);

/** gyre_two_level_at_host - the operand for the rank on this rank's rail of another host. @host: -1
 * and n_hosts are the last and the first one. */
struct gyre_ref gyre_two_level_at_host(const struct gyre_two_level *level, int host);

/** gyre_two_level_served - the ranks of a host whose blocks belong to a rail, as positions from
 * *first_out to before *end_out. The first of them is the owner. */
void gyre_two_level_served(const struct gyre_two_level *level, int host, int rail, int *first_out,
                           int *end_out);

/** gyre_two_level_collect - list the contributions of all ranks of this host to a chunk, this
 * rank's own being IN. @ins_out: the host's size. Returns how many. */
int gyre_two_level_collect(const struct gyre_two_level *level, int chunk, struct gyre_ref *ins_out);

/** gyre_two_level_hand_out - list the outputs by which finished data get from an owner to the
 * second workers of the other ranks of its host. @but: a rank that has the data already; -1 = none.
 * Returns how many. */
int gyre_two_level_hand_out(const struct gyre_two_level *level, int but, struct gyre_ref *outs_out);

/** gyre_two_level_move - reduce any number of inputs and write the result to any number of outputs.
 * If one step cannot do that, the first outputs get the result first.
 * @outs: if there are more than GYRE_STEP_MAX_OUTS, the first one is in OUT. */
void gyre_two_level_move(const struct gyre_two_level *level, int chunk, const struct gyre_ref *ins,
                         int n_ins, const struct gyre_ref *outs, int n_outs, unsigned flags);

/** Emit reduce-scatter and all-gather, whose rails are rings (two_level_blocks.c). */
void gyre_two_level_reduce_scatter(const struct gyre_two_level *level);
void gyre_two_level_all_gather(const struct gyre_two_level *level);

#endif
