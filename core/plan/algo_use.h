/* SPDX-License-Identifier: Apache-2.0
 *
 * Which algorithms from a file a communicator uses: those of GYRE_ALGO_FILE, or those of a file
 * that a program named later.
 */
#ifndef GYRE_PLAN_ALGO_USE_H
#define GYRE_PLAN_ALGO_USE_H

#include "core/links/member.h"
#include "core/plan/algo_file.h"
#include "core/plan/tuner/filter.h"

struct gyre_algo_use {
    const struct gyre_algo_file *file; /* NULL = none */
    struct gyre_file_shape *shapes;
    bool is_paused;                  /* the shapes are there, but none is used */
    struct gyre_algo_file own;       /* of gyre_algo_use_replace() */
    struct gyre_file_shape *retired; /* what is no longer used, but loaded programs may refer to */
};

/** gyre_algo_use_open - use the programs of @file that fit; rank 0 logs which these are. @file:
 * outlives the use; without programs nothing is used. Errors: as gyre_file_shapes_open(). */
gyre_status gyre_algo_use_open(struct gyre_algo_use *use, const struct gyre_algo_file *file,
                               const struct gyre_algo_terms *terms, int rank);
void gyre_algo_use_close(struct gyre_algo_use *use);

/** gyre_algo_use_replace - read a file and use its programs in place of all others. Collective;
 * once in the life of a communicator. Errors: as gyre_plan_use_file(). */
gyre_status gyre_algo_use_replace(struct gyre_algo_use *use, const char *path, const char *source,
                                  const struct gyre_algo_terms *terms,
                                  const struct gyre_member *member);

/** gyre_algo_use_find - the algorithm for a call, as far as the filter allows its path; or NULL.
 * @root: -1 where the collective has none. @in_window: the call's result lies in a window. */
const struct gyre_algorithm *gyre_algo_use_find(const struct gyre_algo_use *use,
                                                const struct gyre_filter *filter,
                                                enum gyre_collective coll, int root,
                                                bool in_window);

/** gyre_algo_use_check - as gyre_plan_check_file(). */
gyre_status gyre_algo_use_check(const struct gyre_algo_use *use, const struct gyre_filter *filter,
                                enum gyre_collective coll, bool in_window, uint32_t n_ranks);

#endif
