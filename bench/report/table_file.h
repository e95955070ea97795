/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that grows during a run. It keeps its contents until the first bench_table_file_put(), so
 * that a failed start destroys nothing, and is whole after each put.
 */
#ifndef GYRE_BENCH_TABLE_FILE_H
#define GYRE_BENCH_TABLE_FILE_H

#include "core/foundation/base/status.h"
#include "core/gyre_model.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct bench_table_file {
    FILE *file; /* flushed by bench_table_file_put() */
    const char *option;
    const char *path;
    char *text;
    size_t n_bytes;
    bool is_replaced; /* else written directly */
};

/** Does not touch the file. @option: for messages, e.g. "--csv". Errors: INVALID_ARGUMENT (a
 * device, a link to nothing, "-"), SYSTEM. */
gyre_status bench_table_file_check(const char *option, const char *path);

/** Pipes and devices, and with @appends all files, are written directly behind their contents.
 * @file_out: must not move while it is open, and is of zeros but for names after a failure. Errors:
 * as bench_table_file_check, OUT_OF_MEMORY. */
gyre_status bench_table_file_open(const char *option, const char *path, bool appends,
                                  struct bench_table_file *file_out);

/** An open descriptor such as /dev/stdout or a device, and no file of /dev/shm. The shell may hold
 * a regular file open there, so it is not replaced. */
bool bench_table_file_is_direct(const char *path);

/** Errors: SYSTEM. */
gyre_status bench_table_file_append(const char *option, const char *path, const char *text);

/** Errors: SYSTEM. */
gyre_status bench_table_file_put(struct bench_table_file *file);

/** Replaced files lose what was printed after the last put. @file: zeros do nothing. Errors:
 * SYSTEM. */
gyre_status bench_table_file_close(struct bench_table_file *file);

/* `gyre plot --table` has the same columns. */

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

/** Busbw / algbw as in nccl-tests: how often data crosses the busiest link of an ideal algorithm.
 * Of n blocks a rank keeps its own, so (n - 1) / n crosses its link, in an all-reduce twice. */
static inline double bench_bus_factor(enum gyre_collective coll, unsigned n_ranks)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[coll];
    const double others = (double)(n_ranks - 1) / n_ranks;
    if (coll == GYRE_COLL_ALL_REDUCE)
        return 2 * others;
    return traits->in_blocks || traits->out_blocks ? others : 1;
}

#endif
