/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/tools/programs.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <assert.h>
#include <ctype.h>
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
    GYRE_FREED char *text = NULL;
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

/* -1 after printing a failure. */
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

bool bench_programs_from_msccl(const char *path, struct gyre_program_file *file_out)
{
    GYRE_FREED char *text = NULL;
    pid_t child;
    int exit_status = 0;
    uint32_t min_depth = 1; /* that the programs need */
    struct gyre_program_file file = {0};
    const int output = start_importer(path, &child);
    if (output < 0)
        return false;
    gyre_status status =
        gyre_file_read_open(output, "the output of python3", MAX_FILE_BYTES, &text, NULL);
    close(output);
    if (waitpid(child, &exit_status, 0) < 0 || exit_status != 0)
        return false; /* after printing why */
    if (status == GYRE_SUCCESS)
        status = gyre_program_file_parse(text, path, &file);
    for (int i = 0; i < 2 * file.n_sets && status == GYRE_SUCCESS; i++) {
        const struct gyre_verify_options options = {.in_place = i % 2 == 1};
        struct gyre_verify_report report = {0};
        status = gyre_verify(gyre_program_file_set(&file, i / 2), file.sets[i / 2].n_programs,
                             &options, &report);
        if (status != GYRE_SUCCESS)
            (void)gyre_fail(status, "%s: the programs are wrong %s: %s", path,
                            options.in_place ? "in place, which gyre's always have to be"
                                             : "out of place",
                            report.reason);
        min_depth = report.min_depth > min_depth ? report.min_depth : min_depth;
    }
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

bool bench_fabric_is_machine(const char *path)
{
    const char *end = path == NULL ? NULL : strrchr(path, '.');
    return path != NULL && ((end != NULL && strcmp(end, ".machine") == 0) ||
                            (strpbrk(path, "./") == NULL && access(path, R_OK) != 0));
}

gyre_status bench_fabric_load(const char *path, unsigned n_hosts, unsigned n_gpus,
                              struct bench_fabric *fabric_out)
{
    struct gyre_machine_file file;
    GYRE_FREED char *text = NULL;
    size_t n_bytes = 0;
    gyre_status status;
    fabric_out->fabric = NULL;
    if (path == NULL)
        return GYRE_SUCCESS;
    if (bench_fabric_is_machine(path)) {
        status = bench_machine_load(path, &file);
        if (status == GYRE_SUCCESS)
            status = gyre_machine_file_fabric(&file, n_hosts, n_gpus, &fabric_out->fabric);
    } else {
        status = gyre_file_read(path, GYRE_FABRIC_MAX_TEXT, &text, &n_bytes);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "--fabric");
        status = strlen(text) < n_bytes ? gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                                                    "it has a byte of value 0, so it is no text")
                                        : gyre_fabric_from_text(text, &fabric_out->fabric);
    }
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

static_assert(GYRE_MAX_RANKS == 16384, "the help of --ranks says so");

const char *const bench_net_words[] = {"", "ib", "socket"};

static void print_algorithm(const struct gyre_algorithm *algorithm, FILE *out)
{
    fprintf(out, "  %-15s %s:", algorithm->name, algorithm->summary);
    for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
        if (gyre_algorithm_has(algorithm, (enum gyre_collective)coll))
            fprintf(out, " %s", gyre_collectives[coll].name);
    fputc('\n', out);
}

void bench_shape_print_algorithms(FILE *out)
{
    for (int i = 0; gyre_algorithms[i] != NULL; i++)
        print_algorithm(gyre_algorithms[i], out);
    fputs("of the library, which calls run only as programs from a file:\n", out);
    for (int i = 0; gyre_library[i] != NULL; i++)
        print_algorithm(gyre_library[i], out);
}

/* False if too many. */
static bool add_host(struct gyre_grouping *grouping, long n_of_host, int *n_ranks)
{
    if (n_of_host < 1 || n_of_host > GYRE_MAX_RANKS - *n_ranks)
        return false;
    for (long i = 0; i < n_of_host; i++)
        grouping->host_of[(*n_ranks)++] = grouping->n_hosts;
    grouping->n_hosts++;
    return true;
}

