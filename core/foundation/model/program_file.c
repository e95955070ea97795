/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/model/program_file.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

static bool is_end_line(const char *line)
{
    line += strspn(line, " \t");
    return strncmp(line, "end", 3) == 0 && strchr(" \t\r\n#", line[3]) != NULL;
}

static bool is_at_end(const char *at)
{
    for (;;) {
        at += strspn(at, " \t\r\n");
        if (*at != '#')
            return *at == '\0';
        at += strcspn(at, "\n");
    }
}

static void *grow(void *array, int n, size_t elem_bytes)
{
    if ((n & (n - 1)) != 0)
        return array;
    return realloc(array, (size_t)(n > 0 ? 2 * n : 1) * elem_bytes);
}

static gyre_status read_program(struct gyre_program_file *file, const char *name, char **at,
                                int *line)
{
    char *end = *at;
    int n_lines = 1;
    while (*end != '\0' && !is_end_line(end)) {
        end += strcspn(end, "\n");
        end += *end == '\n';
        n_lines++;
    }
    end += strcspn(end, "\n");
    const bool is_last = *end == '\0';
    *end = '\0';
    struct gyre_program **programs =
        grow(file->programs, file->n_programs, sizeof(struct gyre_program *));
    gyre_status status = GYRE_SUCCESS;
    if (programs == NULL) {
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d programs", file->n_programs);
    } else {
        file->programs = programs;
        status = gyre_program_from_lines(*at, *line, &programs[file->n_programs]);
    }
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "%s", name);
    file->n_programs++;
    *at = is_last ? end : end + 1;
    *line += n_lines;
    return GYRE_SUCCESS;
}

static gyre_status find_sets(struct gyre_program_file *file)
{
    for (int i = 0; i < file->n_programs; i++) {
        const struct gyre_program *program = file->programs[i];
        struct gyre_program_set *set = file->n_sets == 0 ? NULL : &file->sets[file->n_sets - 1];
        const struct gyre_program *first = set == NULL ? NULL : file->programs[set->first];
        if (first != NULL && set->n_programs < program->n_ranks && first->coll == program->coll &&
            first->n_ranks == program->n_ranks && first->root == program->root &&
            strcmp(first->algorithm, program->algorithm) == 0) {
            set->n_programs++;
            continue;
        }
        struct gyre_program_set *sets = grow(file->sets, file->n_sets, sizeof(*sets));
        if (sets == NULL)
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d shapes", file->n_sets);
        file->sets = sets;
        sets[file->n_sets++] = (struct gyre_program_set){.first = i, .n_programs = 1};
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_program_file_parse(char *text, const char *name,
                                    struct gyre_program_file *file_out)
{
    struct gyre_program_file file = {0};
    gyre_status status = GYRE_SUCCESS;
    int line = 1;
    while (status == GYRE_SUCCESS && !is_at_end(text))
        status = read_program(&file, name, &text, &line);
    if (status == GYRE_SUCCESS && file.n_programs == 0)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s holds no program", name);
    if (status == GYRE_SUCCESS)
        status = find_sets(&file);
    if (status != GYRE_SUCCESS) {
        gyre_program_file_free(&file);
        return status;
    }
    file.hash = GYRE_HASH_INIT;
    for (int i = 0; i < file.n_programs; i++) {
        const char *algorithm = file.programs[i]->algorithm;
        const uint64_t of_program = gyre_program_hash(file.programs[i]);
        file.hash = gyre_hash(file.hash, &of_program, sizeof(of_program));
        file.hash = gyre_hash(file.hash, algorithm, strlen(algorithm));
    }
    *file_out = file;
    return GYRE_SUCCESS;
}

void gyre_program_file_free(struct gyre_program_file *file)
{
    for (int i = 0; i < file->n_programs; i++)
        gyre_program_free(file->programs[i]);
    free(file->programs);
    free(file->sets);
    memset(file, 0, sizeof(*file));
}
