/* SPDX-License-Identifier: Apache-2.0
 *
 * What one communicator's plans are made from, for the thread that makes calls.
 */
#ifndef GYRE_PLAN_PLAN_CACHE_H
#define GYRE_PLAN_PLAN_CACHE_H

#include "core/engine/links/links.h"
#include "core/engine/plan/plan.h"
#include "core/engine/plan/tuner/tuner.h"
#include "kernels/executor.h"

/* Emitted once for each shape and loaded once for each choice. */
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

struct gyre_plan_cache {
    const struct gyre_rank *self;
    const struct gyre_links *links;
    const struct gyre_windows *windows;
    struct gyre_programs programs;
    struct gyre_algo_use from_file;
    struct gyre_tuner_facts facts;
    uint32_t n_ranks_inside;       /* on this rank's host */
    bool is_tuned;                 /* by GYRE_TUNING_FILE */
    struct gyre_cost network_cost; /* of what is known of the network */
    struct gyre_filter filter;
    struct gyre_choice forced; /* by gyre_plan_force(); zeros = not forced */
    uint32_t n_settings;       /* numbers given out */
    uint32_t settings;         /* the present number, part of a plan's key */
    uint32_t unforced;         /* without a forced choice */
    uint64_t n_made;           /* plans */
    struct gyre_plan_table plans;
    struct gyre_plan_table predicted; /* by class of sizes, because predictions take long */
};

/** The channels fit the programs' lanes and thread blocks. @rank_of_out: set for point to point
 * only. Errors: INVALID_ARGUMENT for a forced tile that fits no slot; as gyre_tuner_choose() and
 * gyre_programs_find(); UNSUPPORTED if the communicator's FIFOs cannot carry the programs. */
gyre_status gyre_plan_choose(struct gyre_plan_cache *cache, const struct gyre_call *call,
                             struct gyre_choice *choice_out,
                             const struct gyre_variants **variants_out, uint16_t rank_of_out[2]);

#endif
