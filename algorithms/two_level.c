/* SPDX-License-Identifier: Apache-2.0
 *
 * Two levels: inside the host, along the rails between hosts, inside the host (two_level.h says
 * what a rail and an owner are). All-reduce of two hosts of two ranks, with one chunk for each of
 * the two rails, by pairs:
 *
 *   round   host 0: ranks 0 and 1             host 1: ranks 2 and 3
 *     0     chunk 1: 0 -> 1, chunk 0: 1 -> 0  chunk 1: 2 -> 3, chunk 0: 3 -> 2   own input
 *     1     chunk 0: 0 -> 2, chunk 1: 1 -> 3  chunk 0: 2 -> 0, chunk 1: 3 -> 1   sum of the host
 *     2     chunk 0: 0 -> 1, chunk 1: 1 -> 0  chunk 0: 2 -> 3, chunk 1: 3 -> 2   finished
 *
 * Along the rails there are three ways, each an algorithm of its own. Cost of all-reduce (h hosts
 * of g ranks, B bytes), in network hops and in bytes that a NIC sends:
 *
 *   two_level_ring  2(h-1) hops, 2(h-1)/h B/g   few hosts, long vectors
 *   two_level_tree  2 log2(h) hops, 2 B/g       double binary tree, pipelined by tiles: many hosts
 *   two_level_log   log2(h) hops, log2(h) B/g   pairs at distance 1, 2, 4, ...: short vectors
 *
 * Broadcast and reduce are in two_level_rooted.c, reduce-scatter and all-gather in
 * two_level_blocks.c: two_level_ring carries blocks round rings, two_level_tree along one tree for
 * each block.
 *
 * In each case there are two more hops inside the hosts, where every rank sends and receives
 * 2(g-1)/g B. Hosts of different sizes have as many rails as the smallest one has ranks.
 */
#include "algorithms/two_level.h"

#include "algorithms/algorithm.h"
#include "algorithms/binary_tree.h"
#include "algorithms/pairs.h"

/* ---- all-reduce ----------------------------------------------------------------------------- */

/* The outputs of a finished chunk: OUT, then those along the rail, then the host's other ranks. */
static int finished_outs(const struct gyre_two_level *level, int chunk,
                         const struct gyre_ref *along, int n_along)
{
    level->outs[0] = gyre_out(chunk);
    for (int i = 0; i < n_along; i++)
        level->outs[1 + i] = along[i];
    return 1 + n_along +
           gyre_two_level_hand_out(level, -1, GYRE_LANE_SECOND, &level->outs[1 + n_along]);
}

/* All-reduce along the rail by a ring. The rail's chunk is cut into one piece for each host. The
 * sends to owners have a worker of their own: they take so long that the NICs would wait for them.
 */
static void emit_ring(const struct gyre_two_level *level)
{
    const int n = level->hosts->n_hosts;
    const struct gyre_ref next = gyre_two_level_at_host(level, level->host + 1);
    const struct gyre_ref prev = gyre_two_level_at_host(level, level->host - 1);
    for (int round = 0; round < n; round++)
        gyre_two_level_send_to_owners(level, (level->host - 1 - round + 2 * n) % n, n);
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
        gyre_two_level_keep_from_owners(level, (level->host - round + n) % n, n);
}

static void emit_tree(const struct gyre_two_level *level, int tree)
{
    const int chunk = level->rail;
    struct gyre_two_level_place place = {.is_top = false};
    gyre_two_level_send_to_owners(level, 0, 1);
    if (level->rail >= 0) {
        place = gyre_two_level_place_on_rail(level, false, tree, -1);
        int n_ins = gyre_two_level_collect(level, chunk, GYRE_LANE_FIRST, level->ins);
        for (int i = 0; i < place.n_children; i++)
            level->ins[n_ins++] = place.children[i];
        if (place.is_top) {
            const int n_outs = finished_outs(level, chunk, place.children, place.n_children);
            gyre_two_level_move(level, chunk, level->ins, n_ins, level->outs, n_outs,
                                GYRE_STEP_FINAL);
        } else {
            gyre_two_level_move(level, chunk, level->ins, n_ins, &place.parent, 1, 0);
        }
    }
    gyre_builder_worker(level->builder);
    if (level->rail >= 0 && !place.is_top) {
        const int n_outs = finished_outs(level, chunk, place.children, place.n_children);
        gyre_two_level_move(level, chunk, &place.parent, 1, level->outs, n_outs, 0);
    }
    gyre_two_level_keep_from_owners(level, 0, 1);
}

/* Pairs of hosts at distance 1, 2, 4, ... exchange their sums. If the number of hosts is no power
 * of two, the last ones are folded: each adds its part to a host at the largest such distance
 * before it first, and gets the result from there. So all distances are powers of two, and the
 * pairs are near (near.c). */
