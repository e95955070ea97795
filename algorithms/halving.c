/* SPDX-License-Identifier: Apache-2.0
 *
 * Recursive halving and doubling. Reduce-scatter by halving: a rank exchanges with the rank at
 * distance n/2, then n/4, and so on; it gives away the half of its blocks that is nearer to the
 * partner, and adds what it gets to the other half. All-gather by doubling is the same way back.
 * All-reduce is the one after the other. Four ranks, a chunk for each:
 *
 *   round     rank 0             rank 1             rank 2             rank 3
 *   halve 2   sends c2-3 to 2    sends c2-3 to 3    sends c0-1 to 0    sends c0-1 to 1
 *             adds  c0-1         adds  c0-1         adds  c2-3         adds  c2-3
 *   halve 1   sends c1 to 1      sends c0 to 0      sends c3 to 3      sends c2 to 2
 *             adds  c0!          adds  c1!          adds  c2!          adds  c3!
 *   double 1  c0 to 1            c1 to 0            c2 to 3            c3 to 2
 *   double 2  c0-1 to 2          c0-1 to 3          c2-3 to 0          c2-3 to 1
 *
 * If the number of ranks is no power of two, some are folded into their neighbours (pairs.h): such
 * a neighbour stands for both ranks and their two chunks.
 *
 * Cost (n ranks, B bytes of the whole vector): log2(n) hops and B (n-1)/n out of every rank each
 * way. Folding adds a hop and up to B. The longest range is n/2 chunks, with folding n.
 */
#include "algorithms/algorithm.h"
#include "algorithms/pairs.h"

struct halving {
    struct gyre_builder *builder;
    struct gyre_pairs pairs;
    enum gyre_collective coll;
    int n_ranks;
    int rank;
    int self; /* number among the pairing ranks */
    bool is_folded;
};

/* The chunks of the pairing ranks number `first` to `end` - 1. */
static struct gyre_chunks chunks_of(const struct halving *halving, int first, int end)
{
    const int first_chunk = gyre_pairs_member(halving->pairs, first);
    return (struct gyre_chunks){
        .first = (uint16_t)first_chunk,
        .n = (uint16_t)(gyre_pairs_member(halving->pairs, end) - first_chunk)};
}

static struct gyre_ref partner_of(const struct halving *halving, int number)
{
    return gyre_peer(gyre_pairs_member(halving->pairs, number), 0);
}

static void copy(const struct halving *halving, struct gyre_chunks chunks, struct gyre_ref in,
                 struct gyre_ref out)
{
    gyre_builder_range_step(halving->builder, chunks, &in, 1, &out, 1, 0);
}

/* The operand in which the sum of a chunk is kept. In reduce-scatter it is scratch, because OUT has
 * room for one block only. */
static struct gyre_ref sum_of(const struct halving *halving, int chunk)
{
    return halving->coll == GYRE_COLL_REDUCE_SCATTER ? gyre_scratch(chunk) : gyre_out(chunk);
}

/* ---- halving -------------------------------------------------------------------------------- */

/* The operand for the last sum of a chunk. In reduce-scatter it is OUT, unless this rank stands for
 * two folded ranks. */
static struct gyre_ref last_sum_of(const struct halving *halving, int chunk)
{
    const bool is_result = halving->coll == GYRE_COLL_REDUCE_SCATTER && !halving->is_folded;
    return is_result ? gyre_out(0) : sum_of(halving, chunk);
}

static void halve(const struct halving *halving)
{
    bool has_sums = halving->is_folded;
    int first = 0;
    for (int distance = halving->pairs.n_pairing / 2; distance > 0; distance /= 2) {
        const int other = halving->self ^ distance;
        const bool is_upper = halving->self > other;
        const struct gyre_chunks lower = chunks_of(halving, first, first + distance);
        const struct gyre_chunks upper = chunks_of(halving, first + distance, first + 2 * distance);
        const struct gyre_chunks kept = is_upper ? upper : lower, given = is_upper ? lower : upper;
        const struct gyre_ref partner = partner_of(halving, other);
        const struct gyre_ref own = has_sums ? sum_of(halving, kept.first) : gyre_in(kept.first);
        const struct gyre_ref ins[] = {is_upper ? partner : own, is_upper ? own : partner};
        const struct gyre_ref out =
            distance == 1 ? last_sum_of(halving, kept.first) : sum_of(halving, kept.first);
        copy(halving, given, has_sums ? sum_of(halving, given.first) : gyre_in(given.first),
             partner);
        gyre_builder_range_step(halving->builder, kept, ins, 2, &out, 1,
                                distance == 1 ? GYRE_STEP_FINAL : 0);
        has_sums = true;
        first += is_upper ? distance : 0;
    }
}

