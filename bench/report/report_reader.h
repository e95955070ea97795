/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the reports of benches (--json). A call's time is that out of place, or that of the rounds
 * of --compare if the report has them.
 */
#ifndef GYRE_BENCH_REPORT_READER_H
#define GYRE_BENCH_REPORT_READER_H

#include "bench/tools/fit.h"
#include "core/foundation/base/status.h"
#include "core/foundation/model/types.h"

#include <stdbool.h>
#include <stdint.h>

#define BENCH_MAX_TIME_POINTS 512

struct bench_time_point {
    uint64_t n_bytes; /* of the whole vector or of all blocks */
    double us;        /* mean over the rows of this size */
    int n_rows;
};

/* Smaller sizes first. */
struct bench_time_curve {
    struct bench_time_point points[BENCH_MAX_TIME_POINTS];
    int n_points;
};

struct bench_report_times {
    unsigned n_ranks; /* 0 = no report yet */
    unsigned n_hosts;
    struct bench_time_curve of[GYRE_N_COLLECTIVES];
};

/** bench_report_times_add - @times: zero before the first report. Errors, which name the path:
 * INVALID_ARGUMENT (not a bench's report, no usable row, another number of ranks or hosts than the
 * reports before, or wrong results), SYSTEM, UNSUPPORTED (this build has no json-c). */
gyre_status bench_report_times_add(const char *path, struct bench_report_times *times);

/** bench_time_curve_at - of a call of any size, in us. Between two points the logarithms are
 * interpolated. Above the largest size the time grows with the bytes; below the smallest size it is
 * that of the smallest. @curve: has at least one point. @is_beyond_out: the size is outside the
 * measured sizes. */
double bench_time_curve_at(const struct bench_time_curve *curve, double n_bytes,
                           bool *is_beyond_out);

/** bench_reports_read - for tune, from all reports (*.json) of a folder, the calls that the
 * simulator can predict: all_reduce, all_gather and reduce_scatter on one host, staged through
 * slots. @facts_out: of such communicators, with the largest number of ranks. @rows_out: up to
 * most_rows, in the order of the files' names. Errors: INVALID_ARGUMENT (nothing found, two kinds
 * of device, or reports of another version), SYSTEM, UNSUPPORTED (this build has no json-c). */
gyre_status bench_reports_read(const char *folder, struct gyre_tuner_facts *facts_out,
                               struct bench_fit_row *rows_out, size_t most_rows,
                               size_t *n_rows_out);

#endif
