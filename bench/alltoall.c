/* SPDX-License-Identifier: Apache-2.0
 *
 * All-to-all: every rank sends a different block to each other rank. There is no form in place, so
 * both halves of a row are out of place.
 */
#include "bench/driver/bench.h"

int main(int argc, char **argv)
{
    static const struct bench_kind kind = {
        .name = "alltoall",
        .coll = GYRE_COLL_ALL_TO_ALL,
        .is_in_place_checkable = false,
    };
    return bench_main(argc, argv, &kind);
}
