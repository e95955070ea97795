/* SPDX-License-Identifier: Apache-2.0
 *
 * The log. Process-wide by nature: level, subsystems and file are set once, before the first line.
 */
#include "core/base/log.h"

#include "core/base/sync.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_LINE_BYTES 2048
#define ALL_SUBSYSTEMS ((1U << GYRE_LOG_N_SUBSYS) - 1)
/* What INFO shows when no subsystem is named, as NCCL does. */
#define DEFAULT_SUBSYSTEMS (1U << GYRE_LOG_INIT | 1U << GYRE_LOG_BOOTSTRAP | 1U << GYRE_LOG_ENV)

static const char *const subsys_names[GYRE_LOG_N_SUBSYS] = {
#define NAME(name) [GYRE_LOG_##name] = #name,
    GYRE_LOG_SUBSYS_TABLE(NAME)
#undef NAME
};

static const struct {
    const char *word;
    enum gyre_log_level level;
} levels[] = {{"NONE", GYRE_LOG_NONE},  {"VERSION", GYRE_LOG_VERSION}, {"WARN", GYRE_LOG_WARN},
              {"ERROR", GYRE_LOG_WARN}, {"INFO", GYRE_LOG_INFO},       {"ABORT", GYRE_LOG_INFO},
              {"TRACE", GYRE_LOG_TRACE}};

/* Process-wide: one log. Written by gyre_log_configure under `lock`, read by every thread. */
static struct {
    pthread_mutex_t lock;
    uint32_t level;
    uint32_t subsystems;
    FILE *file; /* NULL = stderr */
    char host[64];
} state = {PTHREAD_MUTEX_INITIALIZER, GYRE_LOG_WARN, DEFAULT_SUBSYSTEMS, NULL, ""};

static _Thread_local int thread_rank = -1;

bool gyre_log_enabled(enum gyre_log_level level, enum gyre_log_subsys subsys)
{
    if ((uint32_t)level > gyre_load_relaxed_u32(&state.level))
        return false;
    return level <= GYRE_LOG_WARN || (gyre_load_relaxed_u32(&state.subsystems) >> subsys & 1U) != 0;
}

static const char *level_word(enum gyre_log_level level)
{
    return level == GYRE_LOG_WARN ? "WARN" : level == GYRE_LOG_TRACE ? "TRACE" : "INFO";
}

void gyre_log(enum gyre_log_level level, enum gyre_log_subsys subsys, const char *format, ...)
{
    if (!gyre_log_enabled(level, subsys))
        return;
    const int saved_errno = errno;
    char line[MAX_LINE_BYTES];
    char rank[16] = "";
    if (thread_rank >= 0)
        snprintf(rank, sizeof(rank), "[%d] ", thread_rank);
    pthread_mutex_lock(&state.lock);
    if (state.host[0] == '\0')
        gethostname(state.host, sizeof(state.host) - 1);
    int used = snprintf(line, sizeof(line), "%s:%d:%ld %sGYRE %s ", state.host, (int)getpid(),
                        (long)syscall(SYS_gettid), rank, level_word(level));
    va_list args;
    va_start(args, format);
    const int more = vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, args);
    va_end(args);
    used += more < 0 ? 0 : more;
    if ((size_t)used > sizeof(line) - 2)
        used = (int)sizeof(line) - 2;
    line[used] = '\n';
    FILE *file = state.file != NULL ? state.file : stderr;
    fwrite(line, 1, (size_t)used + 1, file);
    fflush(file);
    pthread_mutex_unlock(&state.lock);
    errno = saved_errno;
}

static gyre_status parse_subsystems(const char *text, uint32_t *mask_out)
{
    const bool inverts = text[0] == '^';
    uint32_t mask = 0;
    char copy[512];
    snprintf(copy, sizeof(copy), "%s", text + inverts);
    char *rest = NULL;
    for (char *word = strtok_r(copy, ", ", &rest); word != NULL;
         word = strtok_r(NULL, ", ", &rest)) {
        uint32_t bit = strcasecmp(word, "ALL") == 0 ? ALL_SUBSYSTEMS : 0;
        for (int i = 0; i < GYRE_LOG_N_SUBSYS; i++)
            if (strcasecmp(word, subsys_names[i]) == 0)
                bit = 1U << i;
        /* NCCL has subsystems that gyre does not: job scripts that name them still work. */
        mask |= bit;
    }
    *mask_out = inverts ? ALL_SUBSYSTEMS & ~mask : mask;
    return GYRE_SUCCESS;
}

static void expand_file_name(const char *file, char *name_out, size_t name_bytes)
{
    size_t used = 0;
    char host[64] = "";
    gethostname(host, sizeof(host) - 1);
    for (const char *at = file; *at != '\0' && used + 1 < name_bytes; at++) {
        if (at[0] == '%' && (at[1] == 'h' || at[1] == 'p')) {
            if (at[1] == 'h')
                used += (size_t)snprintf(name_out + used, name_bytes - used, "%s", host);
            else
                used += (size_t)snprintf(name_out + used, name_bytes - used, "%d", (int)getpid());
            at++;
            if (used >= name_bytes)
                used = name_bytes - 1;
        } else {
            name_out[used++] = *at;
        }
    }
    name_out[used] = '\0';
}

gyre_status gyre_log_configure(const char *level, const char *subsystems, const char *file)
{
    int found = -1;
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
        if (strcasecmp(level, levels[i].word) == 0)
            found = (int)levels[i].level;
    if (found < 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "GYRE_DEBUG: \"%s\" is none of NONE VERSION WARN ERROR INFO ABORT TRACE",
                         level);
    uint32_t mask = DEFAULT_SUBSYSTEMS;
    if (subsystems != NULL && subsystems[0] != '\0')
        GYRE_TRY(parse_subsystems(subsystems, &mask));
    FILE *opened = NULL;
    if (file != NULL && file[0] != '\0') {
        char name[512];
        expand_file_name(file, name, sizeof(name));
        opened = fopen(name, "ae");
        if (opened == NULL)
            return gyre_fail_errno(errno, "GYRE_DEBUG_FILE: cannot open \"%s\"", name);
    }
    pthread_mutex_lock(&state.lock);
    if (state.file != NULL)
        fclose(state.file);
    state.file = opened;
    gyre_store_release_u32(&state.subsystems, mask);
    gyre_store_release_u32(&state.level, (uint32_t)found);
    pthread_mutex_unlock(&state.lock);
    return GYRE_SUCCESS;
}

void gyre_log_set_rank(int rank)
{
    thread_rank = rank;
}
