/* SPDX-License-Identifier: Apache-2.0
 *
 * Rails are described in hosts.h. All-reduce of two hosts of two ranks, a chunk for each rail,
 * by pairs:
 *
 *   round   host 0: ranks 0 and 1             host 1: ranks 2 and 3
 *     0     chunk 1: 0 -> 1, chunk 0: 1 -> 0  chunk 1: 2 -> 3, chunk 0: 3 -> 2   own input
 *     1     chunk 0: 0 -> 2, chunk 1: 1 -> 3  chunk 0: 2 -> 0, chunk 1: 3 -> 1   sum of the host
 *     2     chunk 0: 0 -> 1, chunk 1: 1 -> 0  chunk 0: 2 -> 3, chunk 1: 3 -> 2   finished
 *
 * Cost of all-reduce (h hosts of g ranks, B bytes), in network hops and in bytes that a NIC sends,
 * besides two hops inside hosts, where a rank sends 2(g-1)/g B:
 *
 *   two_level_ring  2(h-1) hops, 2(h-1)/h B/g   few hosts, long vectors
 *   two_level_tree  2 log2(h) hops, 2 B/g       double binary tree, pipelined by tiles: many hosts
 *   two_level_log   log2(h) hops, log2(h) B/g   pairs at distance 1, 2, 4, ...: short vectors
 *
 * Reduce-scatter and all-gather are in two_level_blocks.c.
 */
#include "algorithms/hosts.h"

#include "algorithms/algorithm.h"

struct place {
    bool is_top;
    struct gyre_ref parent;
    int n_children;
    struct gyre_ref children[2];
};

/* False = no memory, which the builder remembers. */
static bool open_level(const struct gyre_shape *shape, int rank, struct gyre_builder *builder,
                       struct gyre_two_level *level_out)
{
    struct gyre_two_level level = {.hosts = gyre_hosts_open(shape, false, builder),
                                   .builder = builder,
                                   .n_rails = gyre_hosts_rails(shape),
                                   .variant = shape->variant,
                                   .rank = rank,
                                   .rail = -1};
    if (level.hosts == NULL)
        return false;
    gyre_hosts_find(level.hosts, rank, &level.host, &level.position);
    for (int rail = 0; rail < level.n_rails; rail++)
        if (gyre_two_level_owner(&level, level.host, rail) == rank)
            level.rail = rail;
    const size_t n_refs = (size_t)gyre_hosts_size(level.hosts, level.host) + GYRE_MORE_REFS;
    level.ins = gyre_builder_allocate(builder, n_refs * sizeof(*level.ins));
    level.outs = gyre_builder_allocate(builder, n_refs * sizeof(*level.outs));
    gyre_builder_lanes(builder, 2);
    gyre_builder_min_depth(builder, 2);
    *level_out = level;
    return level.ins != NULL && level.outs != NULL;
}

static bool is_inside_host(const struct gyre_two_level *level, struct gyre_ref ref)
{
    const int size = gyre_hosts_size(level->hosts, level->host);
    for (int i = 0; i < size && ref.kind == GYRE_OPERAND_CONNECTION; i++)
        if (gyre_hosts_rank(level->hosts, level->host, i) == ref.index)
            return true;
    return false;
}

/* If a step has too few outputs, the first one has those to other hosts, so that data leave
 * early. */
static int count_first_outs(const struct gyre_two_level *level, const struct gyre_ref *outs,
                            int n_outs)
{
    int n_first = (n_outs - GYRE_STEP_MAX_OUTS) % GYRE_STEP_MAX_SENDS;
    n_first += n_first == 0 ? GYRE_STEP_MAX_OUTS : 1;
    while (n_first < GYRE_STEP_MAX_OUTS && !is_inside_host(level, outs[n_first]))
        n_first++;
    return n_first;
}

void gyre_two_level_move(const struct gyre_two_level *level, int chunk, const struct gyre_ref *ins,
                         int n_ins, const struct gyre_ref *outs, int n_outs, unsigned flags)
{
    struct gyre_builder *builder = level->builder;
    const int n_first =
        n_outs <= GYRE_STEP_MAX_OUTS ? n_outs : count_first_outs(level, outs, n_outs);
    int n_recvs = 0;
    for (int i = 0; i < n_ins; i++)
        n_recvs += ins[i].kind == GYRE_OPERAND_CONNECTION;
    if (n_recvs <= GYRE_STEP_MAX_RECVS)
        gyre_builder_step(builder, chunk, ins, n_ins, outs, n_first, flags);
    else
        gyre_builder_reduce(builder, chunk, ins, n_ins, outs, n_first, flags);
    if (n_outs > n_first)
        gyre_builder_scatter(builder, chunk, outs[0], &outs[n_first], n_outs - n_first);
}

