/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/tools/programs.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/status.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Direct all_to_all has 21 MB of text for 512 ranks, 64 times that for 4096. */
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

bool bench_programs_load(const char *user, const char *path, struct gyre_program_file *file_out)
{
    char *text = NULL;
    const bool is_stdin = strcmp(path, "-") == 0;
    gyre_status status =
        is_stdin ? gyre_file_read_open(STDIN_FILENO, "standard input", MAX_FILE_BYTES, &text, NULL)
                 : gyre_file_read(path, MAX_FILE_BYTES, &text, NULL);
    if (status != GYRE_SUCCESS) {
        fprintf(stderr, "%s: --file: %s%s\n", user, gyre_cause(),
                status == GYRE_ERROR_INVALID_ARGUMENT && !is_stdin
                    ? " (to read a pipe, give --file - and redirect the input)"
                    : "");
        return false;
    }
    status = gyre_program_file_parse(text, path, file_out);
    free(text);
    if (status != GYRE_SUCCESS)
        fprintf(stderr, "%s: %s\n", user, gyre_cause());
    return status == GYRE_SUCCESS;
}

gyre_status bench_machine_load(const char *machine, struct gyre_machine_file *file_out)
{
    char folder[PATH_MAX], path[PATH_MAX + 300];
    const ssize_t n = readlink("/proc/self/exe", folder, sizeof(folder) - 10);
    if (n < 0)
        return gyre_fail(GYRE_ERROR_SYSTEM, "/proc/self/exe cannot be read");
    folder[n] = '\0';
    strcpy(strrchr(folder, '/'), "/machines");
    snprintf(path, sizeof(path), "%s/%.255s.machine", folder, machine);
    const bool is_shipped = access(path, R_OK) == 0;
    return gyre_machine_file_read(is_shipped ? path : machine, folder, file_out);
}

/* A descriptor for its output, or -1 after printing a failure. */
static int start_importer(const char *path, pid_t *child_out)
{
    char folder[PATH_MAX], script[PATH_MAX + 32];
    int ends[2];
    const ssize_t n = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
    if (n < 0 || pipe(ends) != 0) {
        fprintf(stderr, "schedule: --from-msccl: cannot start python3: %s\n", strerror(errno));
        return -1;
    }
    folder[n] = '\0';
    *strrchr(folder, '/') = '\0';
    snprintf(script, sizeof(script), "%s/python/from_msccl.py", folder);
    *child_out = fork();
    if (*child_out == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        /* -B: an installed folder must not change */
        execlp("python3", "python3", "-B", script, path, (char *)NULL);
        fprintf(stderr, "schedule: --from-msccl: cannot start python3, which it needs: %s\n",
                strerror(errno));
        _exit(1);
    }
    close(ends[1]);
    if (*child_out > 0)
        return ends[0];
    fprintf(stderr, "schedule: --from-msccl: cannot start python3: %s\n", strerror(errno));
    close(ends[0]);
    return -1;
}

/* @min_depth: that the programs need. */
static gyre_status prove(const char *path, const struct gyre_program *const *programs,
                         int n_programs, uint32_t *min_depth)
{
    struct gyre_verify_report report = {0};
    for (int in_place = 0; in_place < 2; in_place++) {
        const struct gyre_verify_options options = {.in_place = in_place == 1};
        const gyre_status status = gyre_verify(programs, n_programs, &options, &report);
        if (status != GYRE_SUCCESS)
            return gyre_fail(status, "%s: the programs are wrong %s: %s", path,
                             in_place == 1 ? "in place, which gyre's always have to be"
                                           : "out of place",
                             report.reason);
    }
    *min_depth = report.min_depth > *min_depth ? report.min_depth : *min_depth;
    return GYRE_SUCCESS;
}

