/* SPDX-License-Identifier: Apache-2.0
 *
 * Halving with the prime factors of n in place of 2: a rank's number has a digit for each factor,
 * and the ranks that differ in one digit exchange all with all. (Rings of groups as in BlueConnect,
 * Cho et al., MLSys 2019; recursive multiplying, Wilkins et al., CLUSTER 2023.) Six ranks, digits
 * to base 2 and 3:
 *
 *   reduce-scatter, all-reduce
 *   round   rank 0                    rank 1                    rank 5
 *     0     sends b1 b3 b5 to 1       sends b0 b2 b4 to 0       sends b0 b2 b4 to 4
 *           adds  b0 b2 b4            adds  b1 b3 b5            adds  b1 b3 b5
 *     1     sends b2 to 2, b4 to 4    sends b3 to 3, b5 to 5    sends b1 to 1, b3 to 3
 *           adds  b0!                 adds  b1!                 adds  b5!
 *   all-gather, all-reduce: the same way back
 *
 * With sides (factors:8x4) the groups are those of its dimensions, the last one first.
 *
 * Cost (n ranks, B bytes of all blocks): as many hops as n has prime factors, and B (n-1)/n each
 * way.
 */
#include "algorithms/blocks.h"
#include "algorithms/library/library.h"
#include "algorithms/library/torus.h"

struct round {
    int factor;
    int weight; /* product of the factors before */
};

struct factors {
    struct gyre_blocks b;
    int n_rounds;
    struct round rounds[16]; /* GYRE_MAX_RANKS is 2^14 */
};

static int smallest_factor(int n)
{
    for (int factor = 2; factor * factor <= n; factor++)
        if (n % factor == 0)
            return factor;
    return n;
}

static void find_rounds(const struct gyre_shape *shape, struct factors *f)
{
    const struct gyre_torus torus = gyre_torus_of(shape);
    int weight = 1;
    for (int dim = torus.n_dims - 1; dim >= 0 && shape->sides != NULL; dim--, f->n_rounds++) {
        f->rounds[f->n_rounds] = (struct round){torus.sides[dim], weight};
        weight *= torus.sides[dim];
    }
    for (; weight < f->b.n_ranks; f->n_rounds++) {
        const int factor = smallest_factor(f->b.n_ranks / weight);
        f->rounds[f->n_rounds] = (struct round){factor, weight};
        weight *= factor;
    }
}

static int digit_of(const struct factors *f, const struct round *round)
{
    return f->b.rank / round->weight % round->factor;
}

static struct gyre_ref peer_of(const struct factors *f, const struct round *round, int digit)
{
    return gyre_peer(f->b.rank + (digit - digit_of(f, round)) * round->weight, 0);
}

/* Blocks of ranks with this digit and this rank's digits before it. */
static struct gyre_chunks blocks_of(const struct factors *f, const struct round *round, int digit)
{
    const int stride = round->factor * round->weight;
    return (struct gyre_chunks){.first =
                                    (uint16_t)(f->b.rank % round->weight + digit * round->weight),
                                .n = (uint16_t)(f->b.n_ranks / stride),
                                .stride = (uint16_t)stride};
}

/* If n is a prime number, reduce-scatter needs one area only. */
static struct gyre_ref sum_of(const struct factors *f, int chunk)
{
    const bool needs_one = f->n_rounds == 1 && f->b.coll == GYRE_COLL_REDUCE_SCATTER;
    return gyre_blocks_sum(&f->b, needs_one ? 0 : chunk);
}

static void add_all(const struct factors *f, const struct round *round, bool is_first, bool is_last)
{
    const struct gyre_chunks own = blocks_of(f, round, digit_of(f, round));
    const struct gyre_ref sum = sum_of(f, own.first);
    struct gyre_ref ins[GYRE_STEP_MAX_INS] = {is_first ? gyre_in(own.first) : sum};
    int n_ins = 1, n_left = round->factor - 1;
    for (int digit = 0; digit < round->factor; digit++) {
        if (digit == digit_of(f, round))
            continue;
        ins[n_ins++] = peer_of(f, round, digit);
        n_left--;
        if (n_ins <= GYRE_STEP_MAX_RECVS && n_left > 0)
            continue;
        const bool is_result = is_last && n_left == 0;
        const struct gyre_ref out = is_result ? gyre_blocks_result(&f->b, own.first) : sum;
        gyre_builder_range_step(f->b.builder, own, ins, n_ins, &out, 1,
                                is_result ? GYRE_STEP_FINAL : 0);
        ins[0] = sum;
        n_ins = 1;
    }
}

static void reduce_scatter(const struct factors *f)
{
    for (int i = 0; i < f->n_rounds; i++) {
        const struct round *round = &f->rounds[i];
        for (int digit = 0; digit < round->factor; digit++) {
            const struct gyre_chunks given = blocks_of(f, round, digit);
            const struct gyre_ref to = peer_of(f, round, digit);
            const struct gyre_ref in = i == 0 ? gyre_in(given.first) : sum_of(f, given.first);
            if (digit != digit_of(f, round))
                gyre_blocks_copy(&f->b, given, in, to);
        }
        add_all(f, round, i == 0, i == f->n_rounds - 1);
    }
}

static void all_gather(const struct factors *f)
{
    for (int i = f->n_rounds - 1; i >= 0; i--) {
        const struct round *round = &f->rounds[i];
        const struct gyre_chunks own = blocks_of(f, round, digit_of(f, round));
        const struct gyre_ref in = gyre_out(own.first);
        for (int digit = 0; digit < round->factor; digit++) {
            const struct gyre_ref to = peer_of(f, round, digit);
            if (digit != digit_of(f, round))
                gyre_blocks_copy(&f->b, own, in, to);
        }
        for (int digit = 0; digit < round->factor; digit++) {
            const struct gyre_chunks come = blocks_of(f, round, digit);
            const struct gyre_ref from = peer_of(f, round, digit), out = gyre_out(come.first);
            if (digit != digit_of(f, round))
                gyre_blocks_copy(&f->b, come, from, out);
        }
    }
}

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    struct factors f = {
        .b = {.builder = builder, .coll = shape->coll, .n_ranks = shape->n_ranks, .rank = rank}};
    find_rounds(shape, &f);
    gyre_builder_max_range(builder, shape->n_ranks / f.rounds[0].factor);
    if (shape->coll == GYRE_COLL_ALL_GATHER) {
        const struct gyre_ref in = gyre_in(0), out = gyre_out(rank);
        gyre_builder_step(builder, rank, &in, 1, &out, 1, 0);
    } else {
        reduce_scatter(&f);
    }
    if (shape->coll != GYRE_COLL_REDUCE_SCATTER)
        all_gather(&f);
}

static bool can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not)
{
    return gyre_blocks_can_do(shape, can_out, why_not) && gyre_torus_fits(shape, why_not);
}

const struct gyre_algorithm gyre_algorithm_factors = {
    .name = "factors",
    .summary = "groups of the prime factors of n, for any number of ranks without folding",
    .collectives = GYRE_BLOCKS_COLLECTIVES,
    .can_do = can_do,
    .emit = emit,
    .n_chunks = gyre_blocks_n_chunks,
};
