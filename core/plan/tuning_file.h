/* SPDX-License-Identifier: Apache-2.0
 *
 * GYRE_TUNING_FILE: the constants of the simulator, as measured on the user's machine.
 */
#ifndef GYRE_PLAN_TUNING_FILE_H
#define GYRE_PLAN_TUNING_FILE_H

#include "algorithms/simulate/simulate.h"

/* What GYRE_TUNING_FILE says. */
struct gyre_tuning {
    bool is_set;
    struct gyre_cost cost;
    uint64_t hash; /* of the constants, not of the text; 0 = not set */
};

/** gyre_tuning_load - read a file of constants; those it does not name are gyre_cost_host's.
 * Errors: SYSTEM (it cannot be read), INVALID_ARGUMENT naming file, line and what is legal. */
gyre_status gyre_tuning_load(const char *path, struct gyre_tuning *tuning_out);

#endif
