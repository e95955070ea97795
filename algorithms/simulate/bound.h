/* SPDX-License-Identifier: Apache-2.0
 *
 * The least time that the links of a machine allow a collective, whatever the algorithm.
 */
#ifndef GYRE_ALGORITHMS_SIMULATE_BOUND_H
#define GYRE_ALGORITHMS_SIMULATE_BOUND_H

#include "algorithms/simulate/simulate.h"

/** gyre_bound_ns - by bytes alone, without latencies. Every host must send, and receive, its part
 * of the data through its own NICs, and every rank its part through its own links; the slowest host
 * or rank decides. 0 where nothing is known: point to point, or links without a rate.
 * @shape: coll, n_ranks and grouping (with n_nics) are used.
 * @n_bytes: of the whole vector, of all blocks where buffers are made of blocks. */
double gyre_bound_ns(const struct gyre_shape *shape, const struct gyre_cost *cost,
                     uint64_t n_bytes);

#endif
