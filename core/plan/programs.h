/* SPDX-License-Identifier: Apache-2.0
 *
 * The programs that a communicator has used on this rank: emitted once for each shape, loaded once
 * for each choice.
 */
#ifndef GYRE_PLAN_PROGRAMS_H
#define GYRE_PLAN_PROGRAMS_H

#include "core/plan/tuner/tuner.h"
#include "kernels/executor.h"

struct gyre_programs {
    struct gyre_executor *executor;
    bool proves; /* GYRE_CHECK=programs: programs are proved before their first use */
    struct gyre_shape_programs *shapes;
    struct gyre_loaded_programs *loads;
};

/* One rank's programs of one shape, of all variants. They live as long as the cache. */
struct gyre_variants {
    uint32_t n_variants;
    struct gyre_program *programs[GYRE_MAX_VARIANTS];
    uint32_t most_workers; /* of any variant */
};

/** gyre_programs_find - the programs of @rank (in the shape), emitted when they are first wanted.
 * @shape: its variant is ignored, its grouping always the same. Errors: as gyre_algorithm_emit(),
 * and as gyre_proof_of_shape() if programs are proved. */
gyre_status gyre_programs_find(struct gyre_programs *programs,
                               const struct gyre_algorithm *algorithm,
                               const struct gyre_shape *shape, int rank,
                               const struct gyre_variants **variants_out);

/** gyre_programs_load - the executor's own form of the programs, loaded when it is first wanted.
 * @rank_of: the two ranks of a point-to-point call; NULL = all ranks of the communicator.
 * Errors: those of the executor's load. */
gyre_status gyre_programs_load(struct gyre_programs *programs, const struct gyre_variants *variants,
                               const struct gyre_choice *choice, const uint16_t *rank_of,
                               struct gyre_loaded **loaded_out);

/** gyre_programs_close - unload and free everything. */
void gyre_programs_close(struct gyre_programs *programs);

#endif
