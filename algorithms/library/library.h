/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithms of the literature, for schedules, drawings and predictions. The tuner does not know
 * them; as programs from a file they run like all others. Each is one file that defines `const
 * struct gyre_algorithm gyre_algorithm_NAME`, and a line X(NAME) of GYRE_LIBRARY_LIST.
 */
#ifndef GYRE_ALGORITHMS_LIBRARY_LIBRARY_H
#define GYRE_ALGORITHMS_LIBRARY_LIBRARY_H

#include "algorithms/algorithm.h"

/* `bine` is in swing.c; algorithms/bruck.c has bruck3 and bruck4, ring.c and tree.c have what NCCL
 * does (algorithms/contenders). */
#define GYRE_LIBRARY_LIST(X)                                   \
    X(swing)     /* pairs at distance 1, 1, 3, 5, 11, ... */   \
    X(bine)      /* the same pairs, the farthest first */      \
    X(circulant) /* halved distances, for any n */             \
    X(factors)   /* groups by the digits of a rank's number */ \
    X(bruck3)    /* all-to-all by digits to base 3 */          \
    X(bruck4)                                                  \
    X(nccl_ring)                                               \
    X(nccl_tree)                                               \
    X(nccl_nvls) /* all pairs, a worker for each phase */

#define GYRE_DECLARE_ALGORITHM(name) extern const struct gyre_algorithm gyre_algorithm_##name;
GYRE_LIBRARY_LIST(GYRE_DECLARE_ALGORITHM)
#undef GYRE_DECLARE_ALGORITHM

/* For predictions alone, because it cannot run in place. */
extern const struct gyre_algorithm gyre_algorithm_nccl_p2p;

/** Ended by NULL. */
extern const struct gyre_algorithm *const gyre_library[];

/** In upper or lower case; NULL = there is none. */
const struct gyre_algorithm *gyre_library_find(const char *name);

#endif
