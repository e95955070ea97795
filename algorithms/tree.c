/* SPDX-License-Identifier: Apache-2.0
 *
 * Double binary tree (hosts.h) over the hosts. Inside a host the ranks form a chain to the host's
 * node, another one for each tree and variant. On one host the trees are over its ranks.
 *
 * Four ranks of one host, or one rank on each of four hosts:
 *
 *   tree 0, chunk 0:    3          tree 1, chunk 1:    0
 *                      1                                2
 *                     0 2                              3 1
 *
 *   round   tree 0 up        tree 0 down       tree 1 up        tree 1 down
 *     0     0,2 -> 1                           3,1 -> 2
 *     1     1 -> 3                             2 -> 0
 *     2     3 finishes       3 -> 1            0 finishes       0 -> 2
 *     3                      1 -> 0,2                           2 -> 3,1
 *
 * Up and down are different workers, except at the top. The root of broadcast and reduce is above
 * both trees, which consist of the other hosts. Cost (n ranks on h hosts, B bytes): all-reduce has
 * 2 (log2(h) + n/h) hops and 2 B in and out of a host, broadcast and reduce half.
 *
 * On one host nccl_tree has a chain a tree, as NCCL does.
 *
 * The lane is the number of the tree, in which an ordered pair of ranks carries data either up or
 * down, never both.
 */
#include "algorithms/algorithm.h"
#include "algorithms/hosts.h"

struct nodes {
    const struct gyre_hosts *hosts; /* nodes; ranks on one host */
    int variant;
    bool has_root; /* node 0 is above both trees, its first rank is the root */
    int root_host;
    int root_at;
};

struct place {
    int parent; /* -1 = the top */
    int n_children;
    int children[3];
};

/* @apart: one host's trees are over its ranks. False = no memory, which the builder remembers. */
static bool open_nodes(struct nodes *nodes, const struct gyre_shape *shape, bool apart,
                       struct gyre_builder *builder)
{
    const bool is_one_host = shape->grouping == NULL || shape->grouping->n_hosts == 1;
    *nodes = (struct nodes){.hosts = gyre_hosts_open(shape, is_one_host && apart, builder),
                            .variant = shape->variant,
                            .has_root = gyre_collectives[shape->coll].has_root};
    if (nodes->hosts == NULL)
        return false;
    if (nodes->has_root)
        gyre_hosts_find(nodes->hosts, shape->root, &nodes->root_host, &nodes->root_at);
    return true;
}

static int host_of_node(const struct nodes *nodes, int node)
{
    return (nodes->root_host + node) % nodes->hosts->n_hosts;
}

static int chain_length(const struct nodes *nodes, int node)
{
    return gyre_hosts_size(nodes->hosts, host_of_node(nodes, node));
}

/* Index 0 is the host's node of the tree, another rank in each variant. The chain of tree 1 runs
 * the other way, so that only a root is the end of both. */
static int chain_rank(const struct nodes *nodes, int tree, int node, int index)
{
    const struct gyre_hosts *hosts = nodes->hosts;
    const int host = host_of_node(nodes, node);
    if (node == 0 && nodes->has_root)
        return gyre_hosts_rank(hosts, host, nodes->root_at + (tree == 0 ? index : -index));
    const int first = gyre_hosts_at_rail(hosts, host, nodes->variant, hosts->n_variants);
    return gyre_hosts_rank(hosts, host, tree == 0 ? first + index : first - 1 - index);
}

static void place_node(const struct nodes *nodes, int tree, int node, struct place *place)
{
    const int above = nodes->has_root ? 1 : 0;
    const int n = nodes->hosts->n_hosts - above;
    int children[2];
    if (node < above) {
        place->children[place->n_children++] =
            chain_rank(nodes, tree, above + gyre_tree_top(tree, n), 0);
        return;
    }
    const int parent = gyre_tree_parent(tree, n, node - above);
    if (parent >= 0)
        place->parent = chain_rank(nodes, tree, above + parent, 0);
    else if (nodes->has_root)
        place->parent = chain_rank(nodes, tree, 0, 0);
    const int n_children = gyre_tree_children(tree, n, node - above, children);
    for (int i = 0; i < n_children; i++)
        place->children[place->n_children++] = chain_rank(nodes, tree, above + children[i], 0);
}

