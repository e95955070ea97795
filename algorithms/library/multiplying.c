/* SPDX-License-Identifier: Apache-2.0
 *
 * Recursive doubling with groups of k ranks in place of pairs, for whole vectors (A. Wilkins et
 * al., Generalized collective algorithms for the exascale era, CLUSTER 2023). k is the largest
 * divisor of what is left of n up to the radix, else its smallest prime factor. Six ranks to radix
 * 4:
 *
 *   round    rank 0                   rank 1                   rank 4
 *     0      0 to 1, 2                1 to 2, 0                4 to 5, 3
 *            0+1+2                    0+1+2                    3+4+5
 *     1      0+1+2 to 3               0+1+2 to 4               3+4+5 to 1
 *            (0+1+2)+(3+4+5)          (0+1+2)+(3+4+5)          (0+1+2)+(3+4+5)
 *
 * Cost (n ranks, B bytes): a hop for each of the factors k, and B for each of their k - 1.
 */
#include "algorithms/library/library.h"

static int factor_of(int n, int radix)
{
    int factor = radix < n ? radix : n;
    while (factor > 1 && n % factor != 0)
        factor--;
    if (factor > 1)
        return factor;
    for (factor = radix + 1; n % factor != 0;)
        factor++;
    return factor;
}

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder, int radix)
{
    const int n = shape->n_ranks;
    struct gyre_ref *ins = gyre_builder_allocate(builder, (size_t)n * sizeof(*ins));
    struct gyre_ref *peers = gyre_builder_allocate(builder, (size_t)n * sizeof(*peers));
    struct gyre_ref own = gyre_in(0);
    const struct gyre_ref out = gyre_out(0);
    if (ins == NULL || peers == NULL)
        return;
    for (int weight = 1, factor; weight < n; weight *= factor) {
        factor = factor_of(n / weight, radix);
        const int digit = rank / weight % factor, first = rank - digit * weight;
        for (int i = 0; i < factor; i++)
            ins[i] = i == digit ? own : gyre_peer(first + i * weight, 0);
        for (int i = 1; i < factor; i++)
            peers[i - 1] = gyre_peer(first + (digit + i) % factor * weight, 0);
        gyre_builder_scatter(builder, 0, own, peers, factor - 1);
        gyre_builder_reduce(builder, 0, ins, factor, &out, 1,
                            weight * factor == n ? GYRE_STEP_FINAL : 0);
        own = out;
    }
}

static void emit_to_4(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit(shape, rank, builder, 4);
}

static void emit_to_8(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit(shape, rank, builder, 8);
}

static bool can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not)
{
    (void)shape;
    (void)why_not;
    *can_out = (struct gyre_ability){.flow = GYRE_FLOW_RELAY};
    return true;
}

const struct gyre_algorithm gyre_algorithm_multiplying4 = {
    .name = "multiplying4",
    .summary = "groups of up to 4 ranks exchange whole vectors, for any number of ranks",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE,
    .can_do = can_do,
    .emit = emit_to_4,
};

const struct gyre_algorithm gyre_algorithm_multiplying8 = {
    .name = "multiplying8",
    .summary = "groups of up to 8 ranks exchange whole vectors, for any number of ranks",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE,
    .can_do = can_do,
    .emit = emit_to_8,
};
