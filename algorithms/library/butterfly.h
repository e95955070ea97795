/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks exchange in pairs. In reduce-scatter, rank q is responsible for the blocks R(q, k) before
 * step k, with
 *
 *     R(q, n_steps) = {q},  R(q, k) = R(q, k + 1) and R(partner(q, k), k + 1).
 *
 * In step k a rank sends its partner p the sums of R(p, k + 1) without R(own, k + 1). All-gather is
 * the way back.
 */
#ifndef GYRE_ALGORITHMS_LIBRARY_BUTTERFLY_H
#define GYRE_ALGORITHMS_LIBRARY_BUTTERFLY_H

#include "algorithms/algorithm.h"

struct gyre_butterfly {
    const struct gyre_shape *shape;
    struct gyre_builder *builder;
    int rank;
    int n_steps;
    /* An involution in each step, the same on all ranks. */
    int (*partner)(const struct gyre_butterfly *butterfly, int rank, int step);
    bool is_named; /* by the order in which rank 0 reaches the blocks' ranks */
};

void gyre_butterfly_emit(const struct gyre_butterfly *butterfly);

#endif
