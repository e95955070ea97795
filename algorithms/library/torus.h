/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks in a torus of the shape's sides, or in one ring. Variants v start in another dimension
 * each (the last one first), odd ones in the other direction.
 */
#ifndef GYRE_ALGORITHMS_LIBRARY_TORUS_H
#define GYRE_ALGORITHMS_LIBRARY_TORUS_H

#include "algorithms/algorithm.h"

struct gyre_torus {
    int n_dims;
    int sides[GYRE_MAX_SIDES];
    int weights[GYRE_MAX_SIDES]; /* between the numbers of neighbours */
};

static inline struct gyre_torus gyre_torus_of(const struct gyre_shape *shape)
{
    struct gyre_torus torus = {.n_dims = 0};
    while (shape->sides != NULL && torus.n_dims < GYRE_MAX_SIDES &&
           shape->sides[torus.n_dims] > 0) {
        torus.sides[torus.n_dims] = shape->sides[torus.n_dims];
        torus.n_dims++;
    }
    if (torus.n_dims == 0)
        torus.sides[torus.n_dims++] = shape->n_ranks;
    for (int dim = torus.n_dims - 1, weight = 1; dim >= 0; dim--) {
        torus.weights[dim] = weight;
        weight *= torus.sides[dim];
    }
    return torus;
}

static inline bool gyre_torus_fits(const struct gyre_shape *shape, const char **why_not)
{
    const struct gyre_torus torus = gyre_torus_of(shape);
    for (int dim = 0; dim < torus.n_dims && shape->sides != NULL; dim++) {
        *why_not = "its sides are at least 2";
        if (torus.sides[dim] < 2)
            return false;
    }
    *why_not = "the product of its sides is another number of ranks";
    return torus.sides[0] * torus.weights[0] == shape->n_ranks;
}

/* The @i-th dimension of a variant. */
static inline int gyre_torus_dim(const struct gyre_torus *torus, int variant, int i)
{
    return (2 * torus->n_dims - 1 - variant / 2 - i % torus->n_dims) % torus->n_dims;
}

static inline int gyre_torus_at(const struct gyre_torus *torus, int rank, int dim)
{
    return rank / torus->weights[dim] % torus->sides[dim];
}

/* @distance: less than the side either way. */
static inline int gyre_torus_move(const struct gyre_torus *torus, int rank, int dim, int distance)
{
    const int from = gyre_torus_at(torus, rank, dim), side = torus->sides[dim];
    return rank + ((from + distance + side) % side - from) * torus->weights[dim];
}

#endif
