/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of the simulator's event loop: the programs of all kept ranks, for some of a call's
 * tiles.
 */
#ifndef GYRE_ALGORITHMS_SIMULATE_RUN_H
#define GYRE_ALGORITHMS_SIMULATE_RUN_H

#include "algorithms/simulate/network.h"
#include "core/foundation/model/tile.h"

struct gyre_sim_call {
    const struct gyre_sim_network *network;
    const struct gyre_simulation *simulation;
    struct gyre_split split;
    uint64_t n_real_tiles; /* tiles of the call */
    uint64_t n_full_tiles; /* tiles in which all chunks are full */
};

/** gyre_sim_run - simulate `n_tiles` of the call's tiles. The tiles that are left out are full ones
 * from the middle. @done_ns: NULL, or all 0; by tile: set to the time at which all ranks were done
 * with it. @prediction: n_steps is added to, the other fields are set; the time is INFINITY if the
 * run was ended because of limit_ns. Errors: as gyre_simulator_run(). */
gyre_status gyre_sim_run(const struct gyre_sim_call *call, uint64_t n_tiles, double *done_ns,
                         struct gyre_prediction *prediction);

#endif
