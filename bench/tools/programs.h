/* SPDX-License-Identifier: Apache-2.0
 *
 * The programs of all ranks of one shape, for the tools that print, prove and draw them. A function
 * that finds a mistake prints it on standard error and returns false.
 */
#ifndef GYRE_BENCH_TOOLS_PROGRAMS_H
#define GYRE_BENCH_TOOLS_PROGRAMS_H

#include "algorithms/algorithm.h"
#include "core/foundation/model/program_file.h"

struct bench_programs {
    const char *user; /* name of the tool, which messages begin with */
    struct gyre_program *of_rank[GYRE_MAX_RANKS];
    int n;
};

void bench_programs_free(struct bench_programs *programs);

/** bench_programs_emit - the programs of an algorithm, of shape->variant, in place of those that
 * the struct holds. */
bool bench_programs_emit(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape,
                         struct bench_programs *programs);

/** bench_programs_load - read all programs of a text file.
 * @user: name of the tool, which messages begin with.
 * @path: "-" = standard input. */
bool bench_programs_load(const char *user, const char *path, struct gyre_program_file *file_out);

#endif
