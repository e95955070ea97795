/* SPDX-License-Identifier: Apache-2.0
 *
 * Gather: the root receives a block from every rank. Only the root's result is checked.
 */
#include "bench/driver/bench.h"

int main(int argc, char **argv)
{
    static const struct bench_kind kind = {
        .name = "gather",
        .coll = GYRE_COLL_GATHER,
        .is_in_place_checkable = true,
    };
    return bench_main(argc, argv, &kind);
}
