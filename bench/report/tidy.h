/* SPDX-License-Identifier: Apache-2.0
 *
 * The tidy CSV of --compare-algos, --sweep and schedule --predict: a line for each time with what
 * was timed on which machine, so that files of several runs can be put together. `gyre plot
 * --table` has the same columns.
 */
#ifndef GYRE_BENCH_TIDY_H
#define GYRE_BENCH_TIDY_H

#include "core/foundation/base/status.h"
#include "core/foundation/model/types.h"

#include <stdbool.h>
#include <stdint.h>

struct bench_tidy_row {
    const char *engine;  /* "gyre", or "predicted" */
    const char *machine; /* the host of rank 0; for predictions the name of the constants */
    const char *device;  /* "host" or "cuda" */
    const char *fabric;  /* the file of a predicted fabric; "" = none */
    unsigned n_ranks;
    unsigned n_hosts;
    enum gyre_collective coll;
    const char *dtype;
    const char *algorithm;
    const char *proto;   /* "" = unknown */
    unsigned n_channels; /* 0 = unknown */
    uint64_t n_bytes;
    double time_us;
    double ratio; /* to the first algorithm of --compare-algos; 0 = none */
    double ratio_low;
    double ratio_high;
};

struct bench_tidy;

/** bench_tidy_open - @appends: keep the lines that the file has; the line of names is written if
 * there are none. Otherwise the first line replaces the file. Errors: INVALID_ARGUMENT (a link to
 * nothing, "-"), SYSTEM. */
gyre_status bench_tidy_open(const char *path, bool appends, struct bench_tidy **tidy_out);

/** bench_tidy_row - the line is in the file when the call returns. NULL does nothing. Errors:
 * SYSTEM. */
gyre_status bench_tidy_row(struct bench_tidy *tidy, const struct bench_tidy_row *row);

/** bench_tidy_close - NULL does nothing. Errors: SYSTEM. */
gyre_status bench_tidy_close(struct bench_tidy *tidy);

#endif