/* "2x8" or "7+8". Returns ranks, 0 = neither. */
static int parse_host_sizes(const char *text, struct gyre_grouping *grouping)
{
    int n_hosts, n_of_host, n_ranks = 0, n_read = 0;
    grouping->n_hosts = 0;
    if (sscanf(text, "%dx%d%n", &n_hosts, &n_of_host, &n_read) == 2 && text[n_read] == '\0') {
        for (int host = 0; host < n_hosts; host++)
            if (!add_host(grouping, n_of_host, &n_ranks))
                return 0;
        return n_ranks;
    }
    for (const char *at = text; strchr(text, '+') != NULL; at++) {
        char *end;
        const long n = strtol(at, &end, 10);
        if (!isdigit((unsigned char)*at) || (*end != '+' && *end != '\0') ||
            !add_host(grouping, n, &n_ranks))
            return 0;
        if (*end == '\0')
            return n_ranks;
        at = end;
    }
    return 0;
}

static void print_wrong_hosts(const char *user, const char *text, int n_ranks)
{
    if (n_ranks > 0)
        fprintf(stderr,
                "%s: --hosts %s: expected %d numbers separated by commas, one a rank, or "
                "HOSTSxRANKS or RANKS+RANKS+... of as many ranks as --ranks says\n",
                user, text, n_ranks);
    else
        fprintf(stderr,
                "%s: --hosts %s: expected HOSTSxRANKS (2x8), RANKS+RANKS+... (7+8) or the host of "
                "each rank (0,0,1,1), of at most %d ranks\n",
                user, text, GYRE_MAX_RANKS);
}

/* "0,0,1,1" (renumbered by appearance), "2x8" or "7+8". @n_ranks_inout: 0 = by the text, else it
 * must match. */
static bool parse_hosts(const char *user, const char *text, int *n_ranks_inout,
                        struct gyre_grouping *grouping)
{
    static long seen[GYRE_MAX_RANKS];
    const char *at = text;
    const int n_of_sizes = parse_host_sizes(text, grouping);
    const bool is_given = *n_ranks_inout > 0;
    if (n_of_sizes > 0 && (*n_ranks_inout == 0 || *n_ranks_inout == n_of_sizes)) {
        *n_ranks_inout = n_of_sizes;
        return true;
    }
    int n_ranks = *n_ranks_inout;
    for (const char *comma = text; *n_ranks_inout == 0 && comma != NULL;
         comma = strchr(comma + 1, ','))
        n_ranks++;
    if (n_ranks > GYRE_MAX_RANKS) {
        print_wrong_hosts(user, text, 0);
        return false;
    }
    *n_ranks_inout = n_ranks;
    grouping->n_hosts = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        char *end;
        const long host = strtol(at, &end, 10);
        if (!isdigit((unsigned char)*at) || *end != (rank < n_ranks - 1 ? ',' : '\0')) {
            print_wrong_hosts(user, text, is_given ? n_ranks : 0);
            return false;
        }
        uint16_t i = 0;
        while (i < grouping->n_hosts && seen[i] != host)
            i++;
        if (i == grouping->n_hosts)
            seen[grouping->n_hosts++] = host;
        grouping->host_of[rank] = i;
        at = end + 1;
    }
    return true;
}

/* "8x8". False: it is something else. */
static bool parse_sides(const char *text, uint16_t *sides)
{
    for (int i = 0; i < GYRE_MAX_SIDES; i++) {
        char *end;
        const long side = strtol(text, &end, 10);
        if (!isdigit((unsigned char)*text) || side < 1 || side > GYRE_MAX_RANKS)
            return false;
        sides[i] = (uint16_t)side;
        if (*end == '\0')
            return true;
        if (*end != 'x')
            return false;
        text = end + 1;
    }
    return false;
}

