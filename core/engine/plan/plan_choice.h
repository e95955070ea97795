/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice for a call, from the facts of the communicator and of the call.
 */
#ifndef GYRE_PLAN_PLAN_CHOICE_H
#define GYRE_PLAN_PLAN_CHOICE_H

#include "core/engine/plan/plan_cache.h"

/** gyre_plan_choose_way - choose algorithm, protocols, path, channels and tile of a call: as
 * gyre_plan_force() says, else for a program from a file, else as the tuner chooses.
 * @facts: those of gyre_plan_facts_of() with what is known of the call's window.
 * Errors: those of gyre_tuner_choose(); INVALID_ARGUMENT for a forced tile that fits
 * no slot. */
gyre_status gyre_plan_choose_way(struct gyre_plan_cache *cache,
                                 const struct gyre_tuner_facts *facts, const struct gyre_call *call,
                                 struct gyre_choice *choice_out);

#endif
