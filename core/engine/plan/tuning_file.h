/* SPDX-License-Identifier: Apache-2.0
 *
 * GYRE_TUNING_FILE: the constants of the simulator, as measured on the user's machine.
 */
#ifndef GYRE_PLAN_TUNING_FILE_H
#define GYRE_PLAN_TUNING_FILE_H

#include "algorithms/simulate/simulate.h"

/* The constants that a communicator reads from the file. */
struct gyre_tuning {
    bool is_set; /* false: the variable is not set, and `cost` has no meaning */
    struct gyre_cost cost;
    uint64_t hash; /* of `cost`, so files that differ in spaces or comments have the same; 0 = the
                    * variable is not set. Ranks compare it */
};

/** gyre_tuning_load - read a file of constants. A constant that the file does not name has the
 * value of gyre_cost_host. Errors: SYSTEM (it cannot be read), INVALID_ARGUMENT naming file, line
 * and what is legal. */
gyre_status gyre_tuning_load(const char *path, struct gyre_tuning *tuning_out);

#endif
