/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/param.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/param_value.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX      "GYRE_"
#define NCCL_PREFIX "NCCL_"

static const struct gyre_param_row rows[] = {
#define X(id, type, flags, fallback, low, high, unit, words, help) \
    {#id, type, flags, fallback, low, high, unit, words, help},
#include "core/foundation/base/param_table.h"
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

const char *gyre_param_called(const struct gyre_params *params, enum gyre_param_id id)
{
    static const char *const own_names[] = {
#define X(id, type, flags, fallback, low, high, unit, words, help) PREFIX #id,
#include "core/foundation/base/param_table.h"
#undef X
    };
    return params->values[id].is_set ? params->values[id].source : own_names[id];
}

const char *gyre_param_help(enum gyre_param_id id)
{
    return rows[id].help;
}

static const char *find_variable(char *const *environment, const char *prefix, const char *name)
{
    const size_t n_prefix = strlen(prefix);
    const size_t n_name = strlen(name);
    for (; *environment != NULL; environment++) {
        const char *entry = *environment;
        if (strncmp(entry, prefix, n_prefix) == 0 && strncmp(entry + n_prefix, name, n_name) == 0 &&
            entry[n_prefix + n_name] == '=')
            return entry + n_prefix + n_name + 1;
    }
    return NULL;
}

static void add_note(struct gyre_params *params, const char *note)
{
    if (note[0] != '\0' && strlen(params->notes) + strlen(note) + 2 <= sizeof(params->notes))
        gyre_text_append(params->notes, sizeof(params->notes), "%s\n", note);
}

gyre_status gyre_param_take(const struct gyre_param_sources *sources, enum gyre_param_id id,
                            struct gyre_params *params)
{
    const struct gyre_param_row *row = &rows[id];
    struct gyre_param_value *value = &params->values[id];
    char variable[sizeof(value->source)], note[GYRE_CAUSE_MAX_BYTES];
    for (int i = 0; i < sources->n; i++) {
        const struct gyre_param_source *source = &sources->list[i];
        const char *own = find_variable(source->entries, PREFIX, row->name);
        const char *nccls = (row->flags & GYRE_PARAM_NCCL) != 0
                                ? find_variable(source->entries, NCCL_PREFIX, row->name)
                                : NULL;
        if (own != NULL && own[0] != '\0') {
            snprintf(variable, sizeof(variable), PREFIX "%s", row->name);
            const gyre_status status = gyre_param_set_value(row, variable, own, value);
            return status == GYRE_SUCCESS || source->file == NULL
                       ? status
                       : gyre_fail_context(status, "%s", source->file);
        }
        if (nccls != NULL && nccls[0] != '\0') {
            snprintf(variable, sizeof(variable), NCCL_PREFIX "%s", row->name);
            gyre_param_take_nccl(row, variable, nccls, value, note, sizeof(note));
            add_note(params, note);
            return GYRE_SUCCESS;
        }
        if (own != NULL || nccls != NULL)
            break;
    }
    return gyre_param_set_value(row, "", row->fallback, value);
}

static bool name_behind(const char *entry, const char *prefix, char *name_out, size_t name_bytes)
{
    const size_t n_prefix = strlen(prefix);
    if (strncmp(entry, prefix, n_prefix) != 0)
        return false;
    snprintf(name_out, name_bytes, "%.*s", (int)strcspn(entry + n_prefix, "="), entry + n_prefix);
    return true;
}

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

gyre_status gyre_params_take(const struct gyre_param_sources *sources,
                             struct gyre_params *params_out)
{
    params_out->notes[0] = '\0';
    add_note(params_out, sources->problem);
    for (int i = 0; i < sources->n; i++) {
        for (char *const *entry = sources->list[i].entries; *entry != NULL; entry++) {
            char name[64];
            unsigned distance = 0;
            if (!name_behind(*entry, PREFIX, name, sizeof(name)))
                continue;
            const struct gyre_param_row *nearest = nearest_row(name, 0, &distance);
            if (distance != 0)
                return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                                 "%s%sunknown variable " PREFIX "%s: did you mean " PREFIX "%s?",
                                 sources->list[i].file != NULL ? sources->list[i].file : "",
                                 sources->list[i].file != NULL ? ": " : "", name, nearest->name);
        }
    }
    for (int id = 0; id < GYRE_N_PARAMS; id++)
        GYRE_TRY(gyre_param_take(sources, (enum gyre_param_id)id, params_out));
    return GYRE_SUCCESS;
}

gyre_status gyre_params_from(char *const *environment, struct gyre_params *params_out)
{
    const struct gyre_param_sources sources = {.list = {{.entries = environment}}, .n = 1};
    return gyre_params_take(&sources, params_out);
}

bool gyre_param_guess(const char *entry, struct gyre_param_guess *guess_out)
{
    char name[64];
    unsigned distance = 0;
    const bool is_ours = name_behind(entry, PREFIX, name, sizeof(name));
    if (!is_ours && !name_behind(entry, NCCL_PREFIX, name, sizeof(name)))
        return false;
    if (!is_ours && strcmp(name, "CONF_FILE") == 0)
        return false;
    const struct gyre_param_row *nearest =
        nearest_row(name, is_ours ? 0 : GYRE_PARAM_NCCL, &distance);
    guess_out->is_error = is_ours;
    guess_out->is_close = distance <= 2;
    snprintf(guess_out->nearest, sizeof(guess_out->nearest), "%s%s", is_ours ? PREFIX : NCCL_PREFIX,
             nearest->name);
    return distance != 0;
}

gyre_status gyre_param_forgive(const struct gyre_params *params, enum gyre_param_id id,
                               gyre_status status)
{
    static uint32_t is_told[GYRE_N_PARAMS];
    const struct gyre_param_value *value = &params->values[id];
    if (status == GYRE_SUCCESS || strncmp(value->source, NCCL_PREFIX, strlen(NCCL_PREFIX)) != 0)
        return status;
    if (gyre_compare_exchange_u32(&is_told[id], 0, 1))
        GYRE_WARN("%s=%.64s is ignored: %s", value->source, value->text, gyre_cause());
    return GYRE_SUCCESS;
}

static gyre_status configure_log(const struct gyre_params *params)
{
    const char *level = gyre_param_text(params, GYRE_PARAM_DEBUG);
    const char *subsystems = gyre_param_text(params, GYRE_PARAM_DEBUG_SUBSYS);
    const char *file = gyre_param_text(params, GYRE_PARAM_DEBUG_FILE);
    GYRE_TRY(gyre_log_configure(level, subsystems, ""));
    const gyre_status status =
        file[0] != '\0' ? gyre_log_configure(level, subsystems, file) : GYRE_SUCCESS;
    if (status != GYRE_SUCCESS)
        gyre_fail_context(status, "%s", gyre_param_source(params, GYRE_PARAM_DEBUG_FILE));
    return gyre_param_forgive(params, GYRE_PARAM_DEBUG_FILE, status);
}

#define MAX_FILE_BYTES ((size_t)1 << 20)
#define SYSTEM_FILE    "/etc/nccl.conf"
#define USER_FILE      ".nccl.conf"

struct conf {
    char *text;
    char path[PATH_MAX];
    char *entries[];
};

static gyre_status add_file(const char *path, struct gyre_param_sources *sources)
{
    char *text = NULL;
    size_t n_bytes = 0, n_lines = 1;
    GYRE_TRY(gyre_file_read(path, MAX_FILE_BYTES, &text, &n_bytes));
    for (size_t i = 0; i < n_bytes; i++) {
        n_lines += text[i] == '\n';
        if (text[i] == '\0')
            text[i] = ' ';
    }
    struct conf *conf = calloc(1, sizeof(*conf) + (n_lines + 1) * sizeof(conf->entries[0]));
    if (conf == NULL) {
        free(text);
        return gyre_fail_errno(ENOMEM, "%s", path);
    }
    static const char byte_order_mark[] = "\xef\xbb\xbf"; /* some editors put it first */
    size_t n_entries = 0;
    char *rest = text;
    if (strncmp(text, byte_order_mark, sizeof(byte_order_mark) - 1) == 0)
        rest += sizeof(byte_order_mark) - 1;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        while (gyre_text_is_space(*line))
            line++;
        char *equals = strchr(line, '=');
        if (*line == '#' || equals == NULL ||
            (strncmp(line, "NCCL_", 5) != 0 && strncmp(line, "GYRE_", 5) != 0))
            continue;
        char *name_end = equals;
        while (name_end > line && gyre_text_is_space(name_end[-1]))
            name_end--;
        char *value = equals + 1;
        while (gyre_text_is_space(*value))
            value++;
        char *end = value + strlen(value);
        while (end > value && gyre_text_is_space(end[-1]))
            end--;
        *end = '\0';
        *name_end = '=';
        memmove(name_end + 1, value, strlen(value) + 1);
        conf->entries[n_entries++] = line;
    }
    conf->text = text;
    snprintf(conf->path, sizeof(conf->path), "%s", path);
    sources->list[sources->n++] =
        (struct gyre_param_source){.entries = conf->entries, .file = conf->path, .owned = conf};
    return GYRE_SUCCESS;
}

