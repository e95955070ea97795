/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule --predict: what the simulator says about a collective, by size.
 */
#ifndef GYRE_BENCH_SCHEDULE_PREDICT_H
#define GYRE_BENCH_SCHEDULE_PREDICT_H

#include "algorithms/algorithm.h"

/* Texts are as given on the command line; NULL or 0 = not given. */
struct bench_schedule_request {
    const struct gyre_algorithm *algorithm; /* NULL = each that has the collective */
    enum gyre_collective coll;
    unsigned n_ranks;
    unsigned root;
    const struct gyre_grouping *grouping;
    const char *cost;  /* a table's name or a file; default h200 */
    const char *bytes; /* "SIZE" or "FIRST:LAST", then in powers of four; default 1K:1G */
    const char *proto;
    int n_channels;
    int tile_bytes;
    int depth;
};

/** bench_schedule_predict - a line a size: with one algorithm its time, bandwidth and bottleneck,
 * else the times of all algorithms side by side. What is not given is as a communicator would
 * choose it. Errors: INVALID_ARGUMENT, SYSTEM (the file of costs), UNSUPPORTED (too large to
 * simulate). */
gyre_status bench_schedule_predict(const struct bench_schedule_request *request);

#endif