bool bench_programs_from_msccl(const char *path, struct gyre_program_file *file_out)
{
    char *text = NULL;
    pid_t child;
    int exit_status = 0;
    uint32_t min_depth = 1;
    struct gyre_program_file file = {0};
    const int output = start_importer(path, &child);
    if (output < 0)
        return false;
    gyre_status status =
        gyre_file_read_open(output, "the output of python3", MAX_FILE_BYTES, &text, NULL);
    close(output);
    if (waitpid(child, &exit_status, 0) < 0 || exit_status != 0) {
        free(text);
        return false; /* after printing why */
    }
    if (status == GYRE_SUCCESS)
        status = gyre_program_file_parse(text, path, &file);
    free(text);
    for (int set = 0; set < file.n_sets && status == GYRE_SUCCESS; set++)
        status =
            prove(path, gyre_program_file_set(&file, set), file.sets[set].n_programs, &min_depth);
    if (status != GYRE_SUCCESS) {
        fprintf(stderr, "schedule: --from-msccl: %s\n", gyre_cause());
        gyre_program_file_free(&file);
        return false;
    }
    for (int i = 0; i < file.n_programs; i++)
        file.programs[i]->min_depth = (uint16_t)min_depth;
    *file_out = file;
    return true;
}

bool bench_programs_is_variant(const struct gyre_program_file *file, int set)
{
    if (set == 0)
        return false;
    const struct gyre_program *own = gyre_program_file_set(file, set)[0];
    const struct gyre_program *before = gyre_program_file_set(file, set - 1)[0];
    return own->coll == before->coll && own->root == before->root &&
           own->n_ranks == before->n_ranks && own->is_placed == before->is_placed &&
           strcmp(own->algorithm, before->algorithm) == 0;
}

int bench_programs_take(const struct gyre_program_file *file, int set,
                        struct gyre_given_programs *given_out)
{
    struct gyre_given_programs given = {0};
    do
        given.programs[given.n_variants++] = gyre_program_file_set(file, set++);
    while (set < file->n_sets && given.n_variants < GYRE_MAX_VARIANTS &&
           bench_programs_is_variant(file, set));
    *given_out = given;
    return given.n_variants;
}

bool bench_fabric_is_machine(const char *path)
{
    const char *end = path == NULL ? NULL : strrchr(path, '.');
    return path != NULL && ((end != NULL && strcmp(end, ".machine") == 0) ||
                            (strpbrk(path, "./") == NULL && access(path, R_OK) != 0));
}

static gyre_status load_fabric_text(const char *path, struct gyre_fabric **fabric_out)
{
    char *text = NULL;
    size_t n_bytes = 0;
    gyre_status status = gyre_file_read(path, GYRE_FABRIC_MAX_TEXT, &text, &n_bytes);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "--fabric");
    status = strlen(text) < n_bytes ? gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                                                "it has a byte of value 0, so it is no text")
                                    : gyre_fabric_from_text(text, fabric_out);
    free(text);
    return status != GYRE_SUCCESS ? gyre_fail_context(status, "--fabric %s", path) : status;
}

gyre_status bench_fabric_load(const char *path, unsigned n_hosts, unsigned n_gpus,
                              struct bench_fabric *fabric_out)
{
    struct gyre_machine_file file;
    fabric_out->fabric = NULL;
    if (path == NULL)
        return GYRE_SUCCESS;
    if (bench_fabric_is_machine(path)) {
        gyre_status status = bench_machine_load(path, &file);
        if (status == GYRE_SUCCESS)
            status = gyre_machine_file_fabric(&file, n_hosts, n_gpus, &fabric_out->fabric);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "--fabric %s", path);
    } else {
        GYRE_TRY(load_fabric_text(path, &fabric_out->fabric));
    }
    gyre_fabric_group(fabric_out->fabric, &fabric_out->grouping);
    return GYRE_SUCCESS;
}

void bench_fabric_close(struct bench_fabric *fabric)
{
    gyre_fabric_free(fabric->fabric);
    fabric->fabric = NULL;
}
