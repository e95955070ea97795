/* SPDX-License-Identifier: Apache-2.0
 *
 * What one communicator's plans are made from, for the thread that makes calls.
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

#endif
