/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of `schedule`.
 */
#ifndef GYRE_BENCH_SCHEDULE_OPTIONS_H
#define GYRE_BENCH_SCHEDULE_OPTIONS_H

#include "bench/tools/schedule_predict.h"
#include "bench/tools/shape_options.h"

#include <stdio.h>

struct bench_schedule_options {
    struct bench_shape_options shape; /* variant -1 = print the first one, prove all */
    int rank;                         /* the program to print; -1 = those of all ranks */
    const char *json_path;
    const char *csv_path;
    const char *msccl_path;
    bool rounds;
    bool verify;
    bool predict;
    bool wants_help;
    struct bench_schedule_request request; /* the options that only --predict reads */
};

void bench_schedule_print_usage(const char *program, FILE *out);

/** bench_schedule_parse - read the command line and check that its options go together. Returns
 * false after it has printed what is wrong. */
bool bench_schedule_parse(int argc, char **argv, struct bench_schedule_options *options_out);

#endif
