/* SPDX-License-Identifier: Apache-2.0
 *
 * What predictions and choices are made with instead of the shipped constants and rows: what a
 * communicator knows of its network, and what GYRE_TUNING_FILE says.
 */
#ifndef GYRE_PLAN_TUNING_FILE_H
#define GYRE_PLAN_TUNING_FILE_H

#include "algorithms/simulate/simulate.h"
#include "core/engine/links/network.h"
#include "core/engine/plan/tuner/rows.h"

/* What GYRE_TUNING_FILE says. Zeros = the variable is not set. */
struct gyre_tuning {
    bool is_set; /* there are constants, so choices are predicted. A file of rows alone has none */
    struct gyre_cost cost;
    struct gyre_rows *rows; /* NULL = none */
    uint64_t hash; /* of constants and rows, so files that differ in spaces or comments have the
                    * same. Ranks compare it */
};

/** gyre_tuning_load - read a file of constants ("key = number"), of rows, or of both. A constant
 * that the file does not name has the value of gyre_cost_host.
 * @tuning_out: to be freed by gyre_tuning_free(). Errors: SYSTEM (it cannot be read),
 * OUT_OF_MEMORY, INVALID_ARGUMENT naming file, line and what is legal. */
gyre_status gyre_tuning_load(const char *path, struct gyre_tuning *tuning_out);
void gyre_tuning_free(struct gyre_tuning *tuning);

/** gyre_network_cost - the constants of a machine whose hosts are joined by this network. What the
 * network does not know stays as in @base. Pure, so all ranks get the same bits.
 * @base: shipped constants; their part inside hosts stays. */
struct gyre_cost gyre_network_cost(const struct gyre_cost *base,
                                   const struct gyre_network *network);

#endif