static void emit_pairs(const struct gyre_two_level *level)
{
    const int chunk = level->rail;
    const int n_hosts = level->hosts->n_hosts;
    const int n_pairing = gyre_pairs_of(n_hosts).n_pairing;
    int n_ins = gyre_two_level_collect(level, chunk, GYRE_LANE_FIRST, level->ins);
    if (level->host >= n_pairing) {
        const struct gyre_ref before = gyre_two_level_at_host(level, level->host - n_pairing);
        gyre_two_level_move(level, chunk, level->ins, n_ins, &before, 1, 0);
        const int n_outs = finished_outs(level, chunk, NULL, 0);
        gyre_two_level_move(level, chunk, &before, 1, level->outs, n_outs, 0);
        return;
    }
    const bool has_folded = level->host + n_pairing < n_hosts;
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

static void emit_log(const struct gyre_two_level *level)
{
    gyre_two_level_send_to_owners(level, 0, 1);
    if (level->rail >= 0)
        emit_pairs(level);
    gyre_builder_worker(level->builder);
    gyre_two_level_keep_from_owners(level, 0, 1);
}

/* ---- the algorithms ------------------------------------------------------------------------- */

/* @emit_all_reduce: writes the steps of all-reduce in this algorithm's way along the rails. */
static void emit_by(const struct gyre_shape *shape, int rank, struct gyre_builder *builder,
                    bool is_chain, void (*emit_all_reduce)(const struct gyre_two_level *))
{
    struct gyre_two_level level;
    if (!gyre_two_level_open(shape, rank, builder, &level))
        return;
    switch (shape->coll) {
    case GYRE_COLL_ALL_REDUCE:
        emit_all_reduce(&level);
        break;
    case GYRE_COLL_REDUCE_SCATTER:
        gyre_two_level_reduce_scatter(&level, is_chain);
        break;
    case GYRE_COLL_ALL_GATHER:
        gyre_two_level_all_gather(&level, is_chain);
        break;
    case GYRE_COLL_BROADCAST:
        gyre_two_level_broadcast(&level, shape->root, is_chain, shape->variant);
        break;
    default:
        gyre_two_level_reduce(&level, shape->root, is_chain, shape->variant);
    }
}

static void emit_by_ring(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit_by(shape, rank, builder, true, emit_ring);
}

static void emit_first_tree(const struct gyre_two_level *level)
{
    emit_tree(level, 0);
}

static void emit_second_tree(const struct gyre_two_level *level)
{
    emit_tree(level, 1);
}

static void emit_by_tree(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit_by(shape, rank, builder, false, shape->variant == 0 ? emit_first_tree : emit_second_tree);
}

static void emit_by_log(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit_by(shape, rank, builder, false, emit_log);
}

static bool has_blocks(enum gyre_collective coll)
{
    return gyre_collectives[coll].in_blocks || gyre_collectives[coll].out_blocks;
}

/* If a host has more ranks than there are rails, some rails carry more blocks than others; in each
 * variant these are other rails. */
static int count_block_variants(const struct gyre_shape *shape)
{
    const int n = gyre_hosts_rails(shape);
    const bool is_even = shape->grouping == NULL || n * shape->grouping->n_hosts == shape->n_ranks;
    return is_even ? 1 : n < GYRE_MAX_VARIANTS ? n : GYRE_MAX_VARIANTS;
}

static int count_ring_variants(const struct gyre_shape *shape)
{
    return has_blocks(shape->coll) ? count_block_variants(shape) : 1;
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
    const int n_hosts = shape->grouping == NULL ? 1 : shape->grouping->n_hosts;
    if (has_blocks(shape->coll))
        return 1;
    return gyre_hosts_rails(shape) * (shape->coll == GYRE_COLL_ALL_REDUCE ? n_hosts : 1);
}

const struct gyre_algorithm gyre_algorithm_two_level_ring = {
    .name = "two_level_ring",
    .summary = "inside hosts all pairs, between them rings along all rails",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_BROADCAST | 1U << GYRE_COLL_REDUCE |
                   1U << GYRE_COLL_ALL_GATHER | 1U << GYRE_COLL_REDUCE_SCATTER,
    .keeps_near = 1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_BROADCAST | 1U << GYRE_COLL_REDUCE |
                  1U << GYRE_COLL_ALL_GATHER | 1U << GYRE_COLL_REDUCE_SCATTER,
    .is_two_level = true,
    .n_variants = count_ring_variants,
    .emit = emit_by_ring,
    .n_chunks = n_ring_chunks,
};

const struct gyre_algorithm gyre_algorithm_two_level_tree = {
    .name = "two_level_tree",
    .summary = "inside hosts all pairs, between them trees along all rails",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_BROADCAST | 1U << GYRE_COLL_REDUCE |
                   1U << GYRE_COLL_ALL_GATHER | 1U << GYRE_COLL_REDUCE_SCATTER,
    .keeps_near = 1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_BROADCAST | 1U << GYRE_COLL_REDUCE |
                  1U << GYRE_COLL_ALL_GATHER | 1U << GYRE_COLL_REDUCE_SCATTER,
    .is_two_level = true,
    .fans_in = 1U << GYRE_COLL_ALL_GATHER | 1U << GYRE_COLL_REDUCE_SCATTER,
    .n_variants = count_tree_variants,
    .emit = emit_by_tree,
    .n_chunks = n_rails,
};

const struct gyre_algorithm gyre_algorithm_two_level_log = {
    .name = "two_level_log",
    .summary = "inside hosts all pairs, between them pairs at distance 1, 2, 4, ...",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE,
    .keeps_near = 1U << GYRE_COLL_ALL_REDUCE,
    .is_two_level = true,
    .keeps_sums = true,
    .emit = emit_by_log,
    .n_chunks = n_rails,
};
