/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and checks the variables of core/base/param_table.h. The only place that reads the
 * environment.
 */
#include "core/base/param.h"

#include "core/base/log.h"
#include "core/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern char **environ;

struct row {
    const char *name;
    enum gyre_param_type type;
    unsigned flags;
    const char *fallback;
    int64_t low;
    int64_t high;
    const char *unit;
    const char *words;
    const char *help;
};

static const struct row rows[GYRE_N_PARAMS] = {
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

/* ---- parsing ------------------------------------------------------------------------------ */

/* Decimal only: a leading zero is no octal number. */
static bool parse_number(const char *text, bool takes_units, int64_t *number_out)
{
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || errno != 0)
        return false;
    int shift = 0;
    if (takes_units && *end != '\0') {
        static const char units[] = "KMG";
        const char *unit = strchr(units, *end >= 'a' ? *end - 'a' + 'A' : *end);
        if (unit == NULL || *unit == '\0')
            return false;
        shift = 10 * (int)(unit - units + 1);
        end++;
        if (*end == 'B' || *end == 'b')
            end++;
    }
    if (*end != '\0' || value > INT64_MAX >> shift || value < -(INT64_MAX >> shift))
        return false;
    *number_out = value * ((int64_t)1 << shift);
    return true;
}

static bool parse_bool(const char *text, int64_t *number_out)
{
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(words); i++) {
        if (strcasecmp(words[i], text) == 0) {
            *number_out = (int64_t)(i % 2);
            return true;
        }
    }
    return false;
}

/* Index of a word in a list parted by spaces. */
static bool parse_choice(const char *text, const char *words, int64_t *number_out)
{
    const size_t length = strlen(text);
    int64_t index = 0;
    for (const char *word = words; *word != '\0'; index++) {
        const size_t n = strcspn(word, " ");
        if (n == length && strncasecmp(word, text, n) == 0) {
            *number_out = index;
            return true;
        }
        word += n + (word[n] == ' ');
    }
    return false;
}

static gyre_status refuse(const struct row *row, const char *source, const char *text)
{
    if (row->type == GYRE_PARAM_CHOICE)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: \"%s\" is none of: %s", source, text,
                         row->words);
    if (row->type == GYRE_PARAM_BOOL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: \"%s\" is neither 0 nor 1", source,
                         text);
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                     "%s: \"%s\" is not a number from %" PRId64 " to %" PRId64 "%s%s%s", source,
                     text, row->low, row->high, row->unit[0] != '\0' ? " " : "", row->unit,
                     row->type == GYRE_PARAM_BYTES ? " (K, M, G allowed)" : "");
}

/* @source: the variable's whole name; "" for the default. */
static gyre_status parse_value(const struct row *row, const char *source, const char *text,
                               struct gyre_param_value *value_out)
{
    struct gyre_param_value value = {.is_set = source[0] != '\0', .number = INT64_MIN};
    if (strlen(text) >= sizeof(value.text))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: longer than %zu characters", source,
                         sizeof(value.text) - 1);
    snprintf(value.text, sizeof(value.text), "%s", text);
    snprintf(value.source, sizeof(value.source), "%s", source);
    bool is_good = true;
    if (text[0] == '\0' && !value.is_set) {
        *value_out = value; /* unset and without default */
        return GYRE_SUCCESS;
    }
    switch (row->type) {
    case GYRE_PARAM_INT:
    case GYRE_PARAM_BYTES:
        is_good = parse_number(text, row->type == GYRE_PARAM_BYTES, &value.number) &&
                  value.number >= row->low && value.number <= row->high;
        break;
    case GYRE_PARAM_BOOL:
        is_good = parse_bool(text, &value.number);
        break;
    case GYRE_PARAM_CHOICE:
        is_good = parse_choice(text, row->words, &value.number);
        break;
    case GYRE_PARAM_STRING:
        break;
    }
    if (!is_good)
        return refuse(row, source, text);
    *value_out = value;
    return GYRE_SUCCESS;
}

/* ---- the environment ---------------------------------------------------------------------- */

static const char *find_variable(char *const *environment, const char *prefix, const char *name)
{
    const size_t n_prefix = strlen(prefix);
    const size_t n_name = strlen(name);
    for (char *const *at = environment; at != NULL && *at != NULL; at++)
        if (strncmp(*at, prefix, n_prefix) == 0 && strncmp(*at + n_prefix, name, n_name) == 0 &&
            (*at)[n_prefix + n_name] == '=')
            return *at + n_prefix + n_name + 1;
    return NULL;
}

/* -1, or the row of this name; *nearest_out: the most similar one. */
static int find_row(const char *name, int *nearest_out)
{
    unsigned best = UINT32_MAX;
    *nearest_out = 0;
    for (int i = 0; i < GYRE_N_PARAMS; i++) {
        const unsigned distance = gyre_edit_distance(name, rows[i].name);
        if (distance == 0)
            return i;
        if (distance < best) {
            best = distance;
            *nearest_out = i;
        }
    }
    return -1;
}

