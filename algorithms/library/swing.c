/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs at distances 1, -1, 3, -5, 11, ..., for fewer hops on a torus: 2^k/3 in place of 2^k. Even
 * ranks add the distance, odd ranks subtract it. Eight ranks:
 *
 *   step 0   0 1   2 3   4 5   6 7
 *   step 1   0 7   1 2   3 4   5 6
 *   step 2   0 3   1 6   2 5   4 7
 *
 * `swing` (De Sensi et al., Swing: short-cutting rings for higher bandwidth allreduce, NSDI 2024)
 * begins with step 0: the largest messages go to neighbours. `bine` (De Sensi et al., Bine trees,
 * SC 2025: the butterfly whose distances halve) begins with the last step: the blocks of a message
 * follow each other. Both need even numbers of ranks.
 *
 * `pairs` has distances 1, 2, 4, ... of halving, the nearest first, to compare with.
 *
 * In a torus (swing:8x8) dimensions take turns (torus.h).
 *
 * Cost (n ranks, B bytes of all blocks): log2(n) hops, rounded up, and B (n-1)/n each way.
 *
 * `bine_tree`: broadcast from the root, which counts as rank 0, by the same pairs, the farthest
 * first: whoever has the vector sends it. Reduce is the way back. For 2^k ranks.
 *
 *   step 2   0 3             step 1   0 7, 3 4             step 0   0 1, 7 6, 3 2, 4 5
 *
 * Cost (n ranks, B bytes): log2(n) hops and B for each of them from the root.
 */
#include "algorithms/blocks.h"
#include "algorithms/library/butterfly.h"
#include "algorithms/library/library.h"
#include "algorithms/library/torus.h"

/* The sum of (-2)^i for i = 0 to k. */
static int distance_of(int k)
{
    int distance = 0;
    for (int i = 0, power = 1; i <= k; i++, power *= -2)
        distance += power;
    return distance;
}

static int log2_up(int n)
{
    int log = 0;
    while (1 << log < n)
        log++;
    return log;
}

static int n_steps_of(const struct gyre_torus *torus)
{
    int n_steps = 0;
    for (int dim = 0; dim < torus->n_dims; dim++)
        n_steps += log2_up(torus->sides[dim]);
    return n_steps;
}

/* Dimensions take turns, as long as they have steps left. @own_out: its own steps so far. */
static int dim_of_step(const struct gyre_torus *torus, int variant, int step, int *own_out)
{
    int dim = 0;
    *own_out = 0;
    for (int turn = 0, at = -1; at < step; turn++) {
        dim = gyre_torus_dim(torus, variant, turn);
        *own_out = turn / torus->n_dims;
        at += *own_out < log2_up(torus->sides[dim]);
    }
    return dim;
}

static int near_first(const struct gyre_butterfly *b, int rank, int step)
{
    const struct gyre_torus torus = gyre_torus_of(b->shape);
    int own;
    const int dim = dim_of_step(&torus, b->shape->variant, step, &own);
    const bool is_even = gyre_torus_at(&torus, rank, dim) % 2 == 0;
    const int sign = is_even == (b->shape->variant % 2 == 0) ? 1 : -1;
    return gyre_torus_move(&torus, rank, dim, sign * distance_of(own) % torus.sides[dim]);
}

static int power_of_two(const struct gyre_butterfly *b, int rank, int step)
{
    const struct gyre_torus torus = gyre_torus_of(b->shape);
    int own;
    const int dim = dim_of_step(&torus, b->shape->variant, step, &own);
    const int distance =
        (gyre_torus_at(&torus, rank, dim) >> own & 1) == 0 ? 1 << own : -(1 << own);
    return gyre_torus_move(&torus, rank, dim, distance);
}

static int far_first(const struct gyre_butterfly *b, int rank, int step)
{
    return near_first(b, rank, b->n_steps - 1 - step);
}

/* Of ranks less the root, in the order of the steps. @got: zeroed, one a rank. @parent_out: -1 at
 * the root. Returns how many. */
static int find_children(int n, int self, uint8_t *got, int *parent_out, int *children_out)
{
    const int n_steps = log2_up(n);
    int n_children = 0;
    got[0] = (uint8_t)(n_steps + 1); /* the step in which it gets the vector, plus 1 */
    *parent_out = -1;
    for (int step = n_steps - 1; step >= 0; step--)
        for (int from = 0; from < n; from++) {
            if (got[from] <= step + 1)
                continue;
            const int distance = distance_of(step) * (from % 2 == 0 ? 1 : -1);
            const int to = (from + distance + n) % n;
            got[to] = (uint8_t)(step + 1);
            if (to == self)
                *parent_out = from;
            if (from == self)
                children_out[n_children++] = to;
        }
    return n_children;
}

