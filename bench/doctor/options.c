/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of `gyre doctor`.
 */
#include "bench/doctor/options.h"

#include "bench/doctor/doctor.h"

#include <stdio.h>
#include <string.h>

const char bench_doctor_usage[] =
    "usage: gyre doctor [options]\n"
    "  --json FILE      write the findings as JSON (bench/doctor/output/doctor.schema.json)\n"
    "  --markdown FILE  write them as Markdown, to paste into an issue\n"
    "  --html FILE      write them as one HTML file that loads nothing\n"
    "  --only PREFIX    run only the checks whose id begins so: rdma, host.memlock\n"
    "  --quiet          print problems alone\n"
    "  --all            print skipped checks too, each with its reason\n"
    "  --root DIR       read proc, sys, etc and dev below DIR instead of this machine's\n"
    "  --list           print the id and the title of every check\n"
    "  -h, --help       print this text\n"
    "Started by mpirun or with torchrun's variables, it also compares the ranks' hosts and "
    "measures\n"
    "the network between them.\n"
    "Exit status: 0 all is well, 1 a warning, 2 a failure, 3 something could not be told or a\n"
    "file could not be written, 4 wrong usage: nothing was checked.\n";

static bool is_known_prefix(const char *prefix)
{
    for (int i = 0; i < BENCH_N_CHECKS; i++)
        if (strncmp(bench_checks[i].id, prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

/* The field for the value of an option; NULL if there is no such option. */
static const char **value_of(struct bench_doctor_options *options, const char *name)
{
    if (strcmp(name, "--json") == 0)
        return &options->json_path;
    if (strcmp(name, "--markdown") == 0)
        return &options->markdown_path;
    if (strcmp(name, "--html") == 0)
        return &options->html_path;
    if (strcmp(name, "--only") == 0)
        return &options->only;
    return strcmp(name, "--root") == 0 ? &options->root : NULL;
}

static bool *flag_of(struct bench_doctor_options *options, const char *name)
{
    if (strcmp(name, "--list") == 0)
        return &options->is_list;
    if (strcmp(name, "--quiet") == 0)
        return &options->is_quiet;
    if (strcmp(name, "--all") == 0)
        return &options->is_all;
    return strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ? &options->is_help : NULL;
}

bool bench_doctor_parse(int argc, char **argv, struct bench_doctor_options *options_out)
{
    struct bench_doctor_options options = {.root = "", .only = ""};
    for (int i = 1; i < argc; i++) {
        const char **value = value_of(&options, argv[i]);
        bool *flag = flag_of(&options, argv[i]);
        if (flag != NULL) {
            *flag = true;
        } else if (value == NULL) {
            fprintf(stderr, "gyre doctor: there is no option %s (gyre doctor --help)\n", argv[i]);
            return false;
        } else if (i + 1 == argc) {
            fprintf(stderr, "gyre doctor: %s needs a value\n", argv[i]);
            return false;
        } else {
            *value = argv[++i];
        }
    }
    if (!is_known_prefix(options.only)) {
        fprintf(stderr, "gyre doctor: no check begins with %s (gyre doctor --list)\n",
                options.only);
        return false;
    }
    if (options.root[0] != '\0' && !bench_exists(options.root, "/")) {
        fprintf(stderr, "gyre doctor: --root %s: there is no such folder\n", options.root);
        return false;
    }
    *options_out = options;
    return true;
}
