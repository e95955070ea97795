/* SPDX-License-Identifier: Apache-2.0
 *
 * Any number of ranks in log2(n) rounds, rounded up, without folding: each distance is half of the
 * one before, rounded up (J. L. Traeff, Optimal, non-pipelined reduce-scatter and allreduce
 * algorithms, 2024). A rank that holds sums of s blocks, its own and those after it, sends the
 * last s - t of them, t = s/2 rounded up, to the rank at distance t. All-gather is the way back.
 * Four ranks; blocks are counted round:
 *
 *   reduce-scatter, all-reduce
 *   round   rank 0              rank 1              rank 2              rank 3
 *     0     sends b2 b3 to 2    sends b3 b0 to 3    sends b0 b1 to 0    sends b1 b2 to 1
 *           adds  b0 b1         adds  b1 b2         adds  b2 b3         adds  b3 b0
 *     1     sends b1 to 1       sends b2 to 2       sends b3 to 3       sends b0 to 0
 *           adds  b0!           adds  b1!           adds  b2!           adds  b3!
 *   all-gather, all-reduce
 *     2     b0 to 3             b1 to 0             b2 to 1             b3 to 2
 *     3     b0 b1 to 2          b1 b2 to 3          b2 b3 to 0          b3 b0 to 1
 *
 * Cost (n ranks, B bytes of all blocks): log2(n) hops, rounded up, and B (n-1)/n out of every rank
 * each way. The order of a sum is not that of the ranks, but the same on all ranks.
 */
#include "algorithms/library/library.h"

struct circulant {
    struct gyre_builder *builder;
    enum gyre_collective coll;
    int n_ranks;
    int rank;
};

static int at(const struct circulant *c, int distance)
{
    return (c->rank + distance + c->n_ranks) % c->n_ranks;
}

static void copy(const struct circulant *c, int first, int n, struct gyre_ref in,
                 struct gyre_ref out)
{
    const struct gyre_chunks chunks = {.first = (uint16_t)first, .n = (uint16_t)n};
    gyre_builder_range_step(c->builder, chunks, &in, 1, &out, 1, 0);
}

/* In reduce-scatter sums are in scratch, because OUT has room for one block only. */
static struct gyre_ref sum_of(const struct circulant *c, int chunk)
{
    return c->coll == GYRE_COLL_REDUCE_SCATTER ? gyre_scratch(chunk) : gyre_out(chunk);
}

static void reduce_scatter(const struct circulant *c)
{
    for (int s = c->n_ranks; s > 1; s = (s + 1) / 2) {
        const int t = (s + 1) / 2, given = at(c, t);
        const bool is_first = s == c->n_ranks, is_last = t == 1;
        const struct gyre_chunks added = {.first = (uint16_t)c->rank, .n = (uint16_t)(s - t)};
        const struct gyre_ref own = is_first ? gyre_in(c->rank) : sum_of(c, c->rank);
        const struct gyre_ref ins[] = {own, gyre_peer(at(c, -t), 0)};
        const struct gyre_ref out =
            is_last && c->coll == GYRE_COLL_REDUCE_SCATTER ? gyre_out(0) : sum_of(c, c->rank);
        copy(c, given, s - t, is_first ? gyre_in(given) : sum_of(c, given), gyre_peer(given, 0));
        gyre_builder_range_step(c->builder, added, ins, 2, &out, 1, is_last ? GYRE_STEP_FINAL : 0);
        if (is_first && s - t < t) { /* no sum is added to the last block in this round */
            const int last = at(c, t - 1);
            copy(c, last, 1, gyre_in(last), sum_of(c, last));
        }
    }
}

static void all_gather_from(const struct circulant *c, int s)
{
    const int t = (s + 1) / 2, other = at(c, t);
    if (s <= 1)
        return;
    all_gather_from(c, t);
    copy(c, c->rank, s - t, gyre_out(c->rank), gyre_peer(at(c, -t), 0));
    copy(c, other, s - t, gyre_peer(other, 0), gyre_out(other));
}

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct circulant c = {builder, shape->coll, shape->n_ranks, rank};
    gyre_builder_max_range(builder, shape->n_ranks / 2);
    if (shape->coll == GYRE_COLL_ALL_GATHER)
        copy(&c, rank, 1, gyre_in(0), gyre_out(rank));
    else
        reduce_scatter(&c);
    if (shape->coll != GYRE_COLL_REDUCE_SCATTER)
        all_gather_from(&c, shape->n_ranks);
}

static bool can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not)
{
    (void)shape;
    (void)why_not;
    *can_out = (struct gyre_ability){.ranges = true};
    return true;
}

static int n_chunks(const struct gyre_shape *shape)
{
    return shape->coll == GYRE_COLL_ALL_REDUCE ? shape->n_ranks : 1;
}

const struct gyre_algorithm gyre_algorithm_circulant = {
    .name = "circulant",
    .summary = "distance n/2, n/4, ..., rounded up, for any number of ranks",
    .collectives =
        1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_REDUCE_SCATTER | 1U << GYRE_COLL_ALL_GATHER,
    .can_do = can_do,
    .emit = emit,
    .n_chunks = n_chunks,
};