/* One after the other: once an owner has a chunk, the result may come back and be written over IN.
 * @part: which of the n_parts chunks of each rail. */
static void send_to_owners(const struct gyre_two_level *level, int part, int n_parts)
{
    for (int i = 1; i <= gyre_two_level_others(level); i++) {
        const int rail = (level->rail + i) % level->n_rails;
        const int chunk = rail * n_parts + part;
        const struct gyre_ref in = gyre_in(chunk);
        const struct gyre_ref out =
            gyre_peer(gyre_two_level_owner(level, level->host, rail), GYRE_LANE_FIRST);
        gyre_builder_step(level->builder, chunk, &in, 1, &out, 1, 0);
    }
}

static void keep_from_owners(const struct gyre_two_level *level, int part, int n_parts)
{
    for (int i = gyre_two_level_others(level); i > 0; i--) {
        const int rail = (level->rail + i) % level->n_rails;
        const int chunk = rail * n_parts + part;
        const struct gyre_ref in =
            gyre_peer(gyre_two_level_owner(level, level->host, rail), GYRE_LANE_SECOND);
        const struct gyre_ref out = gyre_out(chunk);
        gyre_builder_step(level->builder, chunk, &in, 1, &out, 1, i > 1 ? GYRE_STEP_WITH_NEXT : 0);
    }
}

/* With is_chain a chain that begins at root_host, else a tree, whose root is above all items.
 * @root_host: -1 = none. */
static struct place place_on_rail(const struct gyre_two_level *level, bool is_chain, int tree,
                                  int root_host)
{
    const int n_hosts = level->hosts->n_hosts;
    const int above = is_chain || root_host < 0 ? 0 : 1;
    const int base = root_host < 0 ? 0 : root_host;
    const int item = (level->host - base + n_hosts) % n_hosts - above;
    struct place place = {.is_top = false};
    int parent, children[2];
    if (item < 0) {
        parent = -1;
        children[0] = n_hosts > 1 ? gyre_tree_top(tree, n_hosts - 1) : 0;
        place.n_children = n_hosts > 1 ? 1 : 0;
    } else if (is_chain) {
        parent = item - 1;
        children[0] = item + 1;
        place.n_children = item + 1 < n_hosts ? 1 : 0;
    } else {
        parent = gyre_tree_parent(tree, n_hosts - above, item);
        place.n_children = gyre_tree_children(tree, n_hosts - above, item, children);
    }
    place.is_top = parent < 0 && (above == 0 || item < 0);
    if (!place.is_top)
        place.parent = gyre_two_level_at_host(level, base + above + parent);
    for (int i = 0; i < place.n_children; i++)
        place.children[i] = gyre_two_level_at_host(level, base + above + children[i]);
    return place;
}

/* OUT, then along the rail, then inside the host. */
static int finished_outs(const struct gyre_two_level *level, int chunk,
                         const struct gyre_ref *along, int n_along)
{
    level->outs[0] = gyre_out(chunk);
    for (int i = 0; i < n_along; i++)
        level->outs[1 + i] = along[i];
    return 1 + n_along +
           gyre_two_level_hand_out(level, -1, GYRE_LANE_SECOND, &level->outs[1 + n_along]);
}

/* The rail's chunk has a part for each host. The sends to owners have a worker of their own,
 * because NICs would wait for them. */
static void emit_rings(const struct gyre_two_level *level)
{
    const int n = level->hosts->n_hosts;
    const struct gyre_ref next = gyre_two_level_at_host(level, level->host + 1);
    const struct gyre_ref prev = gyre_two_level_at_host(level, level->host - 1);
    for (int round = 0; round < n; round++)
        send_to_owners(level, (level->host - 1 - round + 2 * n) % n, n);
    gyre_builder_worker(level->builder);
    for (int round = 0; round < n && level->rail >= 0; round++) {
        const int chunk = level->rail * n + (level->host - 1 - round + 2 * n) % n;
        int n_ins = gyre_two_level_collect(level, chunk, GYRE_LANE_FIRST, level->ins);
        if (round > 0)
            level->ins[n_ins++] = prev;
        if (round < n - 1) {
            gyre_two_level_move(level, chunk, level->ins, n_ins, &next, 1, 0);
            continue;
        }
        const int n_outs = finished_outs(level, chunk, &next, n > 1 ? 1 : 0);
        gyre_two_level_move(level, chunk, level->ins, n_ins, level->outs, n_outs, GYRE_STEP_FINAL);
    }
    for (int round = 1; round < n && level->rail >= 0; round++) {
        const int chunk = level->rail * n + (level->host - round + n) % n;
        const int n_outs = finished_outs(level, chunk, &next, round < n - 1 ? 1 : 0);
        gyre_two_level_move(level, chunk, &prev, 1, level->outs, n_outs, 0);
    }
    gyre_builder_worker(level->builder);
    for (int round = 0; round < n; round++)
        keep_from_owners(level, (level->host - round + n) % n, n);
}

