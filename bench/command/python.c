/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts the commands that are written in Python (bench/python), because their charts and templates
 * need Python's packages. Their help is printed here, so that it can be read, and man pages can be
 * made, on machines without Python.
 */
#include "bench/command/command.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANNOT_START 127

int bench_command_start_python(const struct bench_python_command *command, int argc, char **argv)
{
    char folder[PATH_MAX];
    char script[PATH_MAX + 64];
    if (bench_command_asks_help(argc, argv)) {
        bench_command_print_examples(command->name, stdout);
        fputs(command->usage, stdout);
        return 0;
    }
    if (!bench_command_folder(folder, sizeof(folder)))
        return CANNOT_START;
    snprintf(script, sizeof(script), "%s/python/%s.py", folder, command->name);
    if (access(script, R_OK) != 0) {
        fprintf(stderr, "gyre %s: %s cannot be read: %s\n", command->name, script, strerror(errno));
        return CANNOT_START;
    }
    /* python3 -B SCRIPT FOLDER options... */
    char **words = calloc((size_t)argc + 4, sizeof(*words));
    if (words == NULL) {
        fprintf(stderr, "gyre %s: no memory\n", command->name);
        return CANNOT_START;
    }
    static char python[] = "python3", no_cache[] = "-B";
    words[0] = python;
    words[1] = no_cache; /* the installed folder must stay as it was installed */
    words[2] = script;
    words[3] = folder;
    memcpy(&words[4], &argv[1], (size_t)argc * sizeof(*argv)); /* with the NULL at the end */
    fflush(NULL);
    execvp(python, words);
    fprintf(stderr,
            "gyre %s: cannot start python3: %s. Only gyre report and gyre plot need it: apt-get "
            "install python3 %s\n",
            command->name, strerror(errno), command->debian_packages);
    free(words);
    return CANNOT_START;
}
