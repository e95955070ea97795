/* SPDX-License-Identifier: Apache-2.0
 *
 * GYRE_TUNING_FILE, and what is known of the network, replace shipped constants and rows.
 */
#ifndef GYRE_PLAN_TUNING_FILE_H
#define GYRE_PLAN_TUNING_FILE_H

#include "algorithms/simulate/simulate.h"
#include "core/engine/links/network.h"
#include "core/engine/plan/tuner/rows.h"

/* Zeros = GYRE_TUNING_FILE is not set. */
struct gyre_tuning {
    bool is_set; /* it has constants, so choices are predicted */
    struct gyre_cost cost;
    struct gyre_rows *rows; /* NULL = none */
    uint64_t hash;          /* of the constants; 0 = none */
};

/** Constants ("key = number"), rows, or both. Constants not named are gyre_cost_host's.
 * @tuning_out: to be freed by gyre_tuning_free(). Errors: SYSTEM, OUT_OF_MEMORY, INVALID_ARGUMENT
 * naming file, line and what is legal. */
gyre_status gyre_tuning_load(const char *path, struct gyre_tuning *tuning_out);
void gyre_tuning_free(struct gyre_tuning *tuning);

/** Pure, so all ranks get the same bits. @base: gives what the network does not know. */
struct gyre_cost gyre_network_cost(const struct gyre_cost *base,
                                   const struct gyre_network *network);

#endif
