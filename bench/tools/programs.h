/* SPDX-License-Identifier: Apache-2.0
 *
 * All ranks' programs of one shape, and a file's fabric. Functions that return bool print mistakes
 * on standard error.
 */
#ifndef GYRE_BENCH_TOOLS_PROGRAMS_H
#define GYRE_BENCH_TOOLS_PROGRAMS_H

#include "algorithms/contenders/contender.h"
#include "core/gyre_model.h"

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

/** schedule --from-msccl: Python translates an algorithm (bench/python/from_msccl.py), then it is
 * proved. */
bool bench_programs_from_msccl(const char *path, struct gyre_program_file *file_out);

/** Are the programs another rail's of the set before? */
bool bench_programs_is_variant(const struct gyre_program_file *file, int set);

/** Takes all rail programs of one shape from @set on. Returns their number. */
int bench_programs_take(const struct gyre_program_file *file, int set,
                        struct gyre_given_programs *given_out);

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

#endif
