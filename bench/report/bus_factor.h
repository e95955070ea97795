/* SPDX-License-Identifier: Apache-2.0
 *
 * The factor from algbw to busbw.
 */
#ifndef GYRE_BENCH_BUS_FACTOR_H
#define GYRE_BENCH_BUS_FACTOR_H

#include "core/foundation/model/types.h"

/** bench_bus_factor - busbw / algbw of a collective. The factor says how many times the data
 * crosses the busiest link of an ideal algorithm. The factors are those of nccl-tests, so that
 * figures can be compared. Pure. */
double bench_bus_factor(enum gyre_collective coll, unsigned n_ranks);

#endif
