/* SPDX-License-Identifier: Apache-2.0
 *
 * The options that name the programs of all ranks: an algorithm and a shape, or a file. `schedule`
 * and `draw` share them. A function that finds a mistake prints it on standard error and returns
 * false.
 */
#ifndef GYRE_BENCH_TOOLS_SHAPE_OPTIONS_H
#define GYRE_BENCH_TOOLS_SHAPE_OPTIONS_H

#include "algorithms/algorithm.h"

#include <stdio.h>

/* Texts are those of argv; NULL or 0 = the option was not given. */
struct bench_shape_options {
    const char *user; /* name of the tool, which messages begin with */
    const char *algorithm;
    const char *collective;
    const char *hosts;
    const char *file;
    int n_ranks;
    int root;
    int variant; /* -1 = the option was not given */
    int n_nics;
    bool is_placed;
    const struct gyre_grouping *grouping; /* in place of --hosts, of n_ranks ranks; NULL = none */
};

/* Ids of the options without a letter. */
enum { BENCH_SHAPE_NICS = 1000, BENCH_SHAPE_VARIANT };

/* For getopt_long(): entries of the table of long options, and letters. */
/* clang-format off */
#define BENCH_SHAPE_LETTERS "a:c:n:r:H:Pf:"
#define BENCH_SHAPE_LONG_OPTIONS                                \
    {"algo", required_argument, NULL, 'a'},                     \
    {"coll", required_argument, NULL, 'c'},                     \
    {"ranks", required_argument, NULL, 'n'},                    \
    {"root", required_argument, NULL, 'r'},                     \
    {"hosts", required_argument, NULL, 'H'},                    \
    {"placed", no_argument, NULL, 'P'},                         \
    {"file", required_argument, NULL, 'f'},                     \
    {"nics", required_argument, NULL, BENCH_SHAPE_NICS},        \
    {"variant", required_argument, NULL, BENCH_SHAPE_VARIANT}
/* clang-format on */

/** bench_shape_print_usage - print one or two lines for each of these options. */
void bench_shape_print_usage(FILE *out);

/** bench_shape_print_algorithms - print a line for each algorithm, with its collectives. */
void bench_shape_print_algorithms(FILE *out);

/** bench_shape_is_option - is this the id of one of these options? */
bool bench_shape_is_option(int id);

/** bench_shape_take - read one of these options. @value: lives as long as the options. */
bool bench_shape_take(int id, const char *value, struct bench_shape_options *options);

/** bench_shape_find - the algorithm and the shape that the options name. If one is missing or
 * unknown, that is printed.
 * @needs_algorithm: false: without --algo, algorithm_out becomes NULL.
 * @shape_out: its grouping lies in static memory, so that a process has one shape at a time. */
bool bench_shape_find(const struct bench_shape_options *options, bool needs_algorithm,
                      const struct gyre_algorithm **algorithm_out, struct gyre_shape *shape_out);

/** bench_shape_is_right - do the options name a shape? If not, what is wrong is printed. Options
 * are checked with it before any work begins. @needs_algorithm: as for bench_shape_find(). */
bool bench_shape_is_right(const struct bench_shape_options *options, bool needs_algorithm);

/** bench_shape_find_hosts - the hosts that --hosts names for the programs of a file.
 * @grouping_out: NULL = one host; else in static memory. */
bool bench_shape_find_hosts(const struct bench_shape_options *options, int n_ranks,
                            const struct gyre_grouping **grouping_out);

/** bench_parse_number - read a number from `least` to `most`, which must be the whole text. */
bool bench_parse_number(const char *user, const char *option, const char *text, int least, int most,
                        int *number_out);

#endif
