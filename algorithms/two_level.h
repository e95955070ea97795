/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts that all two-level algorithms share. A rail is a line of ranks, one of each host; there
 * are as many rails as the smallest host has ranks. The rank on rail r of a host owns part r of the
 * host's data. Inside the host every rank exchanges part r with that owner, and owners exchange it
 * along their rail with the other hosts. So all rails carry the same number of bytes, and as few
 * bytes as possible cross between hosts.
 *
 * In collectives of one vector a rank has two workers. The first one sums inside the host and moves
 * data along the rail. The second one receives what owners have finished. In an all-reduce in rings
 * another worker sends this rank's input to the owners. Lane 0 of a pair in a host belongs to the
 * worker of the receiving rank that sums, lane 1 to the one that receives results. A broadcast
 * uses lane 0 on the root's host in another way, and collectives of blocks have other workers
 * (two_level_blocks.c).
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
    int variant; /* of the shape */
    int rank;
    int host;
    int position;          /* on the host */
    int rail;              /* that this rank owns; -1 = none */
    struct gyre_ref *ins;  /* room for the inputs of a step: the host's ranks and 16 more */
    struct gyre_ref *outs; /* likewise */
};

/* A rank's neighbours along its rail. */
struct gyre_two_level_place {
    bool is_top;
    struct gyre_ref parent;
    int n_children;
    struct gyre_ref children[2];
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

/** gyre_two_level_served - the rank of a host whose block a rail carries in a pass: the owner in
 * pass 0, then ranks that own no rail. These are dealt out to the rails one after the other, and in
 * each variant another rail is the first. -1 if the rail serves fewer ranks of this host. */
int gyre_two_level_served(const struct gyre_two_level *level, int host, int rail, int pass);

/** gyre_two_level_collect - list the contributions of all ranks of this host to a chunk, this
 * rank's own being IN. @lane: by which the others come. @ins_out: the host's size. Returns how
 * many. */
int gyre_two_level_collect(const struct gyre_two_level *level, int chunk, int lane,
                           struct gyre_ref *ins_out);

/** gyre_two_level_hand_out - list the outputs by which finished data get to the other ranks of this
 * host. @but: a rank that has the data already; -1 = none. @lane: by which they go. Returns how
 * many. */
int gyre_two_level_hand_out(const struct gyre_two_level *level, int but, int lane,
                            struct gyre_ref *outs_out);

/** gyre_two_level_move - reduce any number of inputs and write the result to any number of outputs.
 * If one step cannot do that, the first outputs get the result first.
 * @outs: if there are more than GYRE_STEP_MAX_OUTS, the first one is in OUT. */
void gyre_two_level_move(const struct gyre_two_level *level, int chunk, const struct gyre_ref *ins,
                         int n_ins, const struct gyre_ref *outs, int n_outs, unsigned flags);

/** gyre_two_level_send_to_owners - send this rank's IN to the owners of the other rails.
 * @n_pieces: chunks of a rail. @piece: which of them. The sends run one after the other: once an
 * owner has a chunk, the result may come back and be written over IN, so that chunk must have been
 * read. */
void gyre_two_level_send_to_owners(const struct gyre_two_level *level, int piece, int n_pieces);

/** gyre_two_level_keep_from_owners - receive one piece of each other rail from its owner into OUT.
 */
void gyre_two_level_keep_from_owners(const struct gyre_two_level *level, int piece, int n_pieces);

/** gyre_two_level_place_on_rail - find a rank's neighbours along its rail. @is_chain: the rail is a
 * chain that begins at `root_host`; else it is a tree. @root_host: -1 = none; in a tree, a root is
 * above the tree. */
struct gyre_two_level_place gyre_two_level_place_on_rail(const struct gyre_two_level *level,
                                                         bool is_chain, int tree, int root_host);

/** Emit broadcast and reduce (two_level_rooted.c). @is_chain: as above. @tree: which of the two
 * trees. */
void gyre_two_level_broadcast(const struct gyre_two_level *level, int root, bool is_chain,
                              int tree);
void gyre_two_level_reduce(const struct gyre_two_level *level, int root, bool is_chain, int tree);

/** Emit reduce-scatter and all-gather (two_level_blocks.c). @is_chain: the blocks go along the
 * rails in rings; else every block goes along a tree. */
void gyre_two_level_reduce_scatter(const struct gyre_two_level *level, bool is_chain);
void gyre_two_level_all_gather(const struct gyre_two_level *level, bool is_chain);

#endif
