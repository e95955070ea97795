/* SPDX-License-Identifier: Apache-2.0
 *
 * A call's time is out of place, or of the rounds of --compare.
 */
#ifndef GYRE_BENCH_REPORT_READER_H
#define GYRE_BENCH_REPORT_READER_H

#include "bench/tools/fit.h"
#include "core/foundation/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define BENCH_MAX_TIME_POINTS 512

struct bench_time_point {
    uint64_t n_bytes; /* of the vector or all blocks */
    double us;        /* mean over rows of this size */
    int n_rows;
};

/* By size. */
struct bench_time_curve {
    struct bench_time_point points[BENCH_MAX_TIME_POINTS];
    int n_points;
};

struct bench_report_times {
    unsigned n_ranks; /* 0 = no report yet */
    unsigned n_hosts;
    struct bench_time_curve of[GYRE_N_COLLECTIVES];
};

/** @times: zero at first. Errors name the path: INVALID_ARGUMENT (no report, no usable row, other
 * ranks or hosts than before, or wrong results), SYSTEM, UNSUPPORTED (no json-c). */
gyre_status bench_report_times_add(const char *path, struct bench_report_times *times);

/** The time of any size in us. Between points logarithms are interpolated; above the largest size
 * the time grows with the bytes, below the smallest it stays. @curve: has a point. @is_beyond_out:
 * outside the measured sizes. */
double bench_time_curve_at(const struct bench_time_curve *curve, double n_bytes,
                           bool *is_beyond_out);

/** Of a folder's *.json the calls that the simulator can predict: all_reduce, all_gather and
 * reduce_scatter on one host through slots. @facts_out: with the largest number of ranks.
 * @rows_out: up to most_rows, by file name. Errors: INVALID_ARGUMENT (nothing found, two kinds of
 * device, or another version), SYSTEM, UNSUPPORTED (no json-c). */
gyre_status bench_reports_read(const char *folder, struct gyre_tuner_facts *facts_out,
                               struct bench_fit_row *rows_out, size_t most_rows,
                               size_t *n_rows_out);

#endif
