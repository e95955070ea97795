/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver that all benches share: a bench is one struct bench_kind and one call of bench_main().
 */
#ifndef GYRE_BENCH_BENCH_H
#define GYRE_BENCH_BENCH_H

#include "core/foundation/model/types.h"

struct bench_rank;

struct bench_kind {
    const char *name; /* of the binary */
    enum gyre_collective coll;
    bool is_in_place_checkable; /* false: the result in place is undefined, and only timed */
    /* The work of each rank in place of the table; NULL = the table of sizes. */
    gyre_status (*run)(struct bench_rank *rank);
    size_t min_bytes; /* defaults of -b, -e and -f; 0 = the defaults of nccl-tests */
    size_t max_bytes;
    int step_factor;
};

/** bench_main - Returns the exit status: 0 only if the run succeeded, every checked value was right
 * and all output was written. */
int bench_main(int argc, char **argv, const struct bench_kind *kind);

#endif
