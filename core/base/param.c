/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the environment and checks it against the table of variables. A value that does not parse
 * or is out of range (param_value.c) and a misspelt GYRE_* name are errors that name the legal
 * ones.
 */
#include "core/base/param.h"

#include "core/base/log.h"
#include "core/base/param_value.h"
#include "core/base/util.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX      "GYRE_"
#define NCCL_PREFIX "NCCL_"

static const struct gyre_param_row rows[] = {
#define X(id, type, flags, fallback, low, high, unit, words, help) \
    {#id, type, flags, fallback, low, high, unit, words, help},
#include "core/base/param_table.h"
#undef X
};

const char *gyre_param_name(enum gyre_param_id id)
{
    return rows[id].name;
}

unsigned gyre_param_flags(enum gyre_param_id id)
{
    return rows[id].flags;
}

const char *gyre_param_help(enum gyre_param_id id)
{
    return rows[id].help;
}

/* ---- the environment -------------------------------------------------------------------- */

/* The value of prefix+name in the list; NULL if unset or empty. */
static const char *find_variable(char *const *environment, const char *prefix, const char *name)
{
    const size_t n_prefix = strlen(prefix);
    const size_t n_name = strlen(name);
    for (; *environment != NULL; environment++) {
        const char *entry = *environment;
        if (strncmp(entry, prefix, n_prefix) == 0 && strncmp(entry + n_prefix, name, n_name) == 0 &&
            entry[n_prefix + n_name] == '=')
            return entry[n_prefix + n_name + 1] == '\0' ? NULL : entry + n_prefix + n_name + 1;
    }
    return NULL;
}

static gyre_status load_row(const struct gyre_param_row *row, char *const *environment,
                            struct gyre_param_value *value_out)
{
    char source[sizeof(value_out->source)];
    const char *text = find_variable(environment, PREFIX, row->name);
    if (text != NULL) {
        snprintf(source, sizeof(source), PREFIX "%s", row->name);
        return gyre_param_set_value(row, source, text, value_out);
    }
    if ((row->flags & GYRE_PARAM_NCCL) != 0)
        text = find_variable(environment, NCCL_PREFIX, row->name);
    /* -1 is how NCCL's scripts write "not set" for a number that cannot be negative. */
    const bool nccl_unset =
        text != NULL && row->type == GYRE_PARAM_INT && row->low >= 0 && strcmp(text, "-1") == 0;
    if (text == NULL || nccl_unset)
        return gyre_param_set_value(row, "", row->fallback, value_out);
    snprintf(source, sizeof(source), NCCL_PREFIX "%s", row->name);
    return gyre_param_set_value(row, source, text, value_out);
}

/* The name of an entry "NAME=value" behind its prefix, or false if it has another prefix. */
static bool name_behind(const char *entry, const char *prefix, char *name_out, size_t name_bytes)
{
    const size_t n_prefix = strlen(prefix);
    if (strncmp(entry, prefix, n_prefix) != 0)
        return false;
    snprintf(name_out, name_bytes, "%.*s", (int)strcspn(entry + n_prefix, "="), entry + n_prefix);
    return true;
}

/* The row with the nearest name among those that have all of `flags`. */
static const struct gyre_param_row *nearest_row(const char *name, unsigned flags,
                                                unsigned *distance_out)
{
    const struct gyre_param_row *nearest = &rows[0];
    *distance_out = UINT32_MAX;
    for (size_t i = 0; i < GYRE_N_PARAMS; i++) {
        const unsigned distance = gyre_edit_distance(name, rows[i].name);
        if ((rows[i].flags & flags) == flags && distance < *distance_out) {
            *distance_out = distance;
            nearest = &rows[i];
        }
    }
    return nearest;
}

gyre_status gyre_params_from(char *const *environment, struct gyre_params *params_out)
{
    for (char *const *entry = environment; *entry != NULL; entry++) {
        char name[64];
        unsigned distance = 0;
        if (!name_behind(*entry, PREFIX, name, sizeof(name)))
            continue;
        const struct gyre_param_row *nearest = nearest_row(name, 0, &distance);
        if (distance != 0)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "unknown variable " PREFIX "%s: did you mean " PREFIX "%s?", name,
                             nearest->name);
    }
    for (size_t i = 0; i < GYRE_N_PARAMS; i++)
        GYRE_TRY(load_row(&rows[i], environment, &params_out->values[i]));
    return GYRE_SUCCESS;
}

