/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_BENCH_BUS_FACTOR_H
#define GYRE_BENCH_BUS_FACTOR_H

#include "core/gyre_model.h"

/** Busbw / algbw as in nccl-tests: how often data crosses the busiest link of an ideal algorithm.
 * Of n blocks a rank keeps its own, so (n - 1) / n crosses its link, in an all-reduce twice. It is
 * 1 where a rank sends or receives the whole vector once. */
static inline double bench_bus_factor(enum gyre_collective coll, unsigned n_ranks)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[coll];
    const double others = (double)(n_ranks - 1) / n_ranks;
    if (coll == GYRE_COLL_ALL_REDUCE)
        return 2 * others;
    return traits->in_blocks || traits->out_blocks ? others : 1;
}

#endif
