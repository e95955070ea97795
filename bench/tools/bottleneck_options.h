/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of `bottleneck`.
 */
#ifndef GYRE_BENCH_BOTTLENECK_OPTIONS_H
#define GYRE_BENCH_BOTTLENECK_OPTIONS_H

#include "bench/tools/schedule_predict.h"
#include "bench/tools/shape_options.h"
#include "bench/tools/training.h"

#include <stdio.h>

#define BENCH_MAX_FROM 16

struct bench_bottleneck_options {
    struct bench_training training; /* n_ranks is set when the ranks are known */
    gyre_dtype dtype;
    struct bench_shape_options shape;
    struct bench_schedule_request request;
    const char *from[BENCH_MAX_FROM]; /* reports of benches */
    int n_from;
    const char *json_path;
    bool wants_help;
};

void bench_bottleneck_print_usage(const char *program, FILE *out);

/** bench_bottleneck_parse - read the command line. Returns false after it has printed what is
 * wrong. */
bool bench_bottleneck_parse(int argc, char **argv, struct bench_bottleneck_options *options_out);

#endif