bool gyre_param_guess(const char *entry, struct gyre_param_guess *guess_out)
{
    char name[64];
    unsigned distance = 0;
    const bool is_ours = name_behind(entry, PREFIX, name, sizeof(name));
    if (!is_ours && !name_behind(entry, NCCL_PREFIX, name, sizeof(name)))
        return false;
    const struct gyre_param_row *nearest =
        nearest_row(name, is_ours ? 0 : GYRE_PARAM_NCCL, &distance);
    guess_out->is_error = is_ours;
    guess_out->is_close = distance <= 2;
    snprintf(guess_out->nearest, sizeof(guess_out->nearest), "%s%s", is_ours ? PREFIX : NCCL_PREFIX,
             nearest->name);
    return distance != 0;
}

/* Logs the NCCL_* variables of the environment that have no effect. Called once per process, after
 * the log has its level. */
static void report_ignored(char *const *environment)
{
    for (; *environment != NULL; environment++) {
        struct gyre_param_guess guess;
        const int n_name = (int)strcspn(*environment, "=");
        if (!gyre_param_guess(*environment, &guess) || guess.is_error)
            continue;
        if (guess.is_close)
            GYRE_INFO(ENV, "unknown variable %.*s: did you mean %s?", n_name, *environment,
                      guess.nearest);
        else
            GYRE_INFO(ENV, "%.*s has no counterpart here and is ignored", n_name, *environment);
    }
}

gyre_status gyre_params_load(struct gyre_params *params_out)
{
    /* The log belongs to the process, so the first communicator's environment sets it up. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool log_is_ready;
    GYRE_TRY(gyre_params_from(environ, params_out));
    gyre_status status = GYRE_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!log_is_ready) {
        status = gyre_log_configure(gyre_param_text(params_out, GYRE_PARAM_DEBUG),
                                    gyre_param_text(params_out, GYRE_PARAM_DEBUG_SUBSYS),
                                    gyre_param_text(params_out, GYRE_PARAM_DEBUG_FILE));
        log_is_ready = status == GYRE_SUCCESS;
        if (log_is_ready)
            report_ignored(environ);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

gyre_status gyre_param_override(struct gyre_params *params, enum gyre_param_id id,
                                const char *source, const char *text)
{
    struct gyre_param_value value;
    GYRE_TRY(gyre_param_set_value(&rows[id], source, text, &value));
    params->values[id] = value;
    return GYRE_SUCCESS;
}

/* ---- help ------------------------------------------------------------------------------- */

/* `text` in lines of at most 92 columns, indented by 4. */
static void print_wrapped(FILE *file, const char *text)
{
    const size_t width = 92;
    while (*text != '\0') {
        size_t n_line = strlen(text);
        if (n_line > width) {
            n_line = width;
            while (n_line > width / 2 && text[n_line - 1] != ' ' && text[n_line - 1] != ',')
                n_line--;
        }
        fprintf(file, "    %.*s\n", (int)n_line, text);
        text += n_line;
    }
}

void gyre_param_legal(enum gyre_param_id id, char *text_out, size_t text_bytes)
{
    gyre_param_describe_legal(&rows[id], text_out, text_bytes);
}

void gyre_params_print_help(FILE *file)
{
    fprintf(file, "Environment variables. [NCCL]: NCCL_<name> is read when GYRE_<name> is unset.\n"
                  "[plan]: must be the same on all ranks.\n\n");
    for (size_t i = 0; i < GYRE_N_PARAMS; i++) {
        const struct gyre_param_row *row = &rows[i];
        char legal[160];
        gyre_param_describe_legal(row, legal, sizeof(legal));
        fprintf(file, PREFIX "%-24s %s%s%s%s%s\n", row->name, legal,
                row->fallback[0] == '\0' ? "" : "; default ", row->fallback,
                (row->flags & GYRE_PARAM_NCCL) != 0 ? " [NCCL]" : "",
                (row->flags & GYRE_PARAM_PLAN) != 0 ? " [plan]" : "");
        print_wrapped(file, row->help);
    }
}

const char *gyre_param_master_address(void)
{
    return getenv("MASTER_ADDR");
}
