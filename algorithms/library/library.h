/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithms of the literature, for schedules, drawings and predictions; the tuner does not know
 * them. Each has a line of GYRE_LIBRARY_LIST.
 */
#ifndef GYRE_ALGORITHMS_LIBRARY_LIBRARY_H
#define GYRE_ALGORITHMS_LIBRARY_LIBRARY_H

#include "algorithms/algorithm.h"

/* `bine`, `pairs` and `bine_tree` are in swing.c, `bucket` and `rings` in torus.c, bruck3 and
 * bruck4 in algorithms/bruck.c, NCCL's in ring.c and tree.c. */
#define GYRE_LIBRARY_LIST(X)                         \
    X(swing)     /* distances 1, 1, 3, 5, 11, ... */ \
    X(bine)      /* the farthest first */            \
    X(pairs)     /* distances 1, 2, 4, ... */        \
    X(circulant) /* halved distances */              \
    X(factors)   /* by digits of the rank */         \
    X(bine_tree) /* of broadcast and reduce */       \
    X(bucket)    /* of a torus */                    \
    X(rings)                                         \
    X(multiplying4)                                  \
    X(multiplying8)                                  \
    X(bruck3) /* digits to base 3 */                 \
    X(bruck4)                                        \
    X(nccl_ring)                                     \
    X(nccl_tree)                                     \
    X(nccl_nvls) /* all pairs */

#define GYRE_DECLARE_ALGORITHM(name) extern const struct gyre_algorithm gyre_algorithm_##name;
GYRE_LIBRARY_LIST(GYRE_DECLARE_ALGORITHM)
#undef GYRE_DECLARE_ALGORITHM

/* For predictions alone: it cannot run in place. */
extern const struct gyre_algorithm gyre_algorithm_nccl_p2p;

/** Ended by NULL. */
extern const struct gyre_algorithm *const gyre_library[];

/** In upper or lower case; NULL = none. */
const struct gyre_algorithm *gyre_library_find(const char *name);

#endif
