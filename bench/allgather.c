/* SPDX-License-Identifier: Apache-2.0
 *
 * All-gather: every rank receives the blocks of all other ranks.
 */
#include "bench/driver/bench.h"

int main(int argc, char **argv)
{
    static const struct bench_kind kind = {
        .name = "allgather",
        .coll = GYRE_COLL_ALL_GATHER,
        .is_in_place_checkable = true,
    };
    return bench_main(argc, argv, &kind);
}
