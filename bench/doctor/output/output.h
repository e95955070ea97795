/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms in which findings are written.
 */
#ifndef GYRE_BENCH_DOCTOR_OUTPUT_H
#define GYRE_BENCH_DOCTOR_OUTPUT_H

#include "bench/doctor/doctor.h"

#include <stdio.h>

/* The report that is written: the merged findings of all ranks. */
struct bench_doctor_report {
    const struct bench_doctor *doctor;
    const char *hosts; /* "hostA (rank 0-3), hostB (rank 4-7)" */
    int n_by_severity[BENCH_N_SEVERITIES];
    int exit_status;
};

/** bench_doctor_summary - "1 fail, 2 warn, 0 unknown, 20 ok, 7 skipped". Returns text_out. */
const char *bench_doctor_summary(const struct bench_doctor_report *report, char *text_out,
                                 size_t text_bytes);

/** bench_matrix_slowest - the pair with the least bandwidth. Returns false if no pair was
 * measured. */
bool bench_matrix_slowest(const struct bench_matrix *matrix, int *from_out, int *to_out);

/* Which findings are printed for people. */
enum bench_print {
    BENCH_PRINT_PROBLEMS, /* not those that are ok or skipped */
    BENCH_PRINT_USUAL,    /* skipped ones as one line with their number */
    BENCH_PRINT_ALL
};

/** bench_doctor_print - print the report for people. Colours are used if `file` is a terminal. */
void bench_doctor_print(const struct bench_doctor_report *report, enum bench_print which,
                        FILE *file);

/** bench_doctor_write_* - replace a file. Errors: as gyre_file_replace(); UNSUPPORTED for JSON if
 * json-c was missing when this program was built. */
gyre_status bench_doctor_write_json(const struct bench_doctor_report *report, const char *path);
gyre_status bench_doctor_write_markdown(const struct bench_doctor_report *report, const char *path);
gyre_status bench_doctor_write_html(const struct bench_doctor_report *report, const char *path);

#endif
