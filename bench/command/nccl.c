/* SPDX-License-Identifier: Apache-2.0
 *
 * `gyre nccl-path` and `gyre run` find libnccl.so.2 beside this program, so that an installed tree
 * may be moved.
 *
 * PyTorch's libtorch_cuda.so has an RPATH to its own wheel's libnccl.so.2, which precedes
 * LD_LIBRARY_PATH; only LD_PRELOAD comes first. LD_LIBRARY_PATH is for programs that clear
 * LD_PRELOAD for their children.
 */
#include "bench/command/command.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY     "libnccl.so.2"

#define NO_LIBRARY  1
#define WRONG_USAGE 2
#define CANNOT_RUN  126 /* a shell's exit statuses */
#define NOT_FOUND   127

/* Beside this program in a build tree, then as installed. */
static const char *const places[] = {"../nccl", GYRE_NCCL_FROM_TOOLS};

static bool find_folder(char folder_out[PATH_MAX])
{
    char own[PATH_MAX];
    if (!bench_command_folder(own, sizeof(own)))
        return false;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char path[2 * PATH_MAX];
        char library[2 * PATH_MAX + sizeof(LIBRARY)];
        snprintf(path, sizeof(path), "%s/%s", own, places[i]);
        snprintf(library, sizeof(library), "%s/" LIBRARY, path);
        if (access(library, R_OK) == 0 && realpath(path, folder_out) != NULL)
            return true;
    }
    fprintf(stderr,
            "gyre: there is no " LIBRARY " in %s/%s: build the target nccl, or install the package "
            "gyre-nccl\n",
            own, GYRE_NCCL_FROM_TOOLS);
    return false;
}

static int print_usage(const char *name, const char *usage, bool is_help)
{
    FILE *file = is_help ? stdout : stderr;
    bench_command_print_examples(name, file);
    fputs(usage, file);
    return is_help ? 0 : WRONG_USAGE;
}

int bench_command_nccl_path(int argc, char **argv)
{
    char folder[PATH_MAX];
    const bool is_help = bench_command_asks_help(argc, argv);
    if (argc > 1 && !is_help)
        bench_command_refuse_argument("nccl-path", argv[1]);
    if (argc > 1)
        return print_usage("nccl-path",
                           "usage: gyre nccl-path\n"
                           "Prints the folder of gyre's " LIBRARY ", for LD_LIBRARY_PATH.\n",
                           is_help);
    if (!find_folder(folder))
        return NO_LIBRARY;
    puts(folder);
    return 0;
}

static bool put_first(const char *variable, const char *first)
{
    const char *old = getenv(variable);
    if (old == NULL || old[0] == '\0')
        return setenv(variable, first, 1) == 0;
    const size_t n_bytes = strlen(first) + 1 + strlen(old) + 1;
    char *list = malloc(n_bytes);
    if (list == NULL)
        return false;
    snprintf(list, n_bytes, "%s:%s", first, old);
    const bool is_set = setenv(variable, list, 1) == 0;
    free(list);
    return is_set;
}

int bench_command_run(int argc, char **argv)
{
    const bool has_dashes = argc > 1 && strcmp(argv[1], "--") == 0;
    const int at = has_dashes ? 2 : 1;
    if (at >= argc || (!has_dashes && argv[at][0] == '-'))
        return print_usage("run",
                           "usage: gyre run [--] PROGRAM [arguments of the program]\n"
                           "Runs the program with gyre's " LIBRARY
                           " in place of NCCL's. It puts the "
                           "library first\n"
                           "in LD_PRELOAD, and its folder first in LD_LIBRARY_PATH.\n",
                           at < argc && bench_command_asks_help(2, argv));
    char folder[PATH_MAX];
    char library[PATH_MAX + sizeof(LIBRARY)];
    if (!find_folder(folder))
        return NO_LIBRARY;
    /* The dynamic linker splits LD_PRELOAD at both and cannot quote them. */
    if (strpbrk(folder, " :") != NULL) {
        fprintf(stderr, "gyre: LD_PRELOAD cannot name \"%s\": a folder with a space or a colon\n",
                folder);
        return NO_LIBRARY;
    }
    snprintf(library, sizeof(library), "%s/" LIBRARY, folder);
    if (!put_first("LD_PRELOAD", library) || !put_first("LD_LIBRARY_PATH", folder)) {
        fprintf(stderr, "gyre: the environment cannot be changed: %s\n", strerror(errno));
        return NO_LIBRARY;
    }
    execvp(argv[at], &argv[at]);
    const int problem = errno;
    fprintf(stderr, "gyre run: cannot start %s: %s\n", argv[at], strerror(problem));
    return problem == ENOENT ? NOT_FOUND : CANNOT_RUN;
}
