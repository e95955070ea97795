/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver that all benches share. A bench binary is one struct bench_kind and a call of
 * bench_main(); everything else (options, launching, timing, checking, output) is the same.
 */
#ifndef GYRE_BENCH_BENCH_H
#define GYRE_BENCH_BENCH_H

#include "core/model/types.h"

struct bench_rank;

struct bench_kind {
    const char *name; /* of the binary */
    enum gyre_collective coll;
    /* busbw = algbw * this: how many times the data crosses the busiest link of an ideal
     * algorithm (the same factors as nccl-tests, so that figures can be compared). */
    double (*bus_factor)(int n_ranks);
    bool is_in_place_checkable; /* false: in place has no defined result, only a time */
    /* In place of the table: what each rank does once it has joined; NULL = the table. */
    gyre_status (*run)(struct bench_rank *rank);
    size_t min_bytes; /* of -b, -e and -f where they are not given; 0 = as nccl-tests */
    size_t max_bytes;
    int step_factor;
};

/** bench_main - run the bench; returns the exit status: 0 only if everything ran, every checked
 * value was right and everything printed was written. */
int bench_main(int argc, char **argv, const struct bench_kind *kind);

#endif
