/* SPDX-License-Identifier: Apache-2.0
 *
 * Broadcast: the data enters every rank but the root once.
 */
#include "bench/driver/bench.h"

int main(int argc, char **argv)
{
    static const struct bench_kind kind = {
        .name = "broadcast",
        .coll = GYRE_COLL_BROADCAST,
        .is_in_place_checkable = true,
    };
    return bench_main(argc, argv, &kind);
}
