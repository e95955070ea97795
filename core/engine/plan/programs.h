/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator's programs on this rank, emitted once for each shape and loaded once for each
 * choice.
 */
#ifndef GYRE_PLAN_PROGRAMS_H
#define GYRE_PLAN_PROGRAMS_H

#include "core/engine/plan/tuner/tuner.h"
#include "kernels/executor.h"

struct gyre_programs {
    struct gyre_executor *executor;
    bool in_host_memory; /* as in gyre_load_config */
    bool proves;         /* GYRE_CHECK=programs */
    struct gyre_shape_programs *shapes;
    struct gyre_loaded_programs *loads;
};

/* Of one rank and shape. They live as long as the cache. */
struct gyre_variants {
    uint32_t n_variants;
    struct gyre_program *programs[GYRE_MAX_VARIANTS];
    /* of any variant, in files of any rank, because all ranks must come to the same channels */
    uint32_t most_workers;
};

/** Emits on first use. @rank: in the shape. @shape: its variant is ignored, its grouping always the
 * same. Errors: as gyre_algorithm_emit() and gyre_proof_of_shape(). */
gyre_status gyre_programs_find(struct gyre_programs *programs,
                               const struct gyre_algorithm *algorithm,
                               const struct gyre_shape *shape, int rank,
                               const struct gyre_variants **variants_out);

/** Loads on first use. @rank_of: of point to point; NULL = the communicator's. Errors: those of the
 * executor's load. */
gyre_status gyre_programs_load(struct gyre_programs *programs, const struct gyre_variants *variants,
                               const struct gyre_choice *choice, const uint16_t *rank_of,
                               struct gyre_loaded **loaded_out);

void gyre_programs_close(struct gyre_programs *programs);

#endif