void gyre_param_sources_close(struct gyre_param_sources *sources)
{
    for (int i = 0; i < sources->n; i++) {
        struct conf *conf = sources->list[i].owned;
        if (conf != NULL)
            free(conf->text);
        free(conf);
    }
    sources->n = 0;
}

void gyre_param_sources_open(struct gyre_param_sources *sources_out)
{
    char user_file[PATH_MAX];
    const char *named = getenv("NCCL_CONF_FILE");
    const bool is_named = named != NULL && named[0] != '\0';
    struct passwd account, *found = NULL;
    char room[16384];
    const bool has_home =
        !is_named && getpwuid_r(getuid(), &account, room, sizeof(room), &found) == 0 &&
        found != NULL &&
        snprintf(user_file, sizeof(user_file), "%s/" USER_FILE, account.pw_dir) < PATH_MAX;
    const char *paths[] = {is_named ? named : has_home ? user_file : NULL, SYSTEM_FILE};
    memset(sources_out, 0, sizeof(*sources_out));
    sources_out->list[sources_out->n++].entries = environ;
    for (int i = 0; i < 2; i++) {
        const bool must_be_there = is_named && i == 0;
        if (paths[i] == NULL || (access(paths[i], F_OK) != 0 && !must_be_there) ||
            add_file(paths[i], sources_out) == GYRE_SUCCESS)
            continue;
        snprintf(sources_out->problem, sizeof(sources_out->problem), "%s is not read: %s",
                 must_be_there ? "NCCL_CONF_FILE" : "a file of NCCL's variables", gyre_cause());
    }
}