static void emit_tree(const struct gyre_two_level *level, int tree)
{
    const int chunk = level->rail;
    struct place place = {.is_top = true};
    int n_outs = 0;
    if (level->rail >= 0) {
        place = place_on_rail(level, false, tree, -1);
        int n_ins = gyre_two_level_collect(level, chunk, GYRE_LANE_FIRST, level->ins);
        for (int i = 0; i < place.n_children; i++)
            level->ins[n_ins++] = place.children[i];
        n_outs = finished_outs(level, chunk, place.children, place.n_children);
        if (place.is_top)
            gyre_two_level_move(level, chunk, level->ins, n_ins, level->outs, n_outs,
                                GYRE_STEP_FINAL);
        else
            gyre_two_level_move(level, chunk, level->ins, n_ins, &place.parent, 1, 0);
    }
    gyre_builder_worker(level->builder);
    if (!place.is_top)
        gyre_two_level_move(level, chunk, &place.parent, 1, level->outs, n_outs, 0);
}

/* If the number of hosts is no power of two, each of the last ones adds its part to a host at the
 * largest distance before it. So all pairs are at powers of two, and near (neighbours.c). */
static void emit_pairs(const struct gyre_two_level *level)
{
    const int chunk = level->rail;
    int n_pairing = 1;
    if (level->rail < 0)
        return;
    while (n_pairing * 2 <= level->hosts->n_hosts)
        n_pairing *= 2;
    int n_ins = gyre_two_level_collect(level, chunk, GYRE_LANE_FIRST, level->ins);
    if (level->host >= n_pairing) {
        const struct gyre_ref before = gyre_two_level_at_host(level, level->host - n_pairing);
        gyre_two_level_move(level, chunk, level->ins, n_ins, &before, 1, 0);
        const int n_outs = finished_outs(level, chunk, NULL, 0);
        gyre_two_level_move(level, chunk, &before, 1, level->outs, n_outs, 0);
        return;
    }
    const bool has_folded = level->host + n_pairing < level->hosts->n_hosts;
    const struct gyre_ref sum = gyre_scratch(0);
    struct gyre_ref folded = sum;
    if (has_folded) {
        folded = gyre_two_level_at_host(level, level->host + n_pairing);
        level->ins[n_ins++] = folded;
    }
    for (int distance = 1; distance < n_pairing; distance *= 2) {
        const int other = level->host ^ distance;
        const struct gyre_ref partner = gyre_two_level_at_host(level, other);
        const struct gyre_ref outs[] = {sum, partner};
        gyre_two_level_move(level, chunk, level->ins, n_ins, outs, 2, 0);
        level->ins[0] = level->host < other ? sum : partner;
        level->ins[1] = level->host < other ? partner : sum;
        n_ins = 2;
    }
    const int n_outs = finished_outs(level, chunk, &folded, has_folded ? 1 : 0);
    gyre_two_level_move(level, chunk, level->ins, n_ins, level->outs, n_outs, GYRE_STEP_FINAL);
}

/* The root's own chunk comes from the rank before this one, and goes on to the next. @root_rail: -1
 * = the root owns none. */
static void keep_beside_root(const struct gyre_two_level *level, int root_rail, int root_position)
{
    const struct gyre_hosts *hosts = level->hosts;
    const int size = gyre_hosts_size(hosts, level->host);
    const int n_after = (level->position - root_position + size) % size; /* 1 = next to the root */
    const int before = gyre_hosts_rank(hosts, level->host, level->position - 1);
    const int after = gyre_hosts_rank(hosts, level->host, level->position + 1);
    for (int i = gyre_two_level_others(level); i > 0; i--) {
        const int rail = (level->rail + i) % level->n_rails;
        const bool is_passed_on = rail == root_rail;
        const struct gyre_ref in =
            is_passed_on
                ? gyre_peer(before, n_after == 1 ? GYRE_LANE_SECOND : GYRE_LANE_FIRST)
                : gyre_peer(gyre_two_level_owner(level, level->host, rail), GYRE_LANE_SECOND);
        const struct gyre_ref outs[] = {gyre_out(rail), gyre_peer(after, GYRE_LANE_FIRST)};
        gyre_builder_step(level->builder, rail, &in, 1, outs,
                          is_passed_on && n_after + 1 < size ? 2 : 1,
                          i > 1 ? GYRE_STEP_WITH_NEXT : 0);
    }
}

