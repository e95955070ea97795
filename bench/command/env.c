/* SPDX-License-Identifier: Apache-2.0
 *
 * `gyre env`: every variable of the table, its value and where the value comes from. Each variable
 * is read by the library's own code, one at a time, so that one wrong value does not hide the rest.
 */
#include "bench/command/command.h"
#include "core/base/param.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define MAX_ENTRIES 4

/* Reads one variable by the library's rules: its environment is reduced to that variable. */
static gyre_status read_one(enum gyre_param_id id, struct gyre_params *params_out)
{
    static const char *const prefixes[] = {"GYRE_", "NCCL_"};
    char *entries[MAX_ENTRIES] = {NULL};
    size_t n_entries = 0;
    const char *name = gyre_param_name(id);
    for (size_t p = 0; p < 2; p++)
        for (char **entry = environ; *entry != NULL && n_entries < MAX_ENTRIES - 1; entry++)
            if (strncmp(*entry, prefixes[p], 5) == 0 &&
                strncmp(*entry + 5, name, strlen(name)) == 0 && (*entry)[5 + strlen(name)] == '=')
                entries[n_entries++] = *entry;
    return gyre_params_from(entries, params_out);
}

/* Prints one row. Returns false if the value is not legal. */
static bool print_row(enum gyre_param_id id, bool only_set)
{
    static struct gyre_params params; /* large; only this thread prints */
    if (read_one(id, &params) != GYRE_SUCCESS) {
        printf("GYRE_%-24s %-16s %s\n", gyre_param_name(id), "(not legal)", gyre_cause());
        return false;
    }
    const char *source = gyre_param_source(&params, id);
    const char *text = gyre_param_text(&params, id);
    if (only_set && source[0] == '\0')
        return true;
    char legal[160];
    gyre_param_legal(id, legal, sizeof(legal));
    printf("GYRE_%-24s %-16s %-24s %s (%s)\n", gyre_param_name(id), text[0] == '\0' ? "-" : text,
           source[0] == '\0' ? "default" : source, gyre_param_help(id), legal);
    return true;
}

/* Prints the variables of the environment that the table does not have. Returns their number with
 * the prefix GYRE_, which are errors. */
static int print_unknown(void)
{
    int n_errors = 0;
    for (char **entry = environ; *entry != NULL; entry++) {
        struct gyre_param_guess guess;
        if (!gyre_param_guess(*entry, &guess))
            continue;
        n_errors += guess.is_error;
        if (guess.is_error || guess.is_close)
            printf("%.*s: unknown; did you mean %s?\n", (int)strcspn(*entry, "="), *entry,
                   guess.nearest);
        else
            printf("%.*s: gyre has no such variable and ignores it\n", (int)strcspn(*entry, "="),
                   *entry);
    }
    return n_errors;
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
              "  --set  only the variables that the environment sets\n"
              "The exit status is 1 if a variable is unknown or its value is not legal.\n",
              file);
        return is_help ? 0 : 2;
    }
    printf("%-29s %-16s %-24s %s\n", "# variable", "value", "from", "meaning");
    for (int id = 0; id < GYRE_N_PARAMS; id++)
        is_legal = print_row((enum gyre_param_id)id, only_set) && is_legal;
    return print_unknown() == 0 && is_legal ? 0 : 1;
}
