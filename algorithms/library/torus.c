/* SPDX-License-Identifier: Apache-2.0
 *
 * Rings in a torus. `bucket` (Jain, Sabharwal 2010; Sack, Gropp 2012; with hosts x ranks as sides
 * it is BlueConnect, Cho et al., MLSys 2019) reduces along one dimension after the other, each time
 * what is left of the vector, and gathers on the way back. Reduce-scatter of 2 x 2 ranks:
 *
 *   round   rank 0              rank 1              rank 2              rank 3
 *     0     sends b1 b3 to 1    sends b0 b2 to 0    sends b1 b3 to 3    sends b0 b2 to 2
 *           adds  b0 b2         adds  b1 b3         adds  b0 b2         adds  b1 b3
 *     1     sends b2 to 2       sends b3 to 3       sends b0 to 0       sends b1 to 1
 *           adds  b0!           adds  b1!           adds  b2!           adds  b3!
 *
 * `rings` is one ring in both directions, or two rings without a common link through a torus of
 * k x k, each in both directions: rank (x, y) follows (x, y - 1), or (x - 1, y) if y = k - 1 - x;
 * the other ring has x and y exchanged. Channels of several variants use all links.
 *
 * Cost (n ranks, B bytes of all blocks, all-reduce twice that): `bucket` the sum of the sides less
 * 1 each hops, `rings` n - 1; B (n-1)/n each way.
 */
#include "algorithms/blocks.h"
#include "algorithms/library/library.h"
#include "algorithms/library/torus.h"

struct bucket {
    struct gyre_blocks b;
    struct gyre_torus torus;
    int variant;
};

/* Blocks of ranks at @at in the @i-th dimension and at this rank's place in those before it. */
static struct gyre_chunks group_of(const struct bucket *k, int i, int at)
{
    const struct gyre_torus *torus = &k->torus;
    const int dim = gyre_torus_dim(torus, k->variant, i), side = torus->sides[dim];
    int first = 0, n = 1, run = 1, stride = 0;
    bool is_free[GYRE_MAX_SIDES] = {false};
    for (int later = i + 1; later < torus->n_dims; later++)
        is_free[gyre_torus_dim(torus, k->variant, later)] = true;
    for (int each = torus->n_dims - 1; each >= 0; each--) {
        if (!is_free[each]) {
            first +=
                (each == dim ? (at % side + side) % side : gyre_torus_at(torus, k->b.rank, each)) *
                torus->weights[each];
            continue;
        }
        if (n == torus->weights[each])
            run = n * torus->sides[each];
        else if (stride == 0)
            stride = torus->weights[each];
        n *= torus->sides[each];
    }
    return (struct gyre_chunks){.first = (uint16_t)first,
                                .n = (uint16_t)n,
                                .run = (uint16_t)(stride > 0 ? run : n),
                                .stride = (uint16_t)stride};
}

/* Of the next or the last rank in the @i-th dimension. */
static struct gyre_ref neighbour(const struct bucket *k, int i, int distance)
{
    const int dim = gyre_torus_dim(&k->torus, k->variant, i);
    const int step = k->variant % 2 == 0 ? distance : -distance;
    return gyre_peer(gyre_torus_move(&k->torus, k->b.rank, dim, step), 0);
}

/* The group that is @distance behind this rank, in the variant's direction. */
static struct gyre_chunks group_behind(const struct bucket *k, int i, int distance)
{
    const int at = gyre_torus_at(&k->torus, k->b.rank, gyre_torus_dim(&k->torus, k->variant, i));
    return group_of(k, i, k->variant % 2 == 0 ? at - distance : at + distance);
}

static int side_of(const struct bucket *k, int i)
{
    return k->torus.sides[gyre_torus_dim(&k->torus, k->variant, i)];
}

/* With one dimension, reduce-scatter needs one area only. */
static struct gyre_ref sum_of(const struct bucket *k, int chunk)
{
    const bool needs_one = k->torus.n_dims == 1 && k->b.coll == GYRE_COLL_REDUCE_SCATTER;
    return gyre_blocks_sum(&k->b, needs_one ? 0 : chunk);
}

static void bucket_reduce(const struct bucket *k)
{
    for (int i = 0; i < k->torus.n_dims; i++)
        for (int hop = 0; hop < side_of(k, i) - 1; hop++) {
            const struct gyre_chunks given = group_behind(k, i, hop + 1);
            const struct gyre_chunks added = group_behind(k, i, hop + 2);
            const bool is_last = i == k->torus.n_dims - 1 && hop == side_of(k, i) - 2;
            const struct gyre_ref from_user = gyre_in(added.first);
            const struct gyre_ref sum = sum_of(k, added.first);
            const struct gyre_ref ins[] = {i == 0 ? from_user : sum, neighbour(k, i, -1)};
            const struct gyre_ref out = is_last ? gyre_blocks_result(&k->b, added.first) : sum;
            gyre_blocks_copy(&k->b, given,
                             i == 0 && hop == 0 ? gyre_in(given.first) : sum_of(k, given.first),
                             neighbour(k, i, 1));
            gyre_builder_range_step(k->b.builder, added, ins, 2, &out, 1,
                                    is_last ? GYRE_STEP_FINAL : 0);
        }
}

