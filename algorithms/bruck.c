/* SPDX-License-Identifier: Apache-2.0
 *
 * Bruck's all-gather and all-to-all (J. Bruck et al., Efficient Algorithms for All-to-All
 * Communications in Multiport Message-Passing Systems, 1997). All-gather: a rank sends all its
 * blocks to distance 1, 2, 4, ... before it:
 *
 *   round   rank 0          rank 1          rank 2          rank 3
 *     0     b0 to 3         b1 to 0         b2 to 1         b3 to 2
 *     1     b0-1 to 2       b1-2 to 3       b2-3 to 0       b3-0 to 1
 *
 * All-to-all: a block that has to go j ranks back takes a hop for each bit of j. At rank r it waits
 * in OUT(r + j). Four ranks, jK is the block in OUT(r + K):
 *
 *   round   every rank r
 *     0     gets OUT(r + j) from IN(r - j), for all j
 *     1     sends j1, j3 to r - 1, and gets those of r + 1 in their place
 *     2     sends j2, j3 to r - 2, and gets those of r + 2 in their place
 *
 * Cost (n ranks, B bytes of all blocks): log2(n) hops, rounded up. All-gather sends B (n-1)/n from
 * every rank, all-to-all about B/2 log2(n).
 */
#include "algorithms/blocks.h"
#include "algorithms/library/library.h"

static int at(const struct gyre_shape *shape, int rank, int distance)
{
    return (rank + distance + shape->n_ranks) % shape->n_ranks;
}

static void copy(struct gyre_builder *builder, struct gyre_chunks chunks, struct gyre_ref in,
                 struct gyre_ref out)
{
    gyre_builder_range_step(builder, chunks, &in, 1, &out, 1, 0);
}

static void copy_block(struct gyre_builder *builder, int block, struct gyre_ref in,
                       struct gyre_ref out)
{
    gyre_builder_step(builder, block, &in, 1, &out, 1, 0);
}

static int gathered_at(const struct gyre_shape *shape, int distance)
{
    return distance < shape->n_ranks - distance ? distance : shape->n_ranks - distance;
}

static void emit_all_gather(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    for (int distance = 1; distance < shape->n_ranks; distance *= 2) {
        const int other = at(shape, rank, distance);
        const struct gyre_ref to = gyre_peer(at(shape, rank, -distance), 0);
        struct gyre_chunks chunks = {.first = (uint16_t)rank,
                                     .n = (uint16_t)gathered_at(shape, distance)};
        if (distance == 1) {
            const struct gyre_ref in = gyre_in(0), outs[] = {gyre_out(rank), to};
            gyre_builder_step(builder, rank, &in, 1, outs, 2, 0);
        } else {
            copy(builder, chunks, gyre_out(rank), to);
        }
        chunks.first = (uint16_t)other;
        copy(builder, chunks, gyre_peer(other, 0), gyre_out(other));
    }
}

/* Also in place. */
static void turn_round(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    for (int j = 0; 2 * j <= shape->n_ranks; j++) {
        const int before = at(shape, rank, -j), after = at(shape, rank, j);
        if (before == after) {
            copy_block(builder, after, gyre_in(after), gyre_out(after));
            continue;
        }
        copy_block(builder, before, gyre_in(before), gyre_scratch(0));
        copy_block(builder, after, gyre_in(after), gyre_out(before));
        copy_block(builder, before, gyre_scratch(0), gyre_out(after));
    }
}

static int moved_at(const struct gyre_shape *shape, int radix, int weight, int digit)
{
    const int period = radix * weight, before = digit * weight;
    const int rest = shape->n_ranks % period - before;
    return shape->n_ranks / period * weight + (rest < 0 ? 0 : rest < weight ? rest : weight);
}

/* A larger radix has fewer bytes and more rounds: a block moves for each digit that is not 0. */
static void emit_all_to_all(const struct gyre_shape *shape, int radix, int rank,
                            struct gyre_builder *builder)
{
    int most = 1;
    for (int weight = 1; weight < shape->n_ranks; weight *= radix) {
        const int n = moved_at(shape, radix, weight, 1); /* no other digit has more */
        most = n > most ? n : most;
    }
    gyre_builder_max_range(builder, most);
    turn_round(shape, rank, builder);
    for (int weight = 1; weight < shape->n_ranks; weight *= radix)
        for (int distance = weight; distance < radix * weight && distance < shape->n_ranks;
             distance += weight) {
            const int first = at(shape, rank, distance);
            const struct gyre_chunks chunks = {
                .first = (uint16_t)first,
                .n = (uint16_t)moved_at(shape, radix, weight, distance / weight),
                .run = (uint16_t)weight,
                .stride = (uint16_t)(radix * weight)};
            copy(builder, chunks, gyre_out(first), gyre_peer(at(shape, rank, -distance), 0));
            copy(builder, chunks, gyre_peer(first, 0), gyre_out(first));
        }
}

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    int most = 1;
    if (shape->coll != GYRE_COLL_ALL_GATHER) {
        emit_all_to_all(shape, 2, rank, builder);
        return;
    }
    for (int distance = 1; distance < shape->n_ranks; distance *= 2)
        most = gathered_at(shape, distance) > most ? gathered_at(shape, distance) : most;
    gyre_builder_max_range(builder, most);
    emit_all_gather(shape, rank, builder);
}

static void emit_3(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit_all_to_all(shape, 3, rank, builder);
}

static void emit_4(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit_all_to_all(shape, 4, rank, builder);
}

const struct gyre_algorithm gyre_algorithm_bruck = {
    .name = "bruck",
    .summary = "blocks to the rank at distance 1, 2, 4, ...; for short blocks on many ranks",
    .collectives = 1U << GYRE_COLL_ALL_GATHER | 1U << GYRE_COLL_ALL_TO_ALL,
    .can_do = gyre_blocks_can_do,
    .emit = emit,
};

const struct gyre_algorithm gyre_algorithm_bruck3 = {
    .name = "bruck3",
    .summary = "bruck to base 3",
    .collectives = 1U << GYRE_COLL_ALL_TO_ALL,
    .can_do = gyre_blocks_can_do,
    .emit = emit_3,
};

const struct gyre_algorithm gyre_algorithm_bruck4 = {
    .name = "bruck4",
    .summary = "bruck to base 4",
    .collectives = 1U << GYRE_COLL_ALL_TO_ALL,
    .can_do = gyre_blocks_can_do,
    .emit = emit_4,
};