/* The odd rank of two folded ranks sends its whole input to the rank before it, which adds its own
 * input. */
static void fold(const struct halving *halving)
{
    const struct gyre_chunks all = {.n = (uint16_t)halving->n_ranks};
    if (halving->rank % 2 != 0) {
        copy(halving, all, gyre_in(0), gyre_peer(halving->rank - 1, 0));
        return;
    }
    const struct gyre_ref ins[] = {gyre_in(0), gyre_peer(halving->rank + 1, 0)};
    const struct gyre_ref sum = sum_of(halving, 0);
    gyre_builder_range_step(halving->builder, all, ins, 2, &sum, 1, 0);
}

static void reduce_scatter(const struct halving *halving)
{
    const struct gyre_chunks own = {.first = (uint16_t)halving->rank, .n = 1};
    const bool is_out = halving->is_folded && halving->rank % 2 != 0;
    if (halving->is_folded)
        fold(halving);
    if (!is_out)
        halve(halving);
    if (!halving->is_folded || halving->coll != GYRE_COLL_REDUCE_SCATTER)
        return;
    if (is_out) {
        copy(halving, own, gyre_peer(halving->rank - 1, 0), gyre_out(0));
        return;
    }
    const struct gyre_chunks other = {.first = (uint16_t)(halving->rank + 1), .n = 1};
    copy(halving, other, gyre_scratch(halving->rank + 1), gyre_peer(halving->rank + 1, 0));
    copy(halving, own, gyre_scratch(halving->rank), gyre_out(0));
}

/* ---- doubling ------------------------------------------------------------------------------- */

/* Put the rank's own block, and the block of the rank that is folded into it, into OUT. */
static void begin_all_gather(const struct halving *halving)
{
    const int rank = halving->rank;
    const struct gyre_chunks own = {.first = (uint16_t)rank, .n = 1};
    const struct gyre_chunks next = {.first = (uint16_t)(rank + 1), .n = 1};
    if (halving->is_folded && rank % 2 != 0) {
        copy(halving, own, gyre_in(0), gyre_peer(rank - 1, 0));
        return;
    }
    copy(halving, own, gyre_in(0), gyre_out(rank));
    if (halving->is_folded)
        copy(halving, next, gyre_peer(rank + 1, 0), gyre_out(rank + 1));
}

static void all_gather(const struct halving *halving)
{
    const struct gyre_chunks all = {.n = (uint16_t)halving->n_ranks};
    if (halving->is_folded && halving->rank % 2 != 0) {
        copy(halving, all, gyre_peer(halving->rank - 1, 0), gyre_out(0));
        return;
    }
    for (int distance = 1; distance < halving->pairs.n_pairing; distance *= 2) {
        const int other = halving->self ^ distance;
        const int first = halving->self & ~(distance - 1), first_other = other & ~(distance - 1);
        const struct gyre_chunks mine = chunks_of(halving, first, first + distance);
        const struct gyre_chunks theirs = chunks_of(halving, first_other, first_other + distance);
        copy(halving, mine, gyre_out(mine.first), partner_of(halving, other));
        copy(halving, theirs, partner_of(halving, other), gyre_out(theirs.first));
    }
    if (halving->is_folded)
        copy(halving, all, gyre_out(0), gyre_peer(halving->rank + 1, 0));
}

/* ---- the algorithm -------------------------------------------------------------------------- */

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct gyre_pairs pairs = gyre_pairs_of(shape->n_ranks);
    const struct halving halving = {.builder = builder,
                                    .pairs = pairs,
                                    .coll = shape->coll,
                                    .n_ranks = shape->n_ranks,
                                    .rank = rank,
                                    .self = gyre_pairs_number(pairs, rank),
                                    .is_folded = gyre_pairs_is_folded(pairs, rank)};
    gyre_builder_max_range(builder, pairs.n_folded > 0 ? shape->n_ranks : shape->n_ranks / 2);
    if (shape->coll == GYRE_COLL_ALL_GATHER)
        begin_all_gather(&halving);
    else
        reduce_scatter(&halving);
    if (shape->coll != GYRE_COLL_REDUCE_SCATTER)
        all_gather(&halving);
}

static int n_chunks(const struct gyre_shape *shape)
{
    return shape->coll == GYRE_COLL_ALL_REDUCE ? shape->n_ranks : 1;
}

const struct gyre_algorithm gyre_algorithm_halving = {
    .name = "halving",
    .summary = "pairs at distance n/2, n/4, ... halve the vector, and double it on the way back",
    .collectives =
        1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_REDUCE_SCATTER | 1U << GYRE_COLL_ALL_GATHER,
    .ranges =
        1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_REDUCE_SCATTER | 1U << GYRE_COLL_ALL_GATHER,
    .emit = emit,
    .n_chunks = n_chunks,
};