/* Each of two workers handles half of the rails, and keeps the chunks. */
static void send_to_rails(const struct gyre_two_level *level, int worker)
{
    for (int i = gyre_two_level_others(level) - worker; i > 0; i -= 2) {
        const int rail = (level->rail + i) % level->n_rails;
        const struct gyre_ref in = gyre_in(rail);
        const struct gyre_ref outs[] = {
            gyre_peer(gyre_two_level_owner(level, level->host, rail), GYRE_LANE_FIRST),
            gyre_out(rail)};
        gyre_builder_step(level->builder, rail, &in, 1, outs, 2, 0);
    }
}

/* The root gives the chunk of its own rail to the next rank only, and every rank passes it on, so
 * that the root does not send nearly twice the data. */
static void emit_broadcast(const struct gyre_two_level *level, int root, bool is_chain, int tree)
{
    int root_host, position, root_rail = -1;
    gyre_hosts_find(level->hosts, root, &root_host, &position);
    for (int rail = 0; rail < level->n_rails; rail++)
        if (gyre_two_level_owner(level, root_host, rail) == root)
            root_rail = rail;
    if (level->rank == root)
        send_to_rails(level, 0);
    if (level->rail >= 0) {
        const struct place place = place_on_rail(level, is_chain, tree, root_host);
        int n_outs = 0;
        level->outs[n_outs++] = gyre_out(level->rail);
        for (int i = 0; i < place.n_children; i++)
            level->outs[n_outs++] = place.children[i];
        if (level->rank != root)
            n_outs += gyre_two_level_hand_out(level, root, GYRE_LANE_SECOND, &level->outs[n_outs]);
        else if (gyre_hosts_size(level->hosts, root_host) > 1)
            level->outs[n_outs++] =
                gyre_peer(gyre_hosts_rank(level->hosts, root_host, position + 1), GYRE_LANE_SECOND);
        const struct gyre_ref in = level->rank == root        ? gyre_in(level->rail)
                                   : level->host == root_host ? gyre_peer(root, GYRE_LANE_FIRST)
                                                              : place.parent;
        gyre_two_level_move(level, level->rail, &in, 1, level->outs, n_outs, 0);
    }
    gyre_builder_worker(level->builder);
    if (level->rank == root)
        send_to_rails(level, 1);
    else if (level->host == root_host)
        keep_beside_root(level, root_rail, position);
    else
        keep_from_owners(level, 0, 1);
}

static void emit_reduce(const struct gyre_two_level *level, int root, bool is_chain, int tree)
{
    int root_host, position;
    gyre_hosts_find(level->hosts, root, &root_host, &position);
    send_to_owners(level, 0, 1);
    gyre_builder_worker(level->builder);
    if (level->rail >= 0) {
        const struct place place = place_on_rail(level, is_chain, tree, root_host);
        const struct gyre_ref out = level->rank == root        ? gyre_out(level->rail)
                                    : level->host == root_host ? gyre_peer(root, GYRE_LANE_SECOND)
                                                               : place.parent;
        int n_ins = gyre_two_level_collect(level, level->rail, GYRE_LANE_FIRST, level->ins);
        for (int i = 0; i < place.n_children; i++)
            level->ins[n_ins++] = place.children[i];
        gyre_two_level_move(level, level->rail, level->ins, n_ins, &out, 1,
                            level->host == root_host ? GYRE_STEP_FINAL : 0);
    }
    gyre_builder_worker(level->builder);
    if (level->rank == root)
        keep_from_owners(level, 0, 1);
}

