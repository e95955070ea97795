/* SPDX-License-Identifier: Apache-2.0
 *
 * `gyre env` reads each variable by itself, so that one wrong value does not hide the rest.
 */
#include "bench/command/command.h"
#include "core/foundation/base/param.h"

#include <stdbool.h>
#include <string.h>

static bool print_row(const struct gyre_param_sources *sources, enum gyre_param_id id,
                      bool only_set)
{
    static struct gyre_params params;
    params.notes[0] = '\0';
    if (gyre_param_take(sources, id, &params) != GYRE_SUCCESS) {
        printf("GYRE_%-24s %-16s %s\n", gyre_param_name(id), "(not legal)", gyre_cause());
        return false;
    }
    const char *source = gyre_param_source(&params, id);
    const char *text = gyre_param_text(&params, id);
    fputs(params.notes, stdout);
    if (only_set && source[0] == '\0')
        return true;
    char legal[160];
    gyre_param_legal(id, legal, sizeof(legal));
    printf("GYRE_%-24s %-16s %-24s %s (%s)\n", gyre_param_name(id), text[0] == '\0' ? "-" : text,
           source[0] == '\0' ? "default" : source, gyre_param_help(id), legal);
    return true;
}

int bench_command_env(int argc, char **argv)
{
    bool only_set = false;
    bool is_legal = true;
    if (argc == 2 && strcmp(argv[1], "--set") == 0) {
        only_set = true;
    } else if (argc > 1) {
        const bool is_help = bench_command_asks_help(argc, argv);
        FILE *file = is_help ? stdout : stderr;
        if (!is_help)
            bench_command_refuse_argument("env", argv[argc - 1]);
        bench_command_print_examples("env", file);
        fputs("usage: gyre env [--set]\n"
              "  --set  only the variables that are set\n"
              "The exit status is 1 if a variable is unknown or its value is not legal.\n",
              file);
        return is_help ? 0 : 2;
    }
    printf("%-29s %-16s %-24s %s\n", "# variable", "value", "from", "meaning");
    struct gyre_param_sources sources;
    gyre_param_sources_open(&sources);
    if (sources.problem[0] != '\0')
        printf("# %s\n", sources.problem);
    for (int i = 1; i < sources.n; i++)
        printf("# also from %s, where the environment has no such variable\n",
               sources.list[i].file);
    for (int id = 0; id < GYRE_N_PARAMS; id++)
        is_legal = print_row(&sources, (enum gyre_param_id)id, only_set) && is_legal;
    for (int i = 0; i < sources.n; i++) {
        const struct gyre_param_source *source = &sources.list[i];
        int n_errors = 0;
        for (char *const *entry = source->entries; *entry != NULL; entry++) {
            struct gyre_param_guess guess;
            if (!gyre_param_guess(*entry, &guess))
                continue;
            n_errors += guess.is_error;
            if (guess.is_error || guess.is_close)
                printf("%.*s: unknown; did you mean %s?\n", (int)strcspn(*entry, "="), *entry,
                       guess.nearest);
            else
                printf("%.*s: gyre has no such variable and ignores it\n",
                       (int)strcspn(*entry, "="), *entry);
        }
        is_legal = n_errors == 0 && is_legal;
    }
    gyre_param_sources_close(&sources);
    return is_legal ? 0 : 1;
}
