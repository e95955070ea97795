/* SPDX-License-Identifier: Apache-2.0
 *
 * The programs of all ranks of one shape, and the fabric of a file. A function that returns bool
 * prints a mistake on standard error.
 */
#ifndef GYRE_BENCH_TOOLS_PROGRAMS_H
#define GYRE_BENCH_TOOLS_PROGRAMS_H

#include "algorithms/algorithm.h"
#include "algorithms/simulate/fabric.h"
#include "core/foundation/model/program_file.h"

struct bench_programs {
    const char *user; /* messages begin with it */
    struct gyre_program *of_rank[GYRE_MAX_RANKS];
    int n;
};

void bench_programs_free(struct bench_programs *programs);

bool bench_programs_emit(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape,
                         struct bench_programs *programs);

/** bench_programs_load - @user: as in struct bench_programs. @path: "-" = standard input. */
bool bench_programs_load(const char *user, const char *path, struct gyre_program_file *file_out);

/** bench_programs_from_msccl - schedule --from-msccl: python3 translates an algorithm of MSCCL
 * (bench/python/from_msccl.py), and the programs are proved. */
bool bench_programs_from_msccl(const char *path, struct gyre_program_file *file_out);

/** bench_programs_is_variant - are the programs those of another rail of the set before? */
bool bench_programs_is_variant(const struct gyre_program_file *file, int set);

/** bench_programs_take - all rail programs of one shape, from @set on. Returns how many. */
int bench_programs_take(const struct gyre_program_file *file, int set,
                        struct gyre_given_programs *given_out);

struct bench_fabric {
    struct gyre_fabric *fabric;
    struct gyre_grouping grouping;
};

/** bench_fabric_load - @path: NULL = none. Errors: INVALID_ARGUMENT with file, line and reason;
 * SYSTEM; OUT_OF_MEMORY. */
gyre_status bench_fabric_load(const char *path, struct bench_fabric *fabric_out);

void bench_fabric_close(struct bench_fabric *fabric);

#endif
