/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the environment and checks it against the table of variables. A value that does not parse,
 * a number out of range and a misspelt GYRE_* name are errors that name the legal values.
 */
#include "core/base/param.h"

#include "core/base/log.h"
#include "core/base/util.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define PREFIX      "GYRE_"
#define NCCL_PREFIX "NCCL_"

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

static const struct row rows[] = {
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

/* ---- values ----------------------------------------------------------------------------- */

/* The legal values of a row, in words. */
static void describe_legal(const struct row *row, char *text_out, size_t text_bytes)
{
    const char *space = row->unit[0] == '\0' ? "" : " ";
    switch (row->type) {
    case GYRE_PARAM_INT:
        snprintf(text_out, text_bytes, "%lld..%lld%s%s", (long long)row->low, (long long)row->high,
                 space, row->unit);
        return;
    case GYRE_PARAM_BYTES:
        snprintf(text_out, text_bytes, "%lld..%lld%s%s, K M G allowed", (long long)row->low,
                 (long long)row->high, space, row->unit);
        return;
    case GYRE_PARAM_BOOL:
        snprintf(text_out, text_bytes, "0 1 true false yes no on off");
        return;
    case GYRE_PARAM_CHOICE:
        snprintf(text_out, text_bytes, "%s", row->words);
        return;
    case GYRE_PARAM_SET:
        snprintf(text_out, text_bytes, "a list of: %s", row->words);
        return;
    case GYRE_PARAM_STRING:
        snprintf(text_out, text_bytes, "text");
        return;
    }
}

/* Decimal digits with an optional sign; always decimal, so that 010 is ten. */
static bool parse_decimal(const char *text, const char **end_out, int64_t *number_out)
{
    const bool negative = *text == '-';
    uint64_t number = 0;
    const char *at = text + (*text == '-' || *text == '+');
    if (!isdigit((unsigned char)*at))
        return false;
    for (; isdigit((unsigned char)*at); at++) {
        number = number * 10 + (uint64_t)(*at - '0');
        if (number > (uint64_t)INT64_MAX / 16)
            return false; /* beyond every row's range, and far from overflow */
    }
    *end_out = at;
    *number_out = negative ? -(int64_t)number : (int64_t)number;
    return true;
}

static bool parse_bytes(const char *text, int64_t *number_out)
{
    const char *end = NULL;
    int64_t number = 0;
    if (!parse_decimal(text, &end, &number) || number < 0)
        return false;
    unsigned shift = 0;
    switch (*end) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    case '\0':
        *number_out = number;
        return true;
    default:
        return false;
    }
    if (end[1] != '\0' || number > INT64_MAX >> shift)
        return false;
    *number_out = number * (int64_t)(1ULL << shift);
    return true;
}

/* The index of `text` in space-separated `words`, or -1. */
static int64_t find_word(const char *words, const char *text)
{
    const size_t n_text = strlen(text);
    int64_t index = 0;
    for (const char *at = words; *at != '\0'; index++) {
        const size_t n_word = strcspn(at, " ");
        if (n_word == n_text && strncasecmp(at, text, n_word) == 0)
            return index;
        at += n_word + (at[n_word] == ' ');
    }
    return -1;
}

/* Sets a bit for each word of the list "a,b". */
static bool parse_set(const char *words, const char *list, int64_t *number_out)
{
    int64_t bits = 0;
    for (const char *at = list;; at++) {
        char word[32];
        const size_t n_bytes = strcspn(at, ",");
        if (n_bytes >= sizeof(word))
            return false;
        memcpy(word, at, n_bytes);
        word[n_bytes] = '\0';
        const int64_t index = find_word(words, word);
        if (index < 0)
            return false;
        bits |= (int64_t)1 << index;
        at += n_bytes;
        if (*at == '\0')
            break;
    }
    *number_out = bits;
    return true;
}

static bool parse_number(const struct row *row, const char *text, int64_t *number_out)
{
    const char *end = NULL;
    int64_t index = -1;
    switch (row->type) {
    case GYRE_PARAM_INT:
        return parse_decimal(text, &end, number_out) && *end == '\0' && *number_out >= row->low &&
               *number_out <= row->high;
    case GYRE_PARAM_BYTES:
        return parse_bytes(text, number_out) && *number_out >= row->low && *number_out <= row->high;
    case GYRE_PARAM_BOOL:
        index = find_word("0 1 false true no yes off on", text);
        *number_out = index & 1;
        return index >= 0;
    case GYRE_PARAM_CHOICE:
        index = find_word(row->words, text);
        *number_out = index;
        return index >= 0;
    case GYRE_PARAM_SET:
        return parse_set(row->words, text, number_out);
    case GYRE_PARAM_STRING:
        *number_out = INT64_MIN;
        return true;
    }
    return false;
}

/* @source: the variable it comes from, "" for the row's default. */
static gyre_status set_value(const struct row *row, const char *source, const char *text,
                             struct gyre_param_value *value_out)
{
    char legal[160];
    int64_t number = INT64_MIN;
    memset(value_out, 0, sizeof(*value_out));
    if (strlen(text) >= sizeof(value_out->text))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s is %zu bytes long; at most %zu are legal",
                         source, strlen(text), sizeof(value_out->text) - 1);
    if (text[0] != '\0' && !parse_number(row, text, &number)) {
        describe_legal(row, legal, sizeof(legal));
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s=%s is not legal: expected %s (%s)",
                         source, text, legal, row->help);
    }
    value_out->is_set = source[0] != '\0';
    value_out->number = number;
    memcpy(value_out->text, text, strlen(text) + 1);
    snprintf(value_out->source, sizeof(value_out->source), "%s", source);
    return GYRE_SUCCESS;
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

static gyre_status load_row(const struct row *row, char *const *environment,
                            struct gyre_param_value *value_out)
{
    char source[sizeof(value_out->source)];
    const char *text = find_variable(environment, PREFIX, row->name);
    if (text != NULL) {
        snprintf(source, sizeof(source), PREFIX "%s", row->name);
        return set_value(row, source, text, value_out);
    }
    if ((row->flags & GYRE_PARAM_NCCL) != 0)
        text = find_variable(environment, NCCL_PREFIX, row->name);
    /* -1 is how NCCL's scripts write "not set" for a number that cannot be negative. */
    const bool nccl_unset =
        text != NULL && row->type == GYRE_PARAM_INT && row->low >= 0 && strcmp(text, "-1") == 0;
    if (text == NULL || nccl_unset)
        return set_value(row, "", row->fallback, value_out);
    snprintf(source, sizeof(source), NCCL_PREFIX "%s", row->name);
    return set_value(row, source, text, value_out);
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
static const struct row *nearest_row(const char *name, unsigned flags, unsigned *distance_out)
{
    const struct row *nearest = &rows[0];
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
        const struct row *nearest = nearest_row(name, 0, &distance);
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
    const struct row *nearest = nearest_row(name, is_ours ? 0 : GYRE_PARAM_NCCL, &distance);
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
    GYRE_TRY(set_value(&rows[id], source, text, &value));
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
    describe_legal(&rows[id], text_out, text_bytes);
}

void gyre_params_print_help(FILE *file)
{
    fprintf(file, "Environment variables. [NCCL]: NCCL_<name> is read when GYRE_<name> is unset.\n"
                  "[plan]: must be the same on all ranks.\n\n");
    for (size_t i = 0; i < GYRE_N_PARAMS; i++) {
        const struct row *row = &rows[i];
        char legal[160];
        describe_legal(row, legal, sizeof(legal));
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
