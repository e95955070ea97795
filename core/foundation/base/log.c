/* SPDX-License-Identifier: Apache-2.0
 *
 * Process-wide settings: set before a second thread logs, read with acquire loads. A line is one
 * write(2), so lines never mix. Descriptor 2 gets no lines if a program without standard error may
 * have opened it as a file.
 */
#include "core/foundation/base/log.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048
#define FILE_MAX_BYTES 512
#define ALL_SUBSYS     ((1U << GYRE_LOG_N_SUBSYS) - 1U)

#define DEFAULT_SUBSYS                                                                          \
    (1U << GYRE_LOG_INIT | 1U << GYRE_LOG_ENV | 1U << GYRE_LOG_BOOTSTRAP | 1U << GYRE_LOG_NET | \
     1U << GYRE_LOG_P2P | 1U << GYRE_LOG_SHM)

static uint32_t log_level = GYRE_LOG_WARN;
static uint32_t log_subsys = DEFAULT_SUBSYS;
static uint32_t log_fd = STDERR_FILENO;
static char log_path[FILE_MAX_BYTES];
static uint32_t has_lost_lines;
static uint32_t has_no_stderr;
static _Thread_local int thread_rank = -1;

static const char *const subsys_names[] = {
#define SUBSYS_NAME(name) #name,
    GYRE_LOG_SUBSYS_TABLE(SUBSYS_NAME)
#undef SUBSYS_NAME
};

static const char *const foreign_subsys_names[] = {"ALLOC_HOST", "NVLS", "PROFILE", "RAS"};

static const struct {
    const char *word;
    enum gyre_log_level level;
} level_words[] = {
    {"NONE", GYRE_LOG_NONE},  {"VERSION", GYRE_LOG_VERSION}, {"WARN", GYRE_LOG_WARN},
    {"INFO", GYRE_LOG_INFO},  {"TRACE", GYRE_LOG_TRACE},     {"ERROR", GYRE_LOG_WARN},
    {"ABORT", GYRE_LOG_INFO},
};

bool gyre_log_enabled(enum gyre_log_level level, enum gyre_log_subsys subsys)
{
    if (level == GYRE_LOG_NONE || (uint32_t)level > gyre_load_acquire_u32(&log_level))
        return false;
    return level <= GYRE_LOG_WARN || (gyre_load_acquire_u32(&log_subsys) >> subsys & 1U) != 0;
}

__attribute__((constructor)) static void look_at_stderr(void)
{
    if (fcntl(STDERR_FILENO, F_GETFD) < 0)
        gyre_store_release_u32(&has_no_stderr, 1);
}

static void write_line(int fd, const char *line, size_t n_line)
{
    char text[FILE_MAX_BYTES + 128], reason[64];
    if (fd != STDERR_FILENO) {
        const int error = gyre_descriptor_write(fd, line, n_line);
        if (error == 0 || !gyre_compare_exchange_u32(&has_lost_lines, 0, 1))
            return;
        snprintf(text, sizeof(text), "GYRE WARN log file %s: %s (errno %d); its lines are lost\n",
                 log_path, strerror_r(error, reason, sizeof(reason)), error);
        line = text;
        n_line = strlen(text);
    }
    if (gyre_load_acquire_u32(&has_no_stderr) == 0 &&
        gyre_descriptor_write(STDERR_FILENO, line, n_line) == EBADF)
        gyre_store_release_u32(&has_no_stderr, 1);
}

void gyre_log(enum gyre_log_level level, enum gyre_log_subsys subsys, const char *format, ...)
{
    if (!gyre_log_enabled(level, subsys))
        return;
    const int saved_errno = errno;
    char host[65] = "";
    char line[LINE_MAX_BYTES];
    gethostname(host, sizeof(host) - 1);
    int n_head =
        snprintf(line, sizeof(line), "%s:%ld:%ld ", host, (long)getpid(), syscall(SYS_gettid));
    if (thread_rank >= 0)
        n_head += snprintf(line + n_head, sizeof(line) - (size_t)n_head, "[%d] ", thread_rank);
    n_head +=
        snprintf(line + n_head, sizeof(line) - (size_t)n_head, "GYRE %s ", level_words[level].word);
    va_list args;
    va_start(args, format);
    gyre_text_vformat(line + n_head, sizeof(line) - (size_t)n_head - 1, format, args);
    va_end(args);
    const size_t n_line = strlen(line);
    line[n_line] = '\n';
    write_line((int)gyre_load_acquire_u32(&log_fd), line, n_line + 1);
    errno = saved_errno;
}

