/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce: the data leaves every rank but the root once.
 */
#include "bench/driver/bench.h"

int main(int argc, char **argv)
{
    static const struct bench_kind kind = {
        .name = "reduce",
        .coll = GYRE_COLL_REDUCE,
        .is_in_place_checkable = true,
    };
    return bench_main(argc, argv, &kind);
}
