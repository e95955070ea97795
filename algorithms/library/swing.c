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
 * Cost (n ranks, B bytes of all blocks): log2(n) hops, rounded up, and B (n-1)/n each way.
 */
#include "algorithms/blocks.h"
#include "algorithms/library/butterfly.h"
#include "algorithms/library/library.h"

/* The sum of (-2)^i for i = 0 to k. */
static int distance_of(int k)
{
    int distance = 0;
    for (int i = 0, power = 1; i <= k; i++, power *= -2)
        distance += power;
    return distance;
}

static int near_first(const struct gyre_butterfly *b, int rank, int step)
{
    const int n = b->shape->n_ranks;
    const int distance = distance_of(step) * (rank % 2 == 0 ? 1 : -1);
    return ((rank + distance) % n + n) % n;
}

static int far_first(const struct gyre_butterfly *b, int rank, int step)
{
    return near_first(b, rank, b->n_steps - 1 - step);
}

static bool can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not)
{
    *can_out = (struct gyre_ability){.ranges = true};
    *why_not = "it needs an even number of ranks";
    return shape->n_ranks == 1 || shape->n_ranks % 2 == 0;
}

static void emit_swing(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct gyre_butterfly butterfly = {.shape = shape,
                                             .builder = builder,
                                             .rank = rank,
                                             .n_steps = gyre_butterfly_steps(shape),
                                             .partner = near_first,
                                             .is_named = true};
    gyre_butterfly_emit(&butterfly);
}

static void emit_bine(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct gyre_butterfly butterfly = {.shape = shape,
                                             .builder = builder,
                                             .rank = rank,
                                             .n_steps = gyre_butterfly_steps(shape),
                                             .partner = far_first};
    gyre_butterfly_emit(&butterfly);
}

const struct gyre_algorithm gyre_algorithm_swing = {
    .name = "swing",
    .summary =
        "pairs at distance 1, -1, 3, -5, 11, ..., the nearest first; an even number of ranks",
    .collectives = GYRE_BLOCKS_COLLECTIVES,
    .can_do = can_do,
    .emit = emit_swing,
    .n_chunks = gyre_blocks_n_chunks,
};

const struct gyre_algorithm gyre_algorithm_bine = {
    .name = "bine",
    .summary = "the pairs of swing, the farthest first; an even number of ranks",
    .collectives = GYRE_BLOCKS_COLLECTIVES,
    .can_do = can_do,
    .emit = emit_bine,
    .n_chunks = gyre_blocks_n_chunks,
};
