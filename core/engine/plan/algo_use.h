/* SPDX-License-Identifier: Apache-2.0
 *
 * The algorithms from a file that a communicator uses. The file is that of GYRE_ALGO_FILE, or one
 * that a program named later.
 */
#ifndef GYRE_PLAN_ALGO_USE_H
#define GYRE_PLAN_ALGO_USE_H

#include "core/engine/links/member.h"
#include "core/engine/plan/algo_file.h"
#include "core/engine/plan/tuner/filter.h"

struct gyre_algo_use {
    const struct gyre_algo_file *file; /* NULL = none */
    struct gyre_file_shape *shapes;
    bool is_paused;                  /* the shapes are there, but none is used */
    struct gyre_algo_file own;       /* of gyre_algo_use_replace() */
    struct gyre_file_shape *retired; /* no longer used, but loaded programs may refer to them */
};

/** gyre_algo_use_open - use the programs of @file that fit the communicator. Rank 0 logs which
 * programs fit.
 * @file: outlives the use; may have no programs. Errors: as gyre_file_shapes_open(). */
gyre_status gyre_algo_use_open(struct gyre_algo_use *use, const struct gyre_algo_file *file,
                               const struct gyre_algo_terms *terms, int rank);
void gyre_algo_use_close(struct gyre_algo_use *use);

/** gyre_algo_use_replace - read a file and use its programs in place of all others. Collective;
 * once in the life of a communicator. Errors: as gyre_plan_use_file(). */
gyre_status gyre_algo_use_replace(struct gyre_algo_use *use, const char *path, const char *source,
                                  const struct gyre_algo_terms *terms,
                                  const struct gyre_member *member);

/** gyre_algo_use_find - find the algorithm for a call; NULL if the file has none whose path the
 * filter allows.
 * @root: -1 where the collective has none. @in_window: the call's result lies in a window. */
const struct gyre_algorithm *gyre_algo_use_find(const struct gyre_algo_use *use,
                                                const struct gyre_filter *filter,
                                                enum gyre_collective coll, int root,
                                                bool in_window);

/** gyre_algo_use_check - as gyre_plan_check_file(). */
gyre_status gyre_algo_use_check(const struct gyre_algo_use *use, const struct gyre_filter *filter,
                                enum gyre_collective coll, bool in_window, uint32_t n_ranks);

#endif
