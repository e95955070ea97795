/* SPDX-License-Identifier: Apache-2.0
 *
 * For algorithms whose steps move blocks of several ranks as one range of chunks, chunk i for rank
 * i.
 */
#ifndef GYRE_ALGORITHMS_BLOCKS_H
#define GYRE_ALGORITHMS_BLOCKS_H

#include "algorithms/algorithm.h"

#define GYRE_BLOCKS_COLLECTIVES \
    (1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_REDUCE_SCATTER | 1U << GYRE_COLL_ALL_GATHER)

struct gyre_blocks {
    struct gyre_builder *builder;
    enum gyre_collective coll;
    int n_ranks;
    int rank;
};

/* @distance: at most n_ranks either way. */
static inline int gyre_blocks_at(const struct gyre_blocks *b, int distance)
{
    return (b->rank + distance + b->n_ranks) % b->n_ranks;
}

static inline void gyre_blocks_copy(const struct gyre_blocks *b, struct gyre_chunks chunks,
                                    struct gyre_ref in, struct gyre_ref out)
{
    gyre_builder_range_step(b->builder, chunks, &in, 1, &out, 1, 0);
}

/* In reduce-scatter OUT has room for one block only. */
static inline struct gyre_ref gyre_blocks_sum(const struct gyre_blocks *b, int chunk)
{
    return b->coll == GYRE_COLL_REDUCE_SCATTER ? gyre_scratch(chunk) : gyre_out(chunk);
}

static inline struct gyre_ref gyre_blocks_result(const struct gyre_blocks *b, int chunk)
{
    return gyre_out(b->coll == GYRE_COLL_REDUCE_SCATTER ? 0 : chunk);
}

static inline bool gyre_blocks_can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                                      const char **why_not)
{
    (void)shape;
    (void)why_not;
    *can_out = (struct gyre_ability){.ranges = true};
    return true;
}

static inline int gyre_blocks_n_chunks(const struct gyre_shape *shape)
{
    return shape->coll == GYRE_COLL_ALL_REDUCE ? shape->n_ranks : 1;
}

#endif