static gyre_status check_names(char *const *environment, bool logs)
{
    for (char *const *at = environment; at != NULL && *at != NULL; at++) {
        const bool is_ours = strncmp(*at, "GYRE_", 5) == 0;
        if (!is_ours && strncmp(*at, "NCCL_", 5) != 0)
            continue;
        char name[64];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*at + 5, "="), *at + 5);
        int nearest;
        const int found = find_row(name, &nearest);
        if (found >= 0 && (is_ours || (rows[found].flags & GYRE_PARAM_NCCL) != 0))
            continue;
        if (is_ours)
            return gyre_fail(
                GYRE_ERROR_INVALID_ARGUMENT,
                "unknown variable GYRE_%s: did you mean GYRE_%s? (build/bench/allreduce "
                "--help-vars lists all)",
                name, rows[nearest].name);
        if (logs)
            GYRE_INFO(ENV, "NCCL_%s has no meaning here", name);
    }
    return GYRE_SUCCESS;
}

static gyre_status load(char *const *environment, struct gyre_params *params_out)
{
    for (int i = 0; i < GYRE_N_PARAMS; i++) {
        const struct row *row = &rows[i];
        const char *prefix = "GYRE_";
        const char *text = find_variable(environment, prefix, row->name);
        if (text == NULL && (row->flags & GYRE_PARAM_NCCL) != 0) {
            prefix = "NCCL_";
            text = find_variable(environment, prefix, row->name);
        }
        char source[40] = "";
        if (text != NULL)
            snprintf(source, sizeof(source), "%s%s", prefix, row->name);
        GYRE_TRY(
            parse_value(row, source, text != NULL ? text : row->fallback, &params_out->values[i]));
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_params_from(char *const *environment, struct gyre_params *params_out)
{
    GYRE_TRY(check_names(environment, false));
    return load(environment, params_out);
}

/* Once per process: the log's settings, and one line for each variable that was taken. */
static pthread_once_t log_once = PTHREAD_ONCE_INIT;
static _Thread_local const struct gyre_params *log_params;
static gyre_status log_status;
static char log_cause[GYRE_CAUSE_MAX_BYTES];

static void configure_log(void)
{
    const struct gyre_params *params = log_params;
    log_status = gyre_log_configure(gyre_param_text(params, GYRE_PARAM_DEBUG),
                                    gyre_param_text(params, GYRE_PARAM_DEBUG_SUBSYS),
                                    gyre_param_text(params, GYRE_PARAM_DEBUG_FILE));
    if (log_status != GYRE_SUCCESS)
        snprintf(log_cause, sizeof(log_cause), "%s", gyre_cause());
    check_names(environ, true);
    for (int i = 0; i < GYRE_N_PARAMS; i++) {
        const struct gyre_param_value *value = &params->values[i];
        if (!value->is_set)
            continue;
        GYRE_INFO(ENV, "%s=%s", value->source, value->text);
        if ((rows[i].flags & GYRE_PARAM_IDLE) != 0)
            GYRE_WARN("%s is accepted but does nothing yet", value->source);
    }
}

gyre_status gyre_params_load(struct gyre_params *params_out)
{
    GYRE_TRY(gyre_params_from(environ, params_out));
    log_params = params_out;
    pthread_once(&log_once, configure_log);
    if (log_status != GYRE_SUCCESS)
        return gyre_fail(log_status, "%s", log_cause);
    return GYRE_SUCCESS;
}

void gyre_params_print_help(FILE *file)
{
    fprintf(file, "Variables (GYRE_X; where marked N, NCCL_X is read when GYRE_X is unset; P: all "
                  "ranks must agree)\n\n");
    for (int i = 0; i < GYRE_N_PARAMS; i++) {
        const struct row *row = &rows[i];
        fprintf(file, "GYRE_%-24s %c%c  default %s%s%s", row->name,
                (row->flags & GYRE_PARAM_NCCL) != 0 ? 'N' : ' ',
                (row->flags & GYRE_PARAM_PLAN) != 0 ? 'P' : ' ',
                row->fallback[0] != '\0' ? row->fallback : "unset", row->unit[0] != '\0' ? " " : "",
                row->unit);
        if (row->type == GYRE_PARAM_INT || row->type == GYRE_PARAM_BYTES)
            fprintf(file, ", %" PRId64 "..%" PRId64, row->low, row->high);
        if (row->type == GYRE_PARAM_BOOL)
            fprintf(file, ", 0 or 1");
        if (row->type == GYRE_PARAM_CHOICE)
            fprintf(file, ", one of: %s", row->words);
        fprintf(file, "\n        %s%s\n", row->help,
                (row->flags & GYRE_PARAM_IDLE) != 0 ? " (accepted, does nothing yet)" : "");
    }
}
