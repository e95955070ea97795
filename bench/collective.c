/* SPDX-License-Identifier: Apache-2.0
 *
 * Each bench is built from this file, with its name as BENCH_NAME.
 */
#include "bench/driver/options.h"

#include <string.h>

static const struct bench_kind kinds[] = {
    {.name = "allgather", .coll = GYRE_COLL_ALL_GATHER, .is_in_place_checkable = true},
    {.name = "allreduce", .coll = GYRE_COLL_ALL_REDUCE, .is_in_place_checkable = true},
    {.name = "alltoall", .coll = GYRE_COLL_ALL_TO_ALL}, /* has no in-place form */
    {.name = "broadcast", .coll = GYRE_COLL_BROADCAST, .is_in_place_checkable = true},
    {.name = "gather", .coll = GYRE_COLL_GATHER, .is_in_place_checkable = true},
    {.name = "reduce", .coll = GYRE_COLL_REDUCE, .is_in_place_checkable = true},
    {.name = "reducescatter", .coll = GYRE_COLL_REDUCE_SCATTER, .is_in_place_checkable = true},
    {.name = "scatter", .coll = GYRE_COLL_SCATTER, .is_in_place_checkable = true},
    /* to the next rank, from the previous one */
    {.name = "sendrecv", .coll = GYRE_COLL_SEND_RECV},
};

int main(int argc, char **argv)
{
    const struct bench_kind *kind = kinds;
    while (strcmp(kind->name, BENCH_NAME) != 0)
        kind++;
    return bench_main(argc, argv, kind);
}
