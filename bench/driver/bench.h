/* SPDX-License-Identifier: Apache-2.0
 *
 * A bench is one struct bench_kind and one call of bench_main().
 */
#ifndef GYRE_BENCH_BENCH_H
#define GYRE_BENCH_BENCH_H

#include "core/foundation/model/types.h"

struct bench_rank;

struct bench_kind {
    const char *name;
    enum gyre_collective coll;
    bool is_in_place_checkable; /* else in place is only timed */
    /* NULL = the table of sizes. */
    gyre_status (*run)(struct bench_rank *rank);
    size_t min_bytes; /* defaults of -b, -e, -f; 0 = nccl-tests' */
    size_t max_bytes;
    int step_factor;
};

/** Exit status 0 if the run succeeded, every checked value was right and all output was written. */
int bench_main(int argc, char **argv, const struct bench_kind *kind);

#endif
