/* SPDX-License-Identifier: Apache-2.0
 *
 * The bus factor of each collective. Of n blocks a rank keeps its own, so (n - 1) / n of the data
 * crosses its link. An all-reduce moves that much twice: once to reduce, once to distribute the
 * result. Where every rank sends or receives the whole vector once, the factor is 1.
 */
#include "bench/report/bus_factor.h"

double bench_bus_factor(enum gyre_collective coll, unsigned n_ranks)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[coll];
    const double others = (double)(n_ranks - 1) / n_ranks;
    if (coll == GYRE_COLL_ALL_REDUCE)
        return 2 * others;
    return traits->in_blocks || traits->out_blocks ? others : 1;
}
