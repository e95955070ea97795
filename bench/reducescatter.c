/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce-scatter: every rank sends all blocks but its own.
 */
#include "bench/driver/bench.h"

int main(int argc, char **argv)
{
    static const struct bench_kind kind = {
        .name = "reducescatter",
        .coll = GYRE_COLL_REDUCE_SCATTER,
        .is_in_place_checkable = true,
    };
    return bench_main(argc, argv, &kind);
}
