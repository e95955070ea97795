/* SPDX-License-Identifier: Apache-2.0
 *
 * The CSV of --compare-algos, --sweep and schedule --predict: each line says what was timed where,
 * so that files can be joined. `gyre plot --table` has the same columns.
 */
#ifndef GYRE_BENCH_TIDY_H
#define GYRE_BENCH_TIDY_H

#include "core/foundation/base/status.h"
#include "core/gyre_model.h"

#include <stdbool.h>
#include <stdint.h>

struct bench_tidy_row {
    const char *engine;  /* "gyre", or "predicted" */
    const char *machine; /* rank 0's host, or the constants' name */
    const char *device;  /* "host" or "cuda" */
    const char *fabric;  /* predicted fabric's file, "" = none */
    unsigned n_ranks;
    unsigned n_hosts;
    enum gyre_collective coll;
    const char *dtype;
    const char *algorithm;
    const char *proto;   /* "" = unknown */
    unsigned n_channels; /* 0 = unknown */
    uint64_t n_bytes;
    double time_us;
    double ratio; /* to the first algorithm, 0 = none */
    double ratio_low;
    double ratio_high;
};

struct bench_tidy;

/** @appends: keep the file's lines. Otherwise the first line replaces the file. Errors:
 * INVALID_ARGUMENT (a link to nothing, "-"), SYSTEM. */
gyre_status bench_tidy_open(const char *path, bool appends, struct bench_tidy **tidy_out);

/** The file has the line afterwards. @tidy: NULL does nothing. Errors: SYSTEM. */
gyre_status bench_tidy_row(struct bench_tidy *tidy, const struct bench_tidy_row *row);

/** @tidy: NULL does nothing. Errors: SYSTEM. */
gyre_status bench_tidy_close(struct bench_tidy *tidy);

#endif
