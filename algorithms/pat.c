/* SPDX-License-Identifier: Apache-2.0
 *
 * Aggregated trees, one for each block: few blocks travel far and many near (after S. Jeaugey, PAT:
 * a new algorithm for all-gather and reduce-scatter operations at scale, 2025; without its limit on
 * what a rank keeps). All-gather begins with the largest distance, so that later blocks are a power
 * of two apart. Reduce-scatter is the way back:
 *
 *   reduce-scatter, all-reduce
 *   round   rank 0              rank 1              rank 2              rank 3
 *     0     sends b1 b3 to 1    sends b2 b0 to 2    sends b3 b1 to 3    sends b0 b2 to 0
 *           adds  b0 b2         adds  b1 b3         adds  b2 b0         adds  b3 b1
 *     1     sends b2 to 2       sends b3 to 3       sends b0 to 0       sends b1 to 1
 *           adds  b0!           adds  b1!           adds  b2!           adds  b3!
 *   all-gather, all-reduce
 *     2     b0 to 2             b1 to 3             b2 to 0             b3 to 1
 *     3     b0 b2 to 3          b1 b3 to 0          b2 b0 to 1          b3 b1 to 2
 *
 * Cost (n ranks, B bytes of all blocks): log2(n) hops, rounded up, and B (n-1)/n each way.
 */
#include "algorithms/blocks.h"

static struct gyre_chunks moved_from(const struct gyre_blocks *pat, int first, int distance)
{
    return (struct gyre_chunks){
        .first = (uint16_t)first,
        .n = (uint16_t)((pat->n_ranks - distance + 2 * distance - 1) / (2 * distance)),
        .stride = (uint16_t)(2 * distance)};
}

static void reduce_scatter(const struct gyre_blocks *pat)
{
    for (int distance = 1; distance < pat->n_ranks; distance *= 2) {
        const bool is_first = distance == 1, is_last = 2 * distance >= pat->n_ranks;
        const int given = gyre_blocks_at(pat, distance);
        const struct gyre_ref own = is_first ? gyre_in(pat->rank) : gyre_blocks_sum(pat, pat->rank);
        const struct gyre_ref ins[] = {own, gyre_peer(gyre_blocks_at(pat, -distance), 0)};
        const struct gyre_ref out =
            is_last ? gyre_blocks_result(pat, pat->rank) : gyre_blocks_sum(pat, pat->rank);
        gyre_blocks_copy(pat, moved_from(pat, given, distance),
                         is_first ? gyre_in(given) : gyre_blocks_sum(pat, given),
                         gyre_peer(given, 0));
        gyre_builder_range_step(pat->builder, moved_from(pat, pat->rank, distance), ins, 2, &out, 1,
                                is_last ? GYRE_STEP_FINAL : 0);
        if (is_first && pat->n_ranks % 2 != 0) {
            /* The last block gets no sum in this round. */
            const struct gyre_chunks last = {.first = (uint16_t)gyre_blocks_at(pat, -1), .n = 1};
            gyre_blocks_copy(pat, last, gyre_in(last.first), gyre_blocks_sum(pat, last.first));
        }
    }
}

static void all_gather(const struct gyre_blocks *pat)
{
    int distance = 1;
    while (2 * distance < pat->n_ranks)
        distance *= 2;
    for (bool is_first = true; distance > 0; distance /= 2, is_first = false) {
        const int other = gyre_blocks_at(pat, distance);
        const struct gyre_ref own = gyre_out(pat->rank),
                              to = gyre_peer(gyre_blocks_at(pat, -distance), 0);
        if (is_first && pat->coll == GYRE_COLL_ALL_GATHER) {
            const struct gyre_ref in = gyre_in(0), outs[] = {own, to};
            gyre_builder_step(pat->builder, pat->rank, &in, 1, outs, 2, 0);
        } else {
            gyre_blocks_copy(pat, moved_from(pat, pat->rank, distance), own, to);
        }
        gyre_blocks_copy(pat, moved_from(pat, other, distance), gyre_peer(other, 0),
                         gyre_out(other));
    }
}

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct gyre_blocks pat = {
        .builder = builder, .coll = shape->coll, .n_ranks = shape->n_ranks, .rank = rank};
    gyre_builder_max_range(builder, shape->n_ranks / 2);
    if (shape->coll != GYRE_COLL_ALL_GATHER)
        reduce_scatter(&pat);
    if (shape->coll != GYRE_COLL_REDUCE_SCATTER)
        all_gather(&pat);
}

const struct gyre_algorithm gyre_algorithm_pat = {
    .name = "pat",
    .summary = "trees over the blocks of each rank: few blocks far, many blocks near",
    .collectives = GYRE_BLOCKS_COLLECTIVES,
    .can_do = gyre_blocks_can_do,
    .emit = emit,
    .n_chunks = gyre_blocks_n_chunks,
};
