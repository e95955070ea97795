/* SPDX-License-Identifier: Apache-2.0
 *
 * All ranks' programs of one shape, and a file's fabric. Functions that return bool print mistakes
 * on standard error.
 */
#ifndef GYRE_BENCH_TOOLS_PROGRAMS_H
#define GYRE_BENCH_TOOLS_PROGRAMS_H

#include "algorithms/contenders/contender.h"
#include "bench/driver/option_table.h"
#include "bench/tools/schedule_predict.h"
#include "core/gyre_model.h"

#include <stdio.h>

struct bench_programs {
    const char *user; /* begins messages */
    struct gyre_program *of_rank[GYRE_MAX_RANKS];
    int n;
};

void bench_programs_free(struct bench_programs *programs);

bool bench_programs_emit(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape,
                         struct bench_programs *programs);

/** @user: begins messages. @path: "-" = standard input. */
bool bench_programs_load(const char *user, const char *path, struct gyre_program_file *file_out);

/** schedule --from-msccl (bench/python/from_msccl.py); proved. */
bool bench_programs_from_msccl(const char *path, struct gyre_program_file *file_out);

struct bench_fabric {
    struct gyre_fabric *fabric;
    struct gyre_grouping grouping;
};

/** @path: a file, a machine's name or its file (*.machine), NULL = none. @n_hosts, @n_gpus: of a
 * machine, 0 = as its file says. Errors: INVALID_ARGUMENT with file, line and reason, SYSTEM,
 * OUT_OF_MEMORY. */
gyre_status bench_fabric_load(const char *path, unsigned n_hosts, unsigned n_gpus,
                              struct bench_fabric *fabric_out);

/** Is it a machine's name or file, so that the number of hosts is free? */
bool bench_fabric_is_machine(const char *path);

void bench_fabric_close(struct bench_fabric *fabric);

/** @machine: a file, or the name of a shipped machine, such as h100. Errors: as
 * gyre_machine_file_read(). */
gyre_status bench_machine_load(const char *machine, struct gyre_machine_file *file_out);

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

/** For a file's programs. @grouping_out: NULL = one host, else static memory. */
bool bench_shape_find_hosts(const struct bench_shape_options *options, int n_ranks,
                            const struct gyre_grouping **grouping_out);

#endif
