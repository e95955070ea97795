/* SPDX-License-Identifier: Apache-2.0
 *
 * All-gather: every rank receives the blocks of all other ranks.
 */
#include "bench/driver/bench.h"

static double bus_factor(int n_ranks)
{
    return (double)(n_ranks - 1) / n_ranks;
}

int main(int argc, char **argv)
{
    static const struct bench_kind kind = {
        .name = "allgather",
        .coll = GYRE_COLL_ALL_GATHER,
        .bus_factor = bus_factor,
        .is_in_place_checkable = true,
    };
    return bench_main(argc, argv, &kind);
}
