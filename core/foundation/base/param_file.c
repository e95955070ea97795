/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's configuration files as sources of variables: the file that NCCL_CONF_FILE names, or else
 * ~/.nccl.conf, and then /etc/nccl.conf. The places and their order are NCCL's (src/misc/param.cc
 * of NCCL 2.28). NCCL puts every line into the environment; here only the names that begin with
 * NCCL_ or GYRE_ count, and the environment stays as it is.
 */
#include "core/foundation/base/file.h"
#include "core/foundation/base/param_value.h"
#include "core/foundation/base/text.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_FILE_BYTES ((size_t)1 << 20)
#define SYSTEM_FILE    "/etc/nccl.conf"
#define USER_FILE      ".nccl.conf"

/* A file that was read. The entries point into the text, which lies behind them. */
struct conf {
    char *text;
    char path[PATH_MAX];
    char *entries[];
};

/* Turns a line into "NAME=value" in place, without blanks around name and value. Returns NULL if
 * the line is a comment or something else. */
static char *entry_of_line(char *line)
{
    while (gyre_text_is_space(*line))
        line++;
    char *equals = strchr(line, '=');
    if (*line == '#' || equals == NULL ||
        (strncmp(line, "NCCL_", 5) != 0 && strncmp(line, "GYRE_", 5) != 0))
        return NULL;
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
    return line;
}

/* Adds the file as a source. A file that is not there is none. */
static gyre_status add_file(const char *path, struct gyre_param_sources *sources)
{
    char *text = NULL;
    size_t n_bytes = 0, n_lines = 1;
    GYRE_TRY(gyre_file_read(path, MAX_FILE_BYTES, &text, &n_bytes));
    for (size_t i = 0; i < n_bytes; i++) {
        n_lines += text[i] == '\n';
        if (text[i] == '\0') /* would hide the rest of its line */
            text[i] = ' ';
    }
    struct conf *conf = calloc(1, sizeof(*conf) + (n_lines + 1) * sizeof(conf->entries[0]));
    if (conf == NULL) {
        free(text);
        return gyre_fail_errno(ENOMEM, "%s", path);
    }
    size_t n_entries = 0;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *entry = entry_of_line(line);
        if (entry != NULL)
            conf->entries[n_entries++] = entry;
    }
    conf->text = text;
    snprintf(conf->path, sizeof(conf->path), "%s", path);
    sources->list[sources->n++] =
        (struct gyre_param_source){.entries = conf->entries, .file = conf->path, .owned = conf};
    return GYRE_SUCCESS;
}

/* The home folder of the account, as NCCL finds it: HOME does not count. */
static bool find_user_file(char *path_out, size_t path_bytes)
{
    struct passwd account, *found = NULL;
    char room[16384];
    if (getpwuid_r(getuid(), &account, room, sizeof(room), &found) != 0 || found == NULL)
        return false;
    return snprintf(path_out, path_bytes, "%s/" USER_FILE, account.pw_dir) < (int)path_bytes;
}

void gyre_param_add_files(const char *named, struct gyre_param_sources *sources)
{
    char user_file[PATH_MAX];
    const bool is_named = named != NULL && named[0] != '\0';
    const bool has_home = !is_named && find_user_file(user_file, sizeof(user_file));
    const char *paths[] = {is_named ? named : has_home ? user_file : NULL, SYSTEM_FILE};
    for (int i = 0; i < 2; i++) {
        const bool must_be_there = is_named && i == 0;
        if (paths[i] == NULL || (access(paths[i], F_OK) != 0 && !must_be_there) ||
            add_file(paths[i], sources) == GYRE_SUCCESS)
            continue;
        snprintf(sources->problem, sizeof(sources->problem), "%s is not read: %s",
                 must_be_there ? "NCCL_CONF_FILE" : "a file of NCCL's variables", gyre_cause());
    }
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
