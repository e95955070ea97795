/* SPDX-License-Identifier: Apache-2.0
 *
 * All-reduce if one host has lost a part of its bandwidth. The other m = n - 1 ranks are a ring on
 * m chunks. The weak rank w gives each chunk to another rank of the ring, which adds it on the way,
 * and gets each sum from another rank, so that it moves less than the others. Four ranks, w = 3; c2
 * is a sum of chunk c over two ranks, a capital letter is a finished chunk:
 *
 *   round     0 -> 1     1 -> 2     2 -> 0     w
 *     0         a2         b          c        a to 0     own input, rank 0 adds w's a
 *     1         c2         a3         b3       b to 2     receive, add own input, send
 *
 *   round     0 -> 2     2 -> 1     1 -> 0     w
 *     2         B          A          C        c to 1     receive, finish, keep and send
 *                                              A from 2
 *     3         C          B          A        C from 0   receive, keep and send
 *               keeps A    keeps C    keeps B  B from 1   ... and the last one is only kept
 *
 * Two workers sum up and pass on, on successive tiles: a ring alone would stand still whenever a
 * port is busy with w's slot. The first sums travel back in lane 0, those passed on in lane 1. Cost
 * (B bytes): 2 m - 1 hops; w moves B each way, the others 2 B - B / m. After OptCC (arXiv
 * 2606.01680), whose four stages are others.
 */
#include "algorithms/algorithm.h"

struct leaf {
    struct gyre_builder *builder;
    int m;
    int weak; /* with one rank a host, a host has its rank's number; else the last rank */
};

/* Of the ring. */
static struct gyre_ref at(const struct leaf *leaf, int position, int lane)
{
    const int i = (position + leaf->m) % leaf->m;
    return gyre_peer(i < leaf->weak ? i : i + 1, lane);
}

/* If m is even, doubled numbers meet every second position only, so half of them move by one. */
static int moved(const struct leaf *leaf, int chunk)
{
    return leaf->m % 2 == 0 && 2 * chunk >= leaf->m ? 1 : 0;
}

/* The position that adds the weak rank's chunk, in round `chunk` or the next one. */
static int adder(const struct leaf *leaf, int chunk)
{
    return (2 * chunk + moved(leaf, chunk)) % leaf->m;
}

/* The position that gives the sum to the weak rank. */
static int giver(const struct leaf *leaf, int chunk)
{
    return (2 * chunk - 1 - moved(leaf, chunk) + leaf->m) % leaf->m;
}

static void emit_weak(const struct leaf *leaf)
{
    const int m = leaf->m, first = m % 2 == 0 ? m - 1 : 0; /* is added in round 0 */
    gyre_builder_worker(leaf->builder);
    for (int i = 0; i < m; i++) {
        const int chunk = (first + i) % m;
        const struct gyre_ref in = gyre_in(chunk), out = at(leaf, adder(leaf, chunk), 0);
        gyre_builder_step(leaf->builder, chunk, &in, 1, &out, 1, 0);
    }
    gyre_builder_worker(leaf->builder);
    for (int i = 0; i < m; i++) {
        const int chunk = (m - i) % m;
        const bool is_first = giver(leaf, chunk) == (chunk - 1 + m) % m; /* that has the sum */
        const struct gyre_ref in = at(leaf, giver(leaf, chunk), is_first ? 0 : 1);
        const struct gyre_ref out = gyre_out(chunk);
        gyre_builder_step(leaf->builder, chunk, &in, 1, &out, 1, 0);
    }
}

/* Between two ranks both ways of the ring are one pair's. */
static int lane_of_sum(const struct leaf *leaf)
{
    return leaf->m == 2 ? 1 : 0;
}

static void emit_sums(const struct leaf *leaf, int position)
{
    const int m = leaf->m;
    gyre_builder_worker(leaf->builder);
    for (int round = 0; round < m; round++) {
        const int chunk = (position - round + m) % m;
        const bool is_final = round == m - 1;
        struct gyre_ref ins[3], outs[3];
        int n_ins = 0, n_outs = 0;
        if (round > 0)
            ins[n_ins++] = at(leaf, position - 1, 0);
        if (adder(leaf, chunk) == position)
            ins[n_ins++] = gyre_peer(leaf->weak, 0);
        ins[n_ins++] = gyre_in(chunk);
        if (is_final)
            outs[n_outs++] = gyre_out(chunk);
        if (m > 1)
            outs[n_outs++] =
                is_final ? at(leaf, position - 1, lane_of_sum(leaf)) : at(leaf, position + 1, 0);
        if (is_final && giver(leaf, chunk) == position)
            outs[n_outs++] = gyre_peer(leaf->weak, 0);
        gyre_builder_step(leaf->builder, chunk, ins, n_ins, outs, n_outs,
                          is_final ? GYRE_STEP_FINAL : 0);
    }
}

static void pass_sums_on(const struct leaf *leaf, int position)
{
    const int m = leaf->m;
    gyre_builder_worker(leaf->builder);
    for (int hop = 1; hop < m; hop++) {
        const int chunk = (position + hop + 1) % m;
        const struct gyre_ref in = at(leaf, position + 1, hop == 1 ? lane_of_sum(leaf) : 1);
        struct gyre_ref outs[3] = {gyre_out(chunk)};
        int n_outs = 1;
        if (hop < m - 1)
            outs[n_outs++] = at(leaf, position - 1, 1);
        if (giver(leaf, chunk) == position)
            outs[n_outs++] = gyre_peer(leaf->weak, 1);
        gyre_builder_step(leaf->builder, chunk, &in, 1, outs, n_outs, 0);
    }
}

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const int m = shape->n_ranks - 1;
    const struct leaf leaf = {builder, m,
                              gyre_leaf_obstacle(shape) == NULL ? shape->grouping->weak_host : m};
    gyre_builder_lanes(builder, 2);
    gyre_builder_min_depth(builder, 2);
    if (rank == leaf.weak) {
        emit_weak(&leaf);
        return;
    }
    const int position = rank < leaf.weak ? rank : rank - 1;
    emit_sums(&leaf, position);
    pass_sums_on(&leaf, position);
}

static int n_chunks(const struct gyre_shape *shape)
{
    return shape->n_ranks - 1;
}

static bool can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not)
{
    (void)shape;
    (void)why_not;
    *can_out = (struct gyre_ability){.flow = GYRE_FLOW_SPARING};
    return true;
}

const char *gyre_leaf_obstacle(const struct gyre_shape *shape)
{
    const struct gyre_grouping *grouping = shape->grouping;
    if (grouping == NULL || grouping->weak_part <= 0)
        return "no host has fewer RDMA ports than every other one";
    if (grouping->n_hosts < shape->n_ranks)
        return "a host has several ranks";
    return shape->n_ranks < 3 ? "there are two hosts" : NULL;
}

const struct gyre_algorithm gyre_algorithm_leaf = {
    .name = "leaf",
    .summary = "ring of all hosts but a weak one, which moves less; for a host that lost ports",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE,
    .can_do = can_do,
    .emit = emit,
    .n_chunks = n_chunks,
};