static void bucket_gather(const struct bucket *k)
{
    for (int i = k->torus.n_dims - 1; i >= 0; i--)
        for (int hop = 0; hop < side_of(k, i) - 1; hop++) {
            const struct gyre_chunks given = group_behind(k, i, hop);
            const struct gyre_chunks come = group_behind(k, i, hop + 1);
            gyre_blocks_copy(&k->b, given, gyre_out(given.first), neighbour(k, i, 1));
            gyre_blocks_copy(&k->b, come, neighbour(k, i, -1), gyre_out(come.first));
        }
}

static void emit_bucket(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct bucket k = {.b = {builder, shape->coll, shape->n_ranks, rank},
                             .torus = gyre_torus_of(shape),
                             .variant = shape->variant};
    int most = 1;
    for (int dim = 0; dim < k.torus.n_dims; dim++)
        most =
            shape->n_ranks / k.torus.sides[dim] > most ? shape->n_ranks / k.torus.sides[dim] : most;
    gyre_builder_max_range(builder, most);
    if (shape->coll == GYRE_COLL_ALL_GATHER)
        gyre_blocks_copy(&k.b, (struct gyre_chunks){.first = (uint16_t)rank, .n = 1}, gyre_in(0),
                         gyre_out(rank));
    else
        bucket_reduce(&k);
    if (shape->coll != GYRE_COLL_REDUCE_SCATTER)
        bucket_gather(&k);
}

static int n_bucket_variants(const struct gyre_shape *shape)
{
    return shape->sides == NULL ? 1 : 2 * gyre_torus_of(shape).n_dims;
}

static bool can_do_bucket(const struct gyre_shape *shape, struct gyre_ability *can_out,
                          const char **why_not)
{
    *can_out = (struct gyre_ability){.ranges = gyre_torus_of(shape).n_dims > 1};
    return gyre_torus_fits(shape, why_not);
}

const struct gyre_algorithm gyre_algorithm_bucket = {
    .name = "bucket",
    .summary = "a ring in each dimension of a torus (bucket:8x8), one after the other",
    .collectives = GYRE_BLOCKS_COLLECTIVES,
    .can_do = can_do_bucket,
    .n_variants = n_bucket_variants,
    .emit = emit_bucket,
    .n_chunks = gyre_blocks_n_chunks,
};

/* The rank at a place of the variant's ring. */
static int ring_at(const struct gyre_shape *shape, int place)
{
    const struct gyre_torus torus = gyre_torus_of(shape);
    const int n = shape->n_ranks, k = torus.sides[0];
    place = ((shape->variant % 2 == 0 ? place : -place) % n + n) % n;
    if (torus.n_dims == 1)
        return place;
    const int x = place / k, y = (place % k - x + k) % k;
    return shape->variant / 2 == 0 ? x * k + y : y * k + x;
}

static void emit_rings(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const int n = shape->n_ranks;
    const struct gyre_blocks b = {builder, shape->coll, n, rank};
    int own = 0;
    while (ring_at(shape, own) != rank)
        own++;
    const struct gyre_ref to = gyre_peer(ring_at(shape, own + 1), 0);
    const struct gyre_ref from = gyre_peer(ring_at(shape, own - 1), 0);
    const bool gathers = shape->coll != GYRE_COLL_REDUCE_SCATTER;
    gyre_builder_min_depth(builder, 2);
    for (int hop = 0; hop < n && shape->coll != GYRE_COLL_ALL_GATHER; hop++) {
        const int block = ring_at(shape, own - 1 - hop);
        const struct gyre_ref ins[] = {hop > 0 ? from : gyre_in(block), gyre_in(block)};
        const bool is_last = hop == n - 1;
        const struct gyre_ref outs[] = {is_last ? gyre_blocks_result(&b, block) : to, to};
        gyre_builder_step(builder, block, ins, hop > 0 ? 2 : 1, outs, is_last && gathers ? 2 : 1,
                          is_last ? GYRE_STEP_FINAL : 0);
    }
    if (shape->coll == GYRE_COLL_ALL_GATHER) {
        const struct gyre_ref in = gyre_in(0), outs[] = {gyre_out(rank), to};
        gyre_builder_step(builder, rank, &in, 1, outs, 2, 0);
    }
    for (int hop = 1; hop < n && gathers; hop++) {
        const int block = ring_at(shape, own - hop);
        const struct gyre_ref outs[] = {gyre_out(block), to};
        gyre_builder_step(builder, block, &from, 1, outs, hop < n - 1 ? 2 : 1, 0);
    }
}

static int n_ring_variants(const struct gyre_shape *shape)
{
    return gyre_torus_of(shape).n_dims == 1 ? 2 : 4;
}

static bool can_do_rings(const struct gyre_shape *shape, struct gyre_ability *can_out,
                         const char **why_not)
{
    const struct gyre_torus torus = gyre_torus_of(shape);
    *can_out = (struct gyre_ability){.flow = GYRE_FLOW_RELAY};
    if (!gyre_torus_fits(shape, why_not))
        return false;
    *why_not = "it needs one side, or two that are equal and at least 3";
    return torus.n_dims == 1 ||
           (torus.n_dims == 2 && torus.sides[0] == torus.sides[1] && torus.sides[0] >= 3);
}

const struct gyre_algorithm gyre_algorithm_rings = {
    .name = "rings",
    .summary = "a ring in both directions, or the four of a square torus (rings:8x8)",
    .collectives = GYRE_BLOCKS_COLLECTIVES,
    .can_do = can_do_rings,
    .n_variants = n_ring_variants,
    .emit = emit_rings,
    .n_chunks = gyre_blocks_n_chunks,
};