static struct place place_rank(const struct nodes *nodes, int tree, int rank)
{
    const int n_hosts = nodes->hosts->n_hosts;
    struct place place = {.parent = -1};
    int host, position, index = 0;
    gyre_hosts_find(nodes->hosts, rank, &host, &position);
    const int node = (host - nodes->root_host + n_hosts) % n_hosts;
    while (chain_rank(nodes, tree, node, index) != rank)
        index++;
    if (index == 0)
        place_node(nodes, tree, node, &place);
    else
        place.parent = chain_rank(nodes, tree, node, index - 1);
    if (index + 1 < chain_length(nodes, node))
        place.children[place.n_children++] = chain_rank(nodes, tree, node, index + 1);
    return place;
}

/* At the top the sum goes to OUT and, with `down`, to the children. */
static void emit_up(const struct place *place, int tree, bool down, struct gyre_builder *builder)
{
    struct gyre_ref ins[4], outs[4];
    int n_outs = 0;
    for (int i = 0; i < place->n_children; i++)
        ins[i] = gyre_peer(place->children[i], tree);
    ins[place->n_children] = gyre_in(tree);
    const bool is_top = place->parent < 0;
    outs[n_outs++] = is_top ? gyre_out(tree) : gyre_peer(place->parent, tree);
    for (int i = 0; is_top && down && i < place->n_children; i++)
        outs[n_outs++] = gyre_peer(place->children[i], tree);
    gyre_builder_worker(builder);
    gyre_builder_step(builder, tree, ins, place->n_children + 1, outs, n_outs,
                      is_top ? GYRE_STEP_FINAL : 0);
}

static void emit_down(const struct place *place, int tree, struct gyre_builder *builder)
{
    const struct gyre_ref in = place->parent < 0 ? gyre_in(tree) : gyre_peer(place->parent, tree);
    struct gyre_ref outs[4] = {gyre_out(tree)};
    for (int i = 0; i < place->n_children; i++)
        outs[1 + i] = gyre_peer(place->children[i], tree);
    gyre_builder_worker(builder);
    gyre_builder_step(builder, tree, &in, 1, outs, 1 + place->n_children, 0);
}

static void emit_trees(const struct gyre_shape *shape, int rank, bool apart,
                       struct gyre_builder *builder)
{
    struct nodes nodes;
    if (!open_nodes(&nodes, shape, apart, builder))
        return;
    gyre_builder_lanes(builder, GYRE_N_TREES);
    for (int tree = 0; tree < GYRE_N_TREES; tree++) {
        const struct place place = place_rank(&nodes, tree, rank);
        if (shape->coll != GYRE_COLL_BROADCAST)
            emit_up(&place, tree, shape->coll == GYRE_COLL_ALL_REDUCE, builder);
        if (shape->coll == GYRE_COLL_BROADCAST ||
            (shape->coll == GYRE_COLL_ALL_REDUCE && place.parent >= 0))
            emit_down(&place, tree, builder);
    }
}

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit_trees(shape, rank, true, builder);
}

static void emit_nccl(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit_trees(shape, rank, false, builder);
}

static int n_chunks(const struct gyre_shape *shape)
{
    (void)shape;
    return GYRE_N_TREES;
}

static bool can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not)
{
    (void)why_not;
    /* With a root, neighbours depend on it. */
    *can_out = (struct gyre_ability){
        .reach = shape->coll == GYRE_COLL_ALL_REDUCE ? GYRE_REACH_NEAR : GYRE_REACH_ALL,
        .flow = GYRE_FLOW_CHAIN,
    };
    return true;
}

const struct gyre_algorithm gyre_algorithm_tree = {
    .name = "tree",
    .summary = "double binary tree over hosts, chain inside; few hops",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_BROADCAST | 1U << GYRE_COLL_REDUCE,
    .can_do = can_do,
    .n_variants = gyre_hosts_variants,
    .emit = emit,
    .n_chunks = n_chunks,
};

const struct gyre_algorithm gyre_algorithm_nccl_tree = {
    .name = "nccl_tree",
    .summary = "tree of NCCL: on one host a chain for each half of the data",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE,
    .can_do = can_do,
    .n_variants = gyre_hosts_variants,
    .emit = emit_nccl,
    .n_chunks = n_chunks,
};
