/* SPDX-License-Identifier: Apache-2.0
 *
 * The log line that tells how a call is carried out. gyre_plan_describe() of plan.h tells the same
 * to programs.
 */
#ifndef GYRE_PLAN_PLAN_DESCRIBE_H
#define GYRE_PLAN_PLAN_DESCRIBE_H

#include "core/engine/plan/plan_cache.h"

/** gyre_plan_log_choice - log the choice for a call, and its predicted time where there is one. */
void gyre_plan_log_choice(struct gyre_plan_cache *cache, const struct gyre_call *call,
                          const struct gyre_choice *choice);

#endif
