/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of benches (--json), read back as measurements for a fit.
 */
#ifndef GYRE_BENCH_REPORT_READER_H
#define GYRE_BENCH_REPORT_READER_H

#include "bench/tools/fit.h"

/** bench_reports_read - the calls in all reports (*.json) of a folder that the simulator can
 * predict: of all_reduce, all_gather and reduce_scatter, on one host, through slots. Out of place;
 * the time of rounds beside another engine where there is one. What else the folder holds is left
 * out.
 * @facts_out: of such communicators, n_ranks of the largest. @rows_out: up to most_rows, in the
 * order of the files' names. Errors: INVALID_ARGUMENT (nothing found, two kinds of device, no
 * report of this version), SYSTEM, UNSUPPORTED (built without json-c). */
gyre_status bench_reports_read(const char *folder, struct gyre_tuner_facts *facts_out,
                               struct bench_fit_row *rows_out, size_t most_rows,
                               size_t *n_rows_out);

#endif
