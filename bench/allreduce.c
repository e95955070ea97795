/* SPDX-License-Identifier: Apache-2.0
 *
 * All-reduce: every rank sends and receives at least 2(n-1)/n of the data, by any algorithm.
 */
#include "bench/driver/bench.h"

int main(int argc, char **argv)
{
    static const struct bench_kind kind = {
        .name = "allreduce",
        .coll = GYRE_COLL_ALL_REDUCE,
        .is_in_place_checkable = true,
    };
    return bench_main(argc, argv, &kind);
}
