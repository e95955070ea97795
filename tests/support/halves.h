/* SPDX-License-Identifier: Apache-2.0
 *
 * An algorithm for tests: blocks of two chunks, counted in another order than the ranks. In
 * all-gather the second half goes the long way, along a ring.
 */
#ifndef GYRE_TESTS_HALVES_H
#define GYRE_TESTS_HALVES_H

#include "algorithms/algorithm.h"

/* The blocks of odd ranks come first. */
static int halves_position(int n, int rank)
{
    return rank % 2 != 0 ? rank / 2 : n / 2 + rank / 2;
}

static void halves_gather(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const int n = shape->n_ranks;
    for (int half = 0; half < 2; half++) {
        const int own = 2 * halves_position(n, rank) + half;
        const struct gyre_ref in = gyre_in(half), out = gyre_out(own);
        gyre_builder_step(builder, own, &in, 1, &out, 1, 0);
    }
    for (int i = 1; i < n; i++) { /* first halves straight, second halves along a ring */
        const int to = (rank + i) % n, from = (rank + n - i) % n;
        const int passed = 2 * halves_position(n, (rank + n - i + 1) % n) + 1;
        const int first = 2 * halves_position(n, rank), come = 2 * halves_position(n, from);
        const struct gyre_ref outs[] = {gyre_out(first), gyre_out(passed)};
        const struct gyre_ref tos[] = {gyre_peer(to, 0), gyre_peer((rank + 1) % n, 0)};
        const struct gyre_ref froms[] = {gyre_peer(from, 0), gyre_peer((rank + n - 1) % n, 0)};
        const struct gyre_ref ins[] = {gyre_out(come), gyre_out(come + 1)};
        gyre_builder_step(builder, first, &outs[0], 1, &tos[0], 1, 0);
        gyre_builder_step(builder, come, &froms[0], 1, &ins[0], 1, 0);
        gyre_builder_step(builder, passed, &outs[1], 1, &tos[1], 1, 0);
        gyre_builder_step(builder, come + 1, &froms[1], 1, &ins[1], 1, 0);
    }
}

static void halves_copy(struct gyre_builder *builder, int n, int rank, struct gyre_ref in,
                        struct gyre_ref out)
{
    const struct gyre_chunks both = {.first = (uint16_t)(2 * halves_position(n, rank)), .n = 2};
    gyre_builder_range_step(builder, both, &in, 1, &out, 1, 0);
}

/* Both halves in one step; two blocks leave before others take their place. */
static void halves_all_to_all(const struct gyre_shape *shape, int rank,
                              struct gyre_builder *builder)
{
    const int n = shape->n_ranks, own = 2 * halves_position(n, rank);
    halves_copy(builder, n, rank, gyre_in(own), gyre_out(own));
    for (int i = 1; 2 * i <= n; i++) {
        const int peers[] = {(rank + i) % n, (rank + n - i) % n};
        const int n_peers = peers[0] == peers[1] ? 1 : 2;
        for (int k = 0; k < n_peers; k++)
            halves_copy(builder, n, peers[k], gyre_in(2 * halves_position(n, peers[k])),
                        gyre_peer(peers[k], 0));
        for (int k = 0; k < n_peers; k++)
            halves_copy(builder, n, peers[k], gyre_peer(peers[k], 0),
                        gyre_out(2 * halves_position(n, peers[k])));
    }
}

static void halves_emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    uint16_t *names = gyre_builder_allocate(builder, shape->n_ranks * sizeof(*names));
    for (int i = 0; i < shape->n_ranks && names != NULL; i++)
        names[halves_position(shape->n_ranks, i)] = (uint16_t)i;
    if (names != NULL)
        gyre_builder_names(builder, names);
    gyre_builder_max_range(builder, 2);
    gyre_builder_min_depth(builder, 2);
    if (shape->coll == GYRE_COLL_ALL_GATHER)
        halves_gather(shape, rank, builder);
    else
        halves_all_to_all(shape, rank, builder);
}

static int halves_chunks(const struct gyre_shape *shape)
{
    (void)shape;
    return 2;
}

static bool halves_can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                          const char **why_not)
{
    (void)shape;
    (void)why_not;
    *can_out = (struct gyre_ability){.ranges = true};
    return true;
}

static const struct gyre_algorithm halves = {
    .name = "halves",
    .summary = "blocks in halves",
    .collectives = 1U << GYRE_COLL_ALL_GATHER | 1U << GYRE_COLL_ALL_TO_ALL,
    .can_do = halves_can_do,
    .emit = halves_emit,
    .n_chunks = halves_chunks,
};

#endif
