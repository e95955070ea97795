/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of all ranks from an algorithm, or from a text file with one program after the other.
 */
#include "bench/tools/programs.h"

#include "core/foundation/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Limit on --file. The text of direct all_to_all has 21 MB for 512 ranks, and 64 times as much for
 * 4096 ranks. */
#define MAX_FILE_BYTES ((size_t)2 << 30)

void bench_programs_free(struct bench_programs *programs)
{
    for (int rank = 0; rank < programs->n; rank++)
        gyre_program_free(programs->of_rank[rank]);
    programs->n = 0;
}

bool bench_programs_emit(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape,
                         struct bench_programs *programs)
{
    bench_programs_free(programs);
    for (int rank = 0; rank < shape->n_ranks; rank++) {
        if (gyre_algorithm_emit(algorithm, shape, rank, &programs->of_rank[rank]) != GYRE_SUCCESS) {
            fprintf(stderr, "%s: %s\n", programs->user, gyre_cause());
            return false;
        }
        programs->n++;
    }
    return true;
}

/* Reads the whole file into malloc'ed and terminated text. Returns NULL after printing a failure.
 */
static char *read_all(const char *user, const char *path)
{
    char *text = NULL;
    const bool is_stdin = strcmp(path, "-") == 0;
    const gyre_status status =
        is_stdin ? gyre_file_read_open(STDIN_FILENO, "standard input", MAX_FILE_BYTES, &text, NULL)
                 : gyre_file_read(path, MAX_FILE_BYTES, &text, NULL);
    if (status != GYRE_SUCCESS) {
        fprintf(stderr, "%s: --file: %s%s\n", user, gyre_cause(),
                status == GYRE_ERROR_INVALID_ARGUMENT && !is_stdin
                    ? " (to read a pipe, give --file - and redirect the input)"
                    : "");
        return NULL;
    }
    return text;
}

bool bench_programs_load(const char *user, const char *path, struct gyre_program_file *file_out)
{
    char *text = read_all(user, path);
    if (text == NULL)
        return false;
    const gyre_status status = gyre_program_file_parse(text, path, file_out);
    free(text);
    if (status != GYRE_SUCCESS)
        fprintf(stderr, "%s: %s\n", user, gyre_cause());
    return status == GYRE_SUCCESS;
}
