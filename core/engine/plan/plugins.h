/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithms of GYRE_ALGORITHMS: a .so with gyre_algorithms_v1 (algorithms/plugin.h), or a file of
 * programs.
 */
#ifndef GYRE_PLAN_PLUGINS_H
#define GYRE_PLAN_PLUGINS_H

#include "core/engine/links/links.h"
#include "core/engine/plan/plan.h"
#include "core/engine/plan/tuner/rows.h"

/** A process reads the files once, before anything reads the list of algorithms; later calls
 * compare. After an error nothing has joined, and a later call tries again. Errors:
 * INVALID_ARGUMENT naming the file and what is wrong; SYSTEM; INVALID_USAGE (an earlier call had
 * other files). */
gyre_status gyre_plugins_load(const struct gyre_params *params);

#define GYRE_MAX_AGREED (GYRE_MAX_ALGORITHMS + (GYRE_N_ROW_FILES + 1) * GYRE_MAX_ROWS)

/** Algorithms, shipped rows, then the user's: ranks must have them alike. @list_out:
 * GYRE_MAX_AGREED. */
uint32_t gyre_plan_list_agreed(const struct gyre_tuning *tuning, struct gyre_links_row *list_out);

#endif