/* The first communicator sets up the log; a forked child's own has the child's pid in its name. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool log_is_ready; /* under lock */

static void forget_log(void)
{
    log_is_ready = false;
}

GYRE_WATCH_FORKS(&lock, forget_log)

gyre_status gyre_params_load(struct gyre_params *params_out)
{
    struct gyre_param_sources sources;
    gyre_param_sources_open(&sources);
    gyre_status status = gyre_params_take(&sources, params_out);
    pthread_mutex_lock(&lock);
    if (status == GYRE_SUCCESS && !log_is_ready) {
        status = configure_log(params_out);
        log_is_ready = status == GYRE_SUCCESS;
        if (log_is_ready) {
            for (const char *line = params_out->notes; *line != '\0';
                 line += strcspn(line, "\n") + 1)
                GYRE_WARN("%.*s", (int)strcspn(line, "\n"), line);
            for (int i = 0; i < sources.n; i++) {
                if (sources.list[i].file != NULL)
                    GYRE_INFO(ENV, "variables are read from %s; the environment comes before it",
                              sources.list[i].file);
                for (char *const *entry = sources.list[i].entries; *entry != NULL; entry++) {
                    struct gyre_param_guess guess;
                    const int n_name = (int)strcspn(*entry, "=");
                    if (!gyre_param_guess(*entry, &guess) || guess.is_error)
                        continue;
                    if (guess.is_close)
                        GYRE_INFO(ENV, "unknown variable %.*s: did you mean %s?", n_name, *entry,
                                  guess.nearest);
                    else
                        GYRE_INFO(ENV, "%.*s has no counterpart here and is ignored", n_name,
                                  *entry);
                }
            }
        }
    }
    pthread_mutex_unlock(&lock);
    gyre_param_sources_close(&sources);
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
        const char *text = row->help;
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
}

const char *gyre_param_master_address(void)
{
    return getenv("MASTER_ADDR");
}

char *const *gyre_param_environment(void)
{
    return environ;
}
