/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the subcommand that the user named, and starts it.
 */
#include "bench/command/command.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANNOT_START 127 /* the exit status that shells use for a command that was not found */
#define WRONG_USAGE  2

static const char intro[] =
    "examples:\n"
    "  gyre doctor                            check this machine, or a job: mpirun gyre doctor\n"
    "  gyre bench allreduce -g 4 -b 8 -e 16M -f 8\n"
    "\n"
    "usage: gyre COMMAND [options of the command]\n"
    "       gyre COMMAND --help\n"
    "       gyre --version\n";

static void print_help(FILE *file)
{
    fputs(intro, file);
    fputs("\ncommands:\n", file);
    for (const struct bench_command *row = bench_commands; row->name != NULL; row++)
        fprintf(file, "  %-10s %s\n", row->name, row->help);
}

static const struct bench_command *find(const char *name)
{
    for (const struct bench_command *row = bench_commands; row->name != NULL; row++)
        if (strcmp(row->name, name) == 0)
            return row;
    return NULL;
}

/* The nearest name of a list, for "did you mean". */
static const char *nearer(const char *wanted, const char *best, const char *name)
{
    return best == NULL || gyre_edit_distance(wanted, name) < gyre_edit_distance(wanted, best)
               ? name
               : best;
}

/* Is the name near enough to be what was meant? */
static bool is_near(const char *wanted, const char *name)
{
    return gyre_edit_distance(wanted, name) <= 2;
}

static const char *nearest_command(const char *wanted)
{
    const char *best = NULL;
    for (const struct bench_command *row = bench_commands; row->name != NULL; row++)
        best = nearer(wanted, best, row->name);
    return best;
}

void bench_command_print_examples(const char *name, FILE *file)
{
    const struct bench_command *row = find(name);
    fprintf(file, "examples:\n  %s\n  %s\n\n", row->examples[0], row->examples[1]);
}

void bench_command_refuse_argument(const char *name, const char *argument)
{
    fprintf(stderr, "gyre %s: unexpected argument \"%s\"\n\n", name, argument);
}

int bench_command_asks_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return 1;
    return 0;
}

int bench_command_folder(char *folder_out, size_t folder_bytes)
{
    const ssize_t n = readlink("/proc/self/exe", folder_out, folder_bytes - 1);
    if (n < 0) {
        fprintf(stderr,
                "gyre: /proc/self/exe cannot be read (errno %d), so its folder is unknown\n",
                errno);
        return 0;
    }
    folder_out[n] = '\0';
    *strrchr(folder_out, '/') = '\0';
    return 1;
}

int bench_command_start(const char *prefix, const char *program, char **argv)
{
    char called_as[64]; /* the longest is "gyre bench reducescatter" */
    char folder[PATH_MAX];
    char path[PATH_MAX];
    if (!bench_command_folder(folder, sizeof(folder)))
        return CANNOT_START;
    if (snprintf(path, sizeof(path), "%s/%s", folder, program) >= (int)sizeof(path)) {
        fprintf(stderr, "gyre: the path of %s is too long\n", program);
        return CANNOT_START;
    }
    snprintf(called_as, sizeof(called_as), "%s %s", prefix, program);
    argv[0] = called_as;
    fflush(NULL);
    execv(path, argv);
    fprintf(stderr, "gyre: cannot start %s: %s (errno %d)\n", path, strerror(errno), errno);
    return CANNOT_START;
}

int bench_command_bench(int argc, char **argv)
{
    const char *best = NULL;
    if (argc < 2 || argv[1][0] == '-') {
        const bool is_help = bench_command_asks_help(argc, argv);
        FILE *file = is_help ? stdout : stderr;
        bench_command_print_examples("bench", file);
        fputs("usage: gyre bench NAME [options]\n       gyre bench NAME --help\n\nnames:", file);
        for (const char *const *name = bench_command_benches; *name != NULL; name++)
            fprintf(file, " %s", *name);
        fputs("\n", file);
        return is_help ? 0 : WRONG_USAGE;
    }
    for (const char *const *name = bench_command_benches; *name != NULL; name++) {
        best = nearer(argv[1], best, *name);
        if (strcmp(*name, argv[1]) != 0)
            continue;
        if (bench_command_asks_help(argc - 1, argv + 1))
            printf("examples:\n  gyre bench %s -g 4 -b 8 -e 16M -f 8\n"
                   "  mpirun -np 4 gyre bench %s -b 8 -e 64M -f 8\n\n",
                   *name, *name);
        return bench_command_start("gyre bench", *name, argv + 1);
    }
    if (is_near(argv[1], best))
        fprintf(stderr, "gyre bench: there is no bench %s: did you mean %s?\n", argv[1], best);
    else
        fprintf(stderr, "gyre bench: there is no bench %s (gyre bench --help lists all)\n",
                argv[1]);
    return WRONG_USAGE;
}

static bool is_bench(const char *wanted)
{
    for (const char *const *name = bench_command_benches; *name != NULL; name++)
        if (strcmp(*name, wanted) == 0)
            return true;
    return false;
}

static void print_unknown(const char *wanted)
{
    const char *best = nearest_command(wanted);
    fprintf(stderr, "gyre: there is no command %s", wanted);
    if (is_bench(wanted))
        fprintf(stderr, ": did you mean gyre bench %s?", wanted);
    else if (is_near(wanted, best))
        fprintf(stderr, ": did you mean %s?", best);
    fputs(" (gyre --help lists all)\n", stderr);
}

int bench_command_main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(argc < 2 ? stderr : stdout);
        return argc < 2 ? WRONG_USAGE : 0;
    }
    const char *wanted = strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    const struct bench_command *row = find(wanted);
    if (row == NULL) {
        print_unknown(wanted);
        return WRONG_USAGE;
    }
    if (row->run != NULL)
        return row->run(argc - 1, argv + 1);
    if (row->python != NULL)
        return bench_command_start_python(row->python, argc - 1, argv + 1);
    if (bench_command_asks_help(argc - 1, argv + 1))
        bench_command_print_examples(row->name, stdout);
    return bench_command_start("gyre", row->program, argv + 1);
}
