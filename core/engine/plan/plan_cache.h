/* SPDX-License-Identifier: Apache-2.0
 *
 * The plans of one communicator: what they are made from and what was kept of earlier calls. Only
 * the files of core/engine/plan that make plans include this header. Only the caller's thread of
 * the communicator uses it.
 */
#ifndef GYRE_PLAN_PLAN_CACHE_H
#define GYRE_PLAN_PLAN_CACHE_H

#include "core/engine/links/links.h"
#include "core/engine/plan/given.h"
#include "core/engine/plan/plan.h"
#include "core/engine/plan/programs.h"

struct gyre_plan_cache {
    const struct gyre_member *member;
    const struct gyre_links *links;
    const struct gyre_windows *windows;
    struct gyre_programs programs;
    struct gyre_algo_use from_file;
    struct gyre_tuner_facts facts;
    uint32_t n_ranks_inside;       /* on this rank's host */
    bool is_tuned;                 /* facts.cost is that of GYRE_TUNING_FILE */
    struct gyre_cost network_cost; /* shipped constants with what is known of the network */
    struct gyre_filter filter;
    struct gyre_choice forced; /* by gyre_plan_force(); zeros = by nobody */
    uint32_t n_settings;       /* how many numbers of settings were given out */
    uint32_t settings;         /* number of the present settings, which plans have in their key */
    uint32_t unforced;         /* number of the same settings without a forced choice */
    uint64_t n_made;           /* plans */
    struct gyre_plan_table plans;
    struct gyre_plan_table predicted; /* choices by prediction, one for each class of sizes: a
                                       * prediction takes too long to be repeated */
};

#endif
