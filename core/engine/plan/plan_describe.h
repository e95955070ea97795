/* SPDX-License-Identifier: Apache-2.0
 *
 * The log line of a choice; gyre_plan_describe() tells the same to programs.
 */
#ifndef GYRE_PLAN_PLAN_DESCRIBE_H
#define GYRE_PLAN_PLAN_DESCRIBE_H

#include "core/engine/plan/plan_cache.h"

/** With the predicted time, if there is one. */
void gyre_plan_log_choice(struct gyre_plan_cache *cache, const struct gyre_call *call,
                          const struct gyre_choice *choice, const struct gyre_run *run);

#endif
