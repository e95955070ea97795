/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts what a communicator knows of its network into the constants of the simulator.
 */
#ifndef GYRE_PLAN_NETWORK_COST_H
#define GYRE_PLAN_NETWORK_COST_H

#include "algorithms/simulate/simulate.h"
#include "core/engine/links/network.h"

/** gyre_network_cost - the constants of a machine whose hosts are joined by this network. What the
 * network does not know stays as in @base. Pure, so all ranks get the same bits.
 * @base: shipped constants; their part inside hosts stays. */
struct gyre_cost gyre_network_cost(const struct gyre_cost *base,
                                   const struct gyre_network *network);

#endif
