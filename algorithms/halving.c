/* SPDX-License-Identifier: Apache-2.0
 *
 * Recursive doubling and recursive halving: ranks exchange in pairs whose numbers are at distance
 * 1, 2, 4, ... If the number of ranks is no power of two, the first ranks are folded two by two:
 * the odd rank gives its data to the rank before it, and gets the result back, in two more hops.
 *
 * `doubling`, all-reduce of four ranks with whole vectors:
 *
 *   round   rank 0           rank 1           rank 2           rank 3
 *     0     sends 0 to 1     sends 1 to 0     sends 2 to 3     sends 3 to 2     own input
 *     1     sends 0+1 to 2   sends 0+1 to 3   sends 2+3 to 0   sends 2+3 to 1
 *     2     (0+1)+(2+3)      (0+1)+(2+3)      (0+1)+(2+3)      (0+1)+(2+3)      kept
 *
 * The lower rank's sum is always the first input, so all ranks get the same bits.
 *
 * Cost (n ranks, B bytes): log2(n) hops, and log2(n) B out of every rank.
 *
 * `halving`, reduce-scatter: at distance n/2, n/4, ... a rank gives away the half of its blocks
 * that is nearer to the partner. All-gather is the way back, and all-reduce both. Four ranks:
 *
 *   round     rank 0             rank 1             rank 2             rank 3
 *   halve 2   sends c2-3 to 2    sends c2-3 to 3    sends c0-1 to 0    sends c0-1 to 1
 *             adds  c0-1         adds  c0-1         adds  c2-3         adds  c2-3
 *   halve 1   sends c1 to 1      sends c0 to 0      sends c3 to 3      sends c2 to 2
 *             adds  c0!          adds  c1!          adds  c2!          adds  c3!
 *   double 1  c0 to 1            c1 to 0            c2 to 3            c3 to 2
 *   double 2  c0-1 to 2          c0-1 to 3          c2-3 to 0          c2-3 to 1
 *
 * A rank into which another one is folded stands for both and their two chunks. The other one
 * sends and receives with two workers, because the result comes once it has sent all: a cut send
 * and reception of one worker take turns (schedule_cut.c).
 *
 * Cost (n ranks, B bytes of the vector): log2(n) hops and B (n-1)/n each way. Folding adds a hop
 * and up to B. The longest range is n/2 chunks, with folding n.
 */
#include "algorithms/blocks.h"

struct pairs {
    int n_pairing; /* <= number of ranks */
    int n_folded;
};

static struct pairs pairs_of(int n_ranks)
{
    struct pairs pairs = {.n_pairing = 1};
    while (pairs.n_pairing * 2 <= n_ranks)
        pairs.n_pairing *= 2;
    pairs.n_folded = n_ranks - pairs.n_pairing;
    return pairs;
}

static bool is_folded_in(struct pairs pairs, int rank)
{
    return rank < 2 * pairs.n_folded;
}

static int number_of(struct pairs pairs, int rank)
{
    return is_folded_in(pairs, rank) ? rank / 2 : rank - pairs.n_folded;
}

/* Number v stands for rank_of(v) to rank_of(v + 1) - 1. */
static int rank_of(struct pairs pairs, int number)
{
    return number < pairs.n_folded ? 2 * number : number + pairs.n_folded;
}

