/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_MODEL_PROGRAM_FILE_H
#define GYRE_MODEL_PROGRAM_FILE_H

#include "core/foundation/model/schedule.h"

/* Consecutive programs of one name and shape, at most one a rank, perhaps not all. */
struct gyre_program_set {
    int first;
    int n_programs;
};

struct gyre_program_file {
    struct gyre_program **programs;
    int n_programs;
    struct gyre_program_set *sets;
    int n_sets;
    uint64_t hash; /* of what executors read, and names */
};

/** @text: untrusted; changed while it is read. @name: for messages. Errors: INVALID_ARGUMENT naming
 * file, line and what was expected; OUT_OF_MEMORY. */
gyre_status gyre_program_file_parse(char *text, const char *name,
                                    struct gyre_program_file *file_out);

void gyre_program_file_free(struct gyre_program_file *file);

/** By rank, if the set is whole. */
static inline const struct gyre_program *const *
gyre_program_file_set(const struct gyre_program_file *file, int set)
{
    return (const struct gyre_program *const *)&file->programs[file->sets[set].first];
}

#endif