void gyre_log_set_rank(int rank)
{
    thread_rank = rank;
}

static gyre_status parse_one_subsys(const char *word, uint32_t *mask_out)
{
    const char *nearest = "ALL";
    unsigned nearest_distance = gyre_edit_distance(word, nearest);
    if (gyre_text_same(word, "ALL")) {
        *mask_out = ALL_SUBSYS;
        return GYRE_SUCCESS;
    }
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(foreign_subsys_names); i++) {
        if (gyre_text_same(word, foreign_subsys_names[i])) {
            *mask_out = 0;
            return GYRE_SUCCESS;
        }
    }
    for (unsigned i = 0; i < GYRE_LOG_N_SUBSYS; i++) {
        if (gyre_text_same(word, subsys_names[i])) {
            *mask_out = 1U << i;
            return GYRE_SUCCESS;
        }
        /* TUNE must find TUNING, not a word at a lesser distance. */
        const bool begins_alike = strlen(word) >= 3 && gyre_text_same_n(word, subsys_names[i], 3);
        const unsigned distance = begins_alike ? 0 : gyre_edit_distance(word, subsys_names[i]);
        if (distance < nearest_distance) {
            nearest_distance = distance;
            nearest = subsys_names[i];
        }
    }
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                     "GYRE_DEBUG_SUBSYS: the log has no part \"%s\": did you "
                     "mean %s?",
                     word, nearest);
}

static gyre_status parse_subsystems(const char *text, uint32_t *mask_out)
{
    const bool inverted = text[0] == '^';
    uint32_t mask = 0;
    if (text[0] == '\0') {
        *mask_out = DEFAULT_SUBSYS;
        return GYRE_SUCCESS;
    }
    const char *start;
    size_t n_word;
    for (const char *at = text + inverted; gyre_list_next(&at, &start, &n_word);) {
        char word[32];
        uint32_t one = 0;
        snprintf(word, sizeof(word), "%.*s", (int)n_word, start);
        GYRE_TRY(parse_one_subsys(word, &one));
        mask |= one;
    }
    *mask_out = inverted ? ALL_SUBSYS & ~mask : mask;
    return GYRE_SUCCESS;
}

gyre_status gyre_log_configure(const char *level, const char *subsystems, const char *file)
{
    uint32_t new_subsys = 0;
    size_t row = 0;
    char new_path[FILE_MAX_BYTES] = "";
    int new_fd = STDERR_FILENO;
    look_at_stderr();
    while (row < GYRE_ARRAY_LENGTH(level_words) && !gyre_text_same(level, level_words[row].word))
        row++;
    if (row == GYRE_ARRAY_LENGTH(level_words))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "log level \"%s\": legal are NONE VERSION WARN ERROR INFO ABORT TRACE",
                         level);
    GYRE_TRY(parse_subsystems(subsystems == NULL ? "" : subsystems, &new_subsys));
    if (file != NULL && file[0] != '\0') {
        if (!gyre_file_expand(file, -1, new_path, sizeof(new_path), NULL))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "log file name \"%s\" is too long", file);
        new_fd = gyre_descriptor_keep(
            open(new_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
        if (new_fd < 0 && errno == ENXIO)
            return gyre_fail(GYRE_ERROR_SYSTEM, "log file %s: a pipe that no process reads",
                             new_path);
        if (new_fd < 0)
            return gyre_fail_errno(errno, "log file %s", new_path);
        (void)fcntl(new_fd, F_SETFL, O_APPEND);
    }
    const int old_fd = (int)gyre_load_acquire_u32(&log_fd);
    gyre_store_release_u32(&log_subsys, new_subsys);
    memcpy(log_path, new_path, sizeof(log_path));
    gyre_store_release_u32(&has_lost_lines, 0);
    gyre_store_release_u32(&log_fd, (uint32_t)new_fd);
    gyre_store_release_u32(&log_level, level_words[row].level);
    if (old_fd != STDERR_FILENO)
        close(old_fd);
    return GYRE_SUCCESS;
}