/* It joins this process's algorithms, so that all code knows it. @name: "swing" or "swing:8x8". */
static const struct gyre_algorithm *take_from_library(const char *name)
{
    static struct gyre_algorithm taken; /* one job a process */
    static const char *taken_as;
    if (taken_as != NULL && strcmp(name, taken_as) == 0)
        return &taken;
    const size_t n = strcspn(name, ":");
    char word[16] = "";
    if (n >= sizeof(word))
        return NULL;
    memcpy(word, name, n);
    const struct gyre_algorithm *found = gyre_library_find(word);
    if (found == NULL)
        return NULL;
    taken = *found;
    taken.from = "library";
    if (name[n] == ':' && !parse_sides(&name[n + 1], taken.sides))
        return NULL;
    taken_as = name;
    return gyre_algorithms_add(&taken) == GYRE_SUCCESS ? &taken : NULL;
}

bool bench_shape_find(const struct bench_shape_options *options, bool needs_algorithm,
                      const struct gyre_algorithm **algorithm_out, struct gyre_shape *shape_out)
{
    static struct gyre_grouping grouping;
    if (gyre_plugins_load_own() != GYRE_SUCCESS) {
        fprintf(stderr, "%s: %s\n", options->user, gyre_cause());
        return false;
    }
    const struct gyre_algorithm *algorithm =
        options->algorithm == NULL ? NULL : gyre_algorithm_find(options->algorithm);
    if (algorithm == NULL && options->algorithm != NULL)
        algorithm = take_from_library(options->algorithm);
    const int coll = options->collective == NULL ? -1 : gyre_collective_find(options->collective);
    const bool no_algorithm = algorithm == NULL && needs_algorithm;
    int n_ranks = options->n_ranks;
    if (no_algorithm || coll < 0 || (n_ranks == 0 && options->hosts == NULL)) {
        const char *wrong = no_algorithm ? "--algo" : coll < 0 ? "--coll" : "--ranks";
        const char *given = no_algorithm ? options->algorithm : options->collective;
        if (coll >= 0 && !no_algorithm)
            given = NULL;
        if (given == NULL)
            fprintf(stderr, "%s: %s is missing; --help lists what there is\n", options->user,
                    wrong);
        else {
            fprintf(stderr, "%s: %s: \"%s\" is none of", options->user,
                    no_algorithm ? "--algo" : "--coll", given);
            for (int i = 0; no_algorithm && gyre_algorithms[i] != NULL; i++)
                fprintf(stderr, " %s", gyre_algorithms[i]->name);
            for (int i = 0; no_algorithm && gyre_library[i] != NULL; i++)
                fprintf(stderr, " %s", gyre_library[i]->name);
            for (int i = 0; !no_algorithm && i < GYRE_N_COLLECTIVES; i++)
                fprintf(stderr, " %s", gyre_collectives[i].name);
            fputc('\n', stderr);
        }
        return false;
    }
    if (options->hosts != NULL && !parse_hosts(options->user, options->hosts, &n_ranks, &grouping))
        return false;
    grouping.n_nics = (uint16_t)options->n_nics;
    *shape_out =
        (struct gyre_shape){.coll = (enum gyre_collective)coll,
                            .n_ranks = (uint16_t)n_ranks,
                            .root = (uint16_t)options->root,
                            .is_placed = options->is_placed,
                            .grouping = options->hosts == NULL ? options->grouping : &grouping};
    *algorithm_out = algorithm;
    return true;
}

bool bench_shape_find_hosts(const struct bench_shape_options *options, int n_ranks,
                            const struct gyre_grouping **grouping_out)
{
    static struct gyre_grouping grouping;
    *grouping_out = options->grouping;
    if (options->grouping != NULL && options->n_ranks != n_ranks) {
        fprintf(stderr, "%s: the fabric has %d GPUs, the programs have %d ranks\n", options->user,
                options->n_ranks, n_ranks);
        return false;
    }
    if (options->hosts == NULL)
        return true;
    if (!parse_hosts(options->user, options->hosts, &n_ranks, &grouping))
        return false;
    grouping.n_nics = (uint16_t)options->n_nics;
    *grouping_out = &grouping;
    return true;
}