static void emit_doubling(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct pairs pairs = pairs_of(shape->n_ranks);
    const bool is_folded = is_folded_in(pairs, rank);
    const struct gyre_ref in = gyre_in(0), sum = gyre_scratch(0), after = gyre_peer(rank + 1, 0);
    if (is_folded && rank % 2 != 0) {
        const struct gyre_ref before = gyre_peer(rank - 1, 0), out = gyre_out(0);
        gyre_builder_step(builder, 0, &in, 1, &before, 1, 0);
        gyre_builder_step(builder, 0, &before, 1, &out, 1, 0);
        return;
    }
    const int self = number_of(pairs, rank);
    struct gyre_ref ins[] = {in, after};
    int n_ins = is_folded ? 2 : 1;
    for (int distance = 1; distance < pairs.n_pairing; distance *= 2) {
        const int other = self ^ distance;
        const struct gyre_ref partner = gyre_peer(rank_of(pairs, other), 0);
        const struct gyre_ref outs[] = {sum, partner};
        gyre_builder_step(builder, 0, ins, n_ins, outs, 2, 0);
        ins[0] = self < other ? sum : partner;
        ins[1] = self < other ? partner : sum;
        n_ins = 2;
    }
    const struct gyre_ref outs[] = {gyre_out(0), after};
    gyre_builder_step(builder, 0, ins, n_ins, outs, is_folded ? 2 : 1, GYRE_STEP_FINAL);
}

static bool can_do_doubling(const struct gyre_shape *shape, struct gyre_ability *can_out,
                            const char **why_not)
{
    (void)shape;
    (void)why_not;
    *can_out = (struct gyre_ability){.keeps_sums = true};
    return true;
}

const struct gyre_algorithm gyre_algorithm_doubling = {
    .name = "doubling",
    .summary = "pairs at distance 1, 2, 4, ... exchange whole vectors",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE,
    .can_do = can_do_doubling,
    .emit = emit_doubling,
};

struct halving {
    struct gyre_blocks b;
    struct pairs pairs;
    int self;
    bool is_folded;
};

static struct gyre_chunks chunks_of(const struct halving *halving, int first, int end)
{
    const int first_chunk = rank_of(halving->pairs, first);
    return (struct gyre_chunks){.first = (uint16_t)first_chunk,
                                .n = (uint16_t)(rank_of(halving->pairs, end) - first_chunk)};
}

static struct gyre_ref partner_of(const struct halving *halving, int number)
{
    return gyre_peer(rank_of(halving->pairs, number), 0);
}

/* In reduce-scatter OUT, unless this rank stands for two folded ranks. */
static struct gyre_ref last_sum_of(const struct halving *halving, int chunk)
{
    const bool is_result = halving->b.coll == GYRE_COLL_REDUCE_SCATTER && !halving->is_folded;
    return is_result ? gyre_out(0) : gyre_blocks_sum(&halving->b, chunk);
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
        const struct gyre_ref own =
            has_sums ? gyre_blocks_sum(&halving->b, kept.first) : gyre_in(kept.first);
        const struct gyre_ref ins[] = {is_upper ? partner : own, is_upper ? own : partner};
        const struct gyre_ref out = distance == 1 ? last_sum_of(halving, kept.first)
                                                  : gyre_blocks_sum(&halving->b, kept.first);
        gyre_blocks_copy(
            &halving->b, given,
            has_sums ? gyre_blocks_sum(&halving->b, given.first) : gyre_in(given.first), partner);
        gyre_builder_range_step(halving->b.builder, kept, ins, 2, &out, 1,
                                distance == 1 ? GYRE_STEP_FINAL : 0);
        has_sums = true;
        first += is_upper ? distance : 0;
    }
}

static void fold(const struct halving *halving)
{
    const struct gyre_chunks all = {.n = (uint16_t)halving->b.n_ranks};
    if (halving->b.rank % 2 != 0) {
        gyre_blocks_copy(&halving->b, all, gyre_in(0), gyre_peer(halving->b.rank - 1, 0));
        return;
    }
    const struct gyre_ref ins[] = {gyre_in(0), gyre_peer(halving->b.rank + 1, 0)};
    const struct gyre_ref sum = gyre_blocks_sum(&halving->b, 0);
    gyre_builder_range_step(halving->b.builder, all, ins, 2, &sum, 1, 0);
}

