/* SPDX-License-Identifier: Apache-2.0
 *
 * Options for all ranks' programs: an algorithm and a shape, or a file. A function that finds a
 * mistake prints it on standard error and returns false.
 */
#ifndef GYRE_BENCH_TOOLS_SHAPE_OPTIONS_H
#define GYRE_BENCH_TOOLS_SHAPE_OPTIONS_H

#include "bench/driver/option_table.h"
#include "bench/tools/schedule_predict.h"

#include <stdio.h>

/* Texts are argv's. NULL or 0 = not given. */
struct bench_shape_options {
    const char *user; /* begins messages */
    const char *algorithm;
    const char *collective;
    const char *hosts;
    const char *file;
    int n_ranks;
    int root;
    int variant; /* -1 = not given */
    int n_nics;
    bool is_placed;
    const struct gyre_grouping *grouping; /* replaces --hosts, NULL = none */
};

/* @type: program's struct. @shape: its struct bench_shape_options. */
/* clang-format off */
#define BENCH_SHAPE_OPTIONS(type, shape) \
    {'a', "algo", "NAME", "the algorithm", BENCH_TEXT, .at = offsetof(type, shape.algorithm)}, \
    {'c', "coll", "NAME", "the collective", BENCH_TEXT, .at = offsetof(type, shape.collective)}, \
    {'n', "ranks", "N", "the number of ranks, 1 to 16384 (default: as --hosts says)", \
     BENCH_NUMBER, .at = offsetof(type, shape.n_ranks), 1, GYRE_MAX_RANKS}, \
    {'r', "root", "R", "the root (default 0)", \
     BENCH_NUMBER, .at = offsetof(type, shape.root), 0, GYRE_MAX_RANKS - 1}, \
    {'H', "hosts", "LIST", \
     "the hosts: 2x8 (2 hosts of 8 ranks), 7+8 (the ranks of each), or\n" \
     "the host of each rank, 0,0,1,1 (default: one host)", \
     BENCH_TEXT, .at = offsetof(type, shape.hosts)}, \
    {0, "nics", "N", "NICs that the ranks of a host use (default: one for each rank)", \
     BENCH_NUMBER, .at = offsetof(type, shape.n_nics), 1, GYRE_MAX_RANKS}, \
    {0, "variant", "V", \
     "this variant only (channel c runs variant c mod the number of\nvariants; default 0)", \
     BENCH_NUMBER, .at = offsetof(type, shape.variant), 0, GYRE_MAX_VARIANTS - 1}, \
    {'P', "placed", NULL, "results lie in windows: finished data is placed there", \
     BENCH_FLAG, .at = offsetof(type, shape.is_placed)}, \
    {'f', "file", "FILE", "read the programs from FILE (- = standard input)", \
     BENCH_TEXT, .at = offsetof(type, shape.file)}

/* @request: program's struct bench_schedule_request. */
#define BENCH_TILING_OPTIONS(type, request, help) \
    {0, "channels", "N", NULL, \
     BENCH_NUMBER, .at = offsetof(type, request.n_channels), 1, 1024}, \
    {0, "tile", "BYTES", NULL, \
     BENCH_BYTES, .at = offsetof(type, request.tile_bytes), 1, 1 << 30, \
     .expected = "a size from 1 to 1G, such as 65536 or 64K"}, \
    {0, "depth", "SLOTS", help, BENCH_NUMBER, .at = offsetof(type, request.depth), 1, 64}

#define BENCH_NET_OPTION(type, request, help) \
    {0, "net", "NAME", help, BENCH_WORD, .at = offsetof(type, request.net), \
     BENCH_NET_IB, BENCH_NET_SOCKET + 1, bench_net_words, .expected = "ib (RDMA) or socket (TCP)"}
/* clang-format on */

extern const char *const bench_net_words[]; /* by enum bench_schedule_net */

void bench_shape_print_algorithms(FILE *out);

/** @needs_algorithm: if false, algorithm_out is NULL without --algo. @shape_out: its grouping is
 * static, so a process has one shape at a time. */
bool bench_shape_find(const struct bench_shape_options *options, bool needs_algorithm,
                      const struct gyre_algorithm **algorithm_out, struct gyre_shape *shape_out);

/** Do the options name a shape? Checked before any work. @needs_algorithm: as for
 * bench_shape_find(). */
bool bench_shape_is_right(const struct bench_shape_options *options, bool needs_algorithm);

/** For a file's programs. @grouping_out: NULL = one host, else static memory. */
bool bench_shape_find_hosts(const struct bench_shape_options *options, int n_ranks,
                            const struct gyre_grouping **grouping_out);

#endif