static void emit_tree(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const int n = shape->n_ranks, root = shape->root;
    struct gyre_ref refs[16], own = gyre_in(0); /* GYRE_MAX_RANKS is 2^14 */
    int children[15], parent;
    uint8_t *got = gyre_builder_allocate(builder, (size_t)n);
    if (got == NULL)
        return;
    const int n_children = find_children(n, (rank - root + n) % n, got, &parent, children);
    const struct gyre_ref up = gyre_peer((parent + root) % n, 0), out = gyre_out(0);
    const bool reduces = shape->coll == GYRE_COLL_REDUCE;
    refs[0] = reduces ? own : out;
    for (int i = 0; i < n_children; i++)
        refs[i + 1] = gyre_peer((children[i] + root) % n, 0);
    if (reduces) {
        gyre_builder_reduce(builder, 0, refs, n_children + 1, parent < 0 ? &out : &up, 1,
                            parent < 0 ? GYRE_STEP_FINAL : 0);
        return;
    }
    const int n_first = n_children < GYRE_STEP_MAX_SENDS ? n_children : GYRE_STEP_MAX_SENDS;
    own = parent < 0 ? own : up;
    gyre_builder_step(builder, 0, &own, 1, refs, n_first + 1, 0);
    if (n_children > n_first)
        gyre_builder_scatter(builder, 0, out, &refs[n_first + 1], n_children - n_first);
}

static bool can_do_tree(const struct gyre_shape *shape, struct gyre_ability *can_out,
                        const char **why_not)
{
    *can_out = (struct gyre_ability){.flow = GYRE_FLOW_CHAIN};
    *why_not = "it needs 2^k ranks";
    return (shape->n_ranks & (shape->n_ranks - 1)) == 0;
}

static bool can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not)
{
    const struct gyre_torus torus = gyre_torus_of(shape);
    *can_out = (struct gyre_ability){.ranges = true};
    if (!gyre_torus_fits(shape, why_not))
        return false;
    *why_not = torus.n_dims > 1 ? "its sides are even" : "it needs an even number of ranks";
    for (int dim = 0; dim < torus.n_dims; dim++)
        if (torus.sides[dim] % 2 != 0 && shape->n_ranks > 1)
            return false;
    return true;
}

static int n_variants(const struct gyre_shape *shape)
{
    return shape->sides == NULL ? 1 : 2 * gyre_torus_of(shape).n_dims;
}

static bool can_do_pairs(const struct gyre_shape *shape, struct gyre_ability *can_out,
                         const char **why_not)
{
    const struct gyre_torus torus = gyre_torus_of(shape);
    *can_out = (struct gyre_ability){.ranges = true};
    if (!gyre_torus_fits(shape, why_not))
        return false;
    *why_not = torus.n_dims > 1 ? "its sides are 2^k" : "it needs 2^k ranks";
    return (shape->n_ranks & (shape->n_ranks - 1)) == 0;
}

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder,
                 int (*partner)(const struct gyre_butterfly *, int, int))
{
    const struct gyre_torus torus = gyre_torus_of(shape);
    const struct gyre_butterfly butterfly = {.shape = shape,
                                             .builder = builder,
                                             .rank = rank,
                                             .n_steps = n_steps_of(&torus),
                                             .partner = partner,
                                             .is_named = partner == near_first};
    gyre_butterfly_emit(&butterfly);
}

static void emit_swing(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit(shape, rank, builder, near_first);
}

static void emit_bine(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit(shape, rank, builder, far_first);
}

static void emit_pairs(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit(shape, rank, builder, power_of_two);
}

const struct gyre_algorithm gyre_algorithm_swing = {
    .name = "swing",
    .summary =
        "pairs at distance 1, -1, 3, -5, 11, ..., the nearest first; an even number of ranks",
    .collectives = GYRE_BLOCKS_COLLECTIVES,
    .can_do = can_do,
    .n_variants = n_variants,
    .emit = emit_swing,
    .n_chunks = gyre_blocks_n_chunks,
};

const struct gyre_algorithm gyre_algorithm_bine = {
    .name = "bine",
    .summary = "the pairs of swing, the farthest first; an even number of ranks",
    .collectives = GYRE_BLOCKS_COLLECTIVES,
    .can_do = can_do,
    .n_variants = n_variants,
    .emit = emit_bine,
    .n_chunks = gyre_blocks_n_chunks,
};

const struct gyre_algorithm gyre_algorithm_pairs = {
    .name = "pairs",
    .summary = "pairs at distance 1, 2, 4, ..., the nearest first; 2^k ranks",
    .collectives = GYRE_BLOCKS_COLLECTIVES,
    .can_do = can_do_pairs,
    .n_variants = n_variants,
    .emit = emit_pairs,
    .n_chunks = gyre_blocks_n_chunks,
};

const struct gyre_algorithm gyre_algorithm_bine_tree = {
    .name = "bine_tree",
    .summary = "a tree of the pairs of bine; 2^k ranks",
    .collectives = 1U << GYRE_COLL_BROADCAST | 1U << GYRE_COLL_REDUCE,
    .can_do = can_do_tree,
    .emit = emit_tree,
};
