/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of `gyre doctor`.
 */
#ifndef GYRE_BENCH_DOCTOR_OPTIONS_H
#define GYRE_BENCH_DOCTOR_OPTIONS_H

#include <stdbool.h>

struct bench_doctor_options {
    const char *root; /* "" = this machine */
    const char *json_path;
    const char *markdown_path;
    const char *html_path;
    const char *only; /* the beginning of the ids that run; "" = all */
    bool is_list;
    bool is_help;
    bool is_quiet; /* print problems alone */
    bool is_all;   /* print each check that was skipped, with its reason */
};

/** bench_doctor_parse - read the command line. Returns false after printing what is wrong. */
bool bench_doctor_parse(int argc, char **argv, struct bench_doctor_options *options_out);

extern const char bench_doctor_usage[];

#endif
