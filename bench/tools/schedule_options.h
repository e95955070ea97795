/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of `schedule`, and the shape of the collective that it names.
 */
#ifndef GYRE_BENCH_SCHEDULE_OPTIONS_H
#define GYRE_BENCH_SCHEDULE_OPTIONS_H

#include "algorithms/algorithm.h"
#include "bench/tools/schedule_predict.h"

#include <stdio.h>

/* Texts are those of argv; NULL or 0 = the option was not given. */
struct bench_schedule_options {
    const char *algorithm;
    const char *collective;
    const char *hosts;
    const char *file;
    const char *json_path;
    const char *msccl_path;
    int n_ranks;
    int root;
    int rank;    /* the program to print; -1 = those of all ranks */
    int variant; /* to print and prove; -1 = print the first one, prove all */
    int n_nics;
    bool rounds;
    bool verify;
    bool is_placed;
    bool predict;
    bool wants_help;
    struct bench_schedule_request request; /* the options that only --predict reads */
};

void bench_schedule_print_usage(FILE *out);

/** bench_schedule_parse - read the command line and check that its options go together. Returns
 * false after it has printed what is wrong. */
bool bench_schedule_parse(int argc, char **argv, struct bench_schedule_options *options_out);

/** bench_schedule_find_shape - the algorithm and the shape that the options name. Returns false
 * after it has printed which of them is missing or unknown.
 * @algorithm_out: NULL when --predict is given without --algo.
 * @shape_out: its grouping lies in static memory, so that a process has one shape at a time. */
bool bench_schedule_find_shape(const struct bench_schedule_options *options,
                               const struct gyre_algorithm **algorithm_out,
                               struct gyre_shape *shape_out);

/** bench_schedule_find_hosts - the hosts that --hosts names for the programs of a file. Returns
 * false after it has printed what is wrong.
 * @grouping_out: NULL = one host; else in static memory. */
bool bench_schedule_find_hosts(const struct bench_schedule_options *options, int n_ranks,
                               const struct gyre_grouping **grouping_out);

#endif
