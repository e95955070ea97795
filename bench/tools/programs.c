/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of all ranks from an algorithm or a text file, and fabrics.
 */
#include "bench/tools/programs.h"

#include "core/foundation/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The text of direct all_to_all has 21 MB for 512 ranks, and 64 times as much for 4096. */
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

/* malloc'ed and terminated; NULL after printing a failure */
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

gyre_status bench_fabric_load(const char *path, struct bench_fabric *fabric_out)
{
    char *text = NULL;
    size_t n_bytes = 0;
    fabric_out->fabric = NULL;
    if (path == NULL)
        return GYRE_SUCCESS;
    gyre_status status = gyre_file_read(path, GYRE_FABRIC_MAX_TEXT, &text, &n_bytes);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "--fabric");
    status = strlen(text) < n_bytes ? gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                                                "it has a byte of value 0, so it is no text")
                                    : gyre_fabric_from_text(text, &fabric_out->fabric);
    free(text);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "--fabric %s", path);
    gyre_fabric_group(fabric_out->fabric, &fabric_out->grouping);
    return GYRE_SUCCESS;
}

void bench_fabric_close(struct bench_fabric *fabric)
{
    gyre_fabric_free(fabric->fabric);
    fabric->fabric = NULL;
}
