/* SPDX-License-Identifier: Apache-2.0
 *
 * Each distance is half of the one before, rounded up (J. L. Traeff, Optimal, non-pipelined
 * reduce-scatter and allreduce algorithms, 2024). A rank that holds sums of s blocks from its own
 * on sends the last s - t of them, t = s/2 rounded up, to the rank at distance t. All-gather is the
 * way back:
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
 * Cost (n ranks, B bytes of all blocks): log2(n) hops, rounded up, and B (n-1)/n each way. Sums are
 * in the same order on all ranks.
 */
#include "algorithms/blocks.h"
#include "algorithms/library/library.h"

static void copy(const struct gyre_blocks *c, int first, int n, struct gyre_ref in,
                 struct gyre_ref out)
{
    const struct gyre_chunks chunks = {.first = (uint16_t)first, .n = (uint16_t)n};
    gyre_blocks_copy(c, chunks, in, out);
}

static void reduce_scatter(const struct gyre_blocks *c)
{
    for (int s = c->n_ranks; s > 1; s = (s + 1) / 2) {
        const int t = (s + 1) / 2, given = gyre_blocks_at(c, t);
        const bool is_first = s == c->n_ranks, is_last = t == 1;
        const struct gyre_chunks added = {.first = (uint16_t)c->rank, .n = (uint16_t)(s - t)};
        const struct gyre_ref own = is_first ? gyre_in(c->rank) : gyre_blocks_sum(c, c->rank);
        const struct gyre_ref ins[] = {own, gyre_peer(gyre_blocks_at(c, -t), 0)};
        const struct gyre_ref out =
            is_last ? gyre_blocks_result(c, c->rank) : gyre_blocks_sum(c, c->rank);
        copy(c, given, s - t, is_first ? gyre_in(given) : gyre_blocks_sum(c, given),
             gyre_peer(given, 0));
        gyre_builder_range_step(c->builder, added, ins, 2, &out, 1, is_last ? GYRE_STEP_FINAL : 0);
        if (is_first && s - t < t) { /* the last block gets no sum in this round */
            const int last = gyre_blocks_at(c, t - 1);
            copy(c, last, 1, gyre_in(last), gyre_blocks_sum(c, last));
        }
    }
}

static void all_gather_from(const struct gyre_blocks *c, int s)
{
    const int t = (s + 1) / 2, other = gyre_blocks_at(c, t);
    if (s <= 1)
        return;
    all_gather_from(c, t);
    copy(c, c->rank, s - t, gyre_out(c->rank), gyre_peer(gyre_blocks_at(c, -t), 0));
    copy(c, other, s - t, gyre_peer(other, 0), gyre_out(other));
}

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct gyre_blocks c = {builder, shape->coll, shape->n_ranks, rank};
    gyre_builder_max_range(builder, shape->n_ranks / 2);
    if (shape->coll == GYRE_COLL_ALL_GATHER)
        copy(&c, rank, 1, gyre_in(0), gyre_out(rank));
    else
        reduce_scatter(&c);
    if (shape->coll != GYRE_COLL_REDUCE_SCATTER)
        all_gather_from(&c, shape->n_ranks);
}

const struct gyre_algorithm gyre_algorithm_circulant = {
    .name = "circulant",
    .summary = "distance n/2, n/4, ..., rounded up, for any number of ranks",
    .collectives = GYRE_BLOCKS_COLLECTIVES,
    .can_do = gyre_blocks_can_do,
    .emit = emit,
    .n_chunks = gyre_blocks_n_chunks,
};
