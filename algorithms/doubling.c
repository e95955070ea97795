/* SPDX-License-Identifier: Apache-2.0
 *
 * Recursive doubling: all-reduce of the whole vector. In each round a rank exchanges its sum with
 * the rank at distance 1, 2, 4, ... Four ranks:
 *
 *   round   rank 0           rank 1           rank 2           rank 3
 *     0     sends 0 to 1     sends 1 to 0     sends 2 to 3     sends 3 to 2     own input
 *     1     sends 0+1 to 2   sends 0+1 to 3   sends 2+3 to 0   sends 2+3 to 1
 *     2     (0+1)+(2+3)      (0+1)+(2+3)      (0+1)+(2+3)      (0+1)+(2+3)      kept
 *
 * The lower rank's sum is always the first input, so all ranks get the same bits. If the number of
 * ranks is no power of two, some are folded into their neighbours (pairs.h), which takes two more
 * hops.
 *
 * Cost (n ranks, B bytes): log2(n) hops, and log2(n) B out of every rank. It suits short vectors on
 * many ranks, where `direct` would send n-1 messages from each.
 */
#include "algorithms/algorithm.h"
#include "algorithms/pairs.h"

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct gyre_pairs pairs = gyre_pairs_of(shape->n_ranks);
    const bool is_folded = gyre_pairs_is_folded(pairs, rank);
    const struct gyre_ref in = gyre_in(0), sum = gyre_scratch(0), after = gyre_peer(rank + 1, 0);
    if (is_folded && rank % 2 != 0) {
        const struct gyre_ref before = gyre_peer(rank - 1, 0), out = gyre_out(0);
        gyre_builder_step(builder, 0, &in, 1, &before, 1, 0);
        gyre_builder_step(builder, 0, &before, 1, &out, 1, 0);
        return;
    }
    const int self = gyre_pairs_number(pairs, rank);
    struct gyre_ref ins[] = {in, after};
    int n_ins = is_folded ? 2 : 1;
    for (int distance = 1; distance < pairs.n_pairing; distance *= 2) {
        const int other = self ^ distance;
        const struct gyre_ref partner = gyre_peer(gyre_pairs_member(pairs, other), 0);
        const struct gyre_ref outs[] = {sum, partner};
        gyre_builder_step(builder, 0, ins, n_ins, outs, 2, 0);
        ins[0] = self < other ? sum : partner;
        ins[1] = self < other ? partner : sum;
        n_ins = 2;
    }
    const struct gyre_ref outs[] = {gyre_out(0), after};
    gyre_builder_step(builder, 0, ins, n_ins, outs, is_folded ? 2 : 1, GYRE_STEP_FINAL);
}

static int n_chunks(const struct gyre_shape *shape)
{
    (void)shape;
    return 1;
}

const struct gyre_algorithm gyre_algorithm_doubling = {
    .name = "doubling",
    .summary = "pairs at distance 1, 2, 4, ... exchange whole vectors",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE,
    .keeps_sums = true,
    .emit = emit,
    .n_chunks = n_chunks,
};
