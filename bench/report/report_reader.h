/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads reports of benches (--json) as measurements for tune.
 */
#ifndef GYRE_BENCH_REPORT_READER_H
#define GYRE_BENCH_REPORT_READER_H

#include "bench/tools/fit.h"

/** bench_reports_read - read from all reports (*.json) of a folder the calls that the simulator can
 * predict: all_reduce, all_gather and reduce_scatter on one host, staged through slots. The time is
 * that out of place, or that of the rounds of --compare if the report has them. Other contents of
 * the folder are skipped.
 * @facts_out: of such communicators, with the largest number of ranks. @rows_out: up to most_rows,
 * in the order of the files' names.
 * Errors: INVALID_ARGUMENT (nothing found, two kinds of device, or reports of another version),
 * SYSTEM, UNSUPPORTED (this build has no json-c). */
gyre_status bench_reports_read(const char *folder, struct gyre_tuner_facts *facts_out,
                               struct bench_fit_row *rows_out, size_t most_rows,
                               size_t *n_rows_out);

#endif