enum along { RINGS, TREES, PAIRS };

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder,
                 enum along along)
{
    struct gyre_two_level level;
    if (!open_level(shape, rank, builder, &level))
        return;
    switch (shape->coll) {
    case GYRE_COLL_ALL_REDUCE:
        if (along == RINGS) {
            emit_rings(&level);
            break;
        }
        send_to_owners(&level, 0, 1);
        if (along == TREES) {
            emit_tree(&level, shape->variant);
        } else {
            emit_pairs(&level);
            gyre_builder_worker(builder);
        }
        keep_from_owners(&level, 0, 1);
        break;
    case GYRE_COLL_REDUCE_SCATTER:
        gyre_two_level_reduce_scatter(&level, along == RINGS);
        break;
    case GYRE_COLL_ALL_GATHER:
        gyre_two_level_all_gather(&level, along == RINGS);
        break;
    case GYRE_COLL_BROADCAST:
        emit_broadcast(&level, shape->root, along == RINGS, shape->variant);
        break;
    default:
        emit_reduce(&level, shape->root, along == RINGS, shape->variant);
    }
}

static void emit_along_rings(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit(shape, rank, builder, RINGS);
}

static void emit_along_trees(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit(shape, rank, builder, TREES);
}

static void emit_along_pairs(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit(shape, rank, builder, PAIRS);
}

static bool has_blocks(enum gyre_collective coll)
{
    return gyre_collectives[coll].in_blocks || gyre_collectives[coll].out_blocks;
}

/* Ranks beyond the number of rails load some rails more; in each variant these are other rails. */
static int count_block_variants(const struct gyre_shape *shape)
{
    const int n = gyre_hosts_rails(shape);
    const bool is_even = shape->grouping == NULL || n * shape->grouping->n_hosts == shape->n_ranks;
    return is_even || !has_blocks(shape->coll) ? 1 : n < GYRE_MAX_VARIANTS ? n : GYRE_MAX_VARIANTS;
}

static int count_tree_variants(const struct gyre_shape *shape)
{
    if (has_blocks(shape->coll))
        return count_block_variants(shape);
    return shape->grouping == NULL || shape->grouping->n_hosts < 3 ? 1 : GYRE_N_TREES;
}

static int n_rails(const struct gyre_shape *shape)
{
    return has_blocks(shape->coll) ? 1 : gyre_hosts_rails(shape);
}

static int n_ring_chunks(const struct gyre_shape *shape)
{
    const bool is_cut = shape->coll == GYRE_COLL_ALL_REDUCE && shape->grouping != NULL;
    return n_rails(shape) * (is_cut ? shape->grouping->n_hosts : 1);
}

#define COLLECTIVES                                                                    \
    (1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_BROADCAST | 1U << GYRE_COLL_REDUCE | \
     1U << GYRE_COLL_ALL_GATHER | 1U << GYRE_COLL_REDUCE_SCATTER)

static bool can_do_ring(const struct gyre_shape *shape, struct gyre_ability *can_out,
                        const char **why_not)
{
    (void)shape;
    (void)why_not;
    *can_out = (struct gyre_ability){.reach = GYRE_REACH_NEAR, .two_level = true};
    return true;
}

const struct gyre_algorithm gyre_algorithm_two_level_ring = {
    .name = "two_level_ring",
    .summary = "inside hosts all pairs, between them rings along all rails",
    .collectives = COLLECTIVES,
    .can_do = can_do_ring,
    .n_variants = count_block_variants,
    .emit = emit_along_rings,
    .n_chunks = n_ring_chunks,
};

static bool can_do_tree(const struct gyre_shape *shape, struct gyre_ability *can_out,
                        const char **why_not)
{
    can_do_ring(shape, can_out, why_not);
    can_out->fans_in =
        shape->coll == GYRE_COLL_ALL_GATHER || shape->coll == GYRE_COLL_REDUCE_SCATTER;
    return true;
}

const struct gyre_algorithm gyre_algorithm_two_level_tree = {
    .name = "two_level_tree",
    .summary = "inside hosts all pairs, between them trees along all rails",
    .collectives = COLLECTIVES,
    .can_do = can_do_tree,
    .n_variants = count_tree_variants,
    .emit = emit_along_trees,
    .n_chunks = n_rails,
};

static bool can_do_log(const struct gyre_shape *shape, struct gyre_ability *can_out,
                       const char **why_not)
{
    (void)shape;
    (void)why_not;
    *can_out =
        (struct gyre_ability){.reach = GYRE_REACH_NEAR, .keeps_sums = true, .two_level = true};
    return true;
}

const struct gyre_algorithm gyre_algorithm_two_level_log = {
    .name = "two_level_log",
    .summary = "inside hosts all pairs, between them pairs at distance 1, 2, 4, ...",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE,
    .can_do = can_do_log,
    .emit = emit_along_pairs,
    .n_chunks = n_rails,
};
