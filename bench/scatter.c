/* SPDX-License-Identifier: Apache-2.0
 *
 * Scatter: the root sends each rank a different block.
 */
#include "bench/driver/bench.h"

int main(int argc, char **argv)
{
    static const struct bench_kind kind = {
        .name = "scatter",
        .coll = GYRE_COLL_SCATTER,
        .is_in_place_checkable = true,
    };
    return bench_main(argc, argv, &kind);
}
