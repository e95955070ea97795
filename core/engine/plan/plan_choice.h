/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_PLAN_PLAN_CHOICE_H
#define GYRE_PLAN_PLAN_CHOICE_H

#include "core/engine/plan/plan_cache.h"

/** The channels fit the programs' lanes and thread blocks. @rank_of_out: set for point to point
 * only. Errors: INVALID_ARGUMENT for a forced tile that fits no slot; as gyre_tuner_choose() and
 * gyre_programs_find(); UNSUPPORTED if the communicator's FIFOs cannot carry the programs. */
gyre_status gyre_plan_choose(struct gyre_plan_cache *cache, const struct gyre_call *call,
                             struct gyre_choice *choice_out,
                             const struct gyre_variants **variants_out, uint16_t rank_of_out[2]);

#endif