static void reduce_scatter(const struct halving *halving)
{
    const struct gyre_chunks own = {.first = (uint16_t)halving->b.rank, .n = 1};
    const bool is_out = halving->is_folded && halving->b.rank % 2 != 0;
    if (halving->is_folded)
        fold(halving);
    if (!is_out)
        halve(halving);
    if (!halving->is_folded || halving->b.coll != GYRE_COLL_REDUCE_SCATTER)
        return;
    if (is_out) {
        gyre_builder_worker(halving->b.builder);
        gyre_blocks_copy(&halving->b, own, gyre_peer(halving->b.rank - 1, 0), gyre_out(0));
        return;
    }
    const struct gyre_chunks other = {.first = (uint16_t)(halving->b.rank + 1), .n = 1};
    gyre_blocks_copy(&halving->b, other, gyre_scratch(halving->b.rank + 1),
                     gyre_peer(halving->b.rank + 1, 0));
    gyre_blocks_copy(&halving->b, own, gyre_scratch(halving->b.rank), gyre_out(0));
}

static void begin_all_gather(const struct halving *halving)
{
    const int rank = halving->b.rank;
    const struct gyre_chunks own = {.first = (uint16_t)rank, .n = 1};
    const struct gyre_chunks next = {.first = (uint16_t)(rank + 1), .n = 1};
    if (halving->is_folded && rank % 2 != 0) {
        gyre_blocks_copy(&halving->b, own, gyre_in(0), gyre_peer(rank - 1, 0));
        return;
    }
    gyre_blocks_copy(&halving->b, own, gyre_in(0), gyre_out(rank));
    if (halving->is_folded)
        gyre_blocks_copy(&halving->b, next, gyre_peer(rank + 1, 0), gyre_out(rank + 1));
}

static void all_gather(const struct halving *halving)
{
    const struct gyre_chunks all = {.n = (uint16_t)halving->b.n_ranks};
    if (halving->is_folded && halving->b.rank % 2 != 0) {
        gyre_builder_worker(halving->b.builder);
        gyre_blocks_copy(&halving->b, all, gyre_peer(halving->b.rank - 1, 0), gyre_out(0));
        return;
    }
    for (int distance = 1; distance < halving->pairs.n_pairing; distance *= 2) {
        const int other = halving->self ^ distance;
        const int first = halving->self & ~(distance - 1), first_other = other & ~(distance - 1);
        const struct gyre_chunks mine = chunks_of(halving, first, first + distance);
        const struct gyre_chunks theirs = chunks_of(halving, first_other, first_other + distance);
        gyre_blocks_copy(&halving->b, mine, gyre_out(mine.first), partner_of(halving, other));
        gyre_blocks_copy(&halving->b, theirs, partner_of(halving, other), gyre_out(theirs.first));
    }
    if (halving->is_folded)
        gyre_blocks_copy(&halving->b, all, gyre_out(0), gyre_peer(halving->b.rank + 1, 0));
}

static void emit_halving(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct pairs pairs = pairs_of(shape->n_ranks);
    const struct halving halving = {.b = {builder, shape->coll, shape->n_ranks, rank},
                                    .pairs = pairs,
                                    .self = number_of(pairs, rank),
                                    .is_folded = is_folded_in(pairs, rank)};
    gyre_builder_max_range(builder, pairs.n_folded > 0 ? shape->n_ranks : shape->n_ranks / 2);
    if (shape->coll == GYRE_COLL_ALL_GATHER)
        begin_all_gather(&halving);
    else
        reduce_scatter(&halving);
    if (shape->coll != GYRE_COLL_REDUCE_SCATTER)
        all_gather(&halving);
}

const struct gyre_algorithm gyre_algorithm_halving = {
    .name = "halving",
    .summary = "pairs at distance n/2, n/4, ... halve the vector, and double it on the way back",
    .collectives = GYRE_BLOCKS_COLLECTIVES,
    .can_do = gyre_blocks_can_do,
    .emit = emit_halving,
    .n_chunks = gyre_blocks_n_chunks,
};
