/* SPDX-License-Identifier: Apache-2.0
 *
 * Bounded reading of files below a root folder.
 */
#include "bench/doctor/read.h"

#include "core/foundation/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES ((size_t)1 << 20)
#define MOST_NAMES 4096

static enum bench_read result_of(int error_number)
{
    switch (error_number) {
    case ENOENT:
    case ENOTDIR:
    case EINVAL: /* sysfs: the attribute has no value now, as the speed of a link that is down */
    case ENODEV:
    case ENXIO:
    case ENODATA:
    case EOPNOTSUPP:
        return BENCH_READ_ABSENT;
    case EACCES:
    case EPERM:
        return BENCH_READ_DENIED;
    default:
        return BENCH_READ_BROKEN;
    }
}

static bool join(const char *root, const char *path, char *whole_out)
{
    return snprintf(whole_out, PATH_MAX, "%s%s", root, path) < PATH_MAX;
}

enum bench_read bench_read_bytes(const char *root, const char *path, void *bytes_out, size_t n_max,
                                 size_t *n_out)
{
    char whole[PATH_MAX];
    *n_out = 0;
    if (!join(root, path, whole))
        return BENCH_READ_BROKEN;
    const int fd = open(whole, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return result_of(errno);
    enum bench_read result = BENCH_READ_OK;
    while (*n_out < n_max) {
        const ssize_t n = read(fd, (char *)bytes_out + *n_out, n_max - *n_out);
        if (n < 0 && (errno == EINTR || errno == EPIPE))
            continue; /* EPIPE: a message of /dev/kmsg was overwritten; the next one follows */
        if (n < 0 && errno != EAGAIN && *n_out == 0)
            result = result_of(errno);
        if (n <= 0)
            break;
        *n_out += (size_t)n;
    }
    close(fd);
    return result;
}

enum bench_read bench_read_text(const char *root, const char *path, char *text_out,
                                size_t text_bytes)
{
    size_t n = 0;
    enum bench_read result = bench_read_bytes(root, path, text_out, text_bytes - 1, &n);
    text_out[n] = '\0';
    while (result == BENCH_READ_OK && n > 0 && gyre_text_is_space(text_out[n - 1]))
        text_out[--n] = '\0';
    if (result == BENCH_READ_OK && (n == 0 || strlen(text_out) != n))
        result = BENCH_READ_BROKEN;
    if (result != BENCH_READ_OK)
        text_out[0] = '\0';
    return result;
}

enum bench_read bench_read_all(const char *root, const char *path, char **text_out)
{
    char *text = malloc(MOST_BYTES);
    *text_out = NULL;
    if (text == NULL)
        return BENCH_READ_BROKEN;
    const enum bench_read result = bench_read_text(root, path, text, MOST_BYTES);
    if (result == BENCH_READ_OK)
        *text_out = text;
    else
        free(text);
    return result;
}

bool bench_text_to_number(const char *text, int64_t *number_out)
{
    char *end = NULL;
    errno = 0;
    const long long number = strtoll(text, &end, strncmp(text, "0x", 2) == 0 ? 16 : 10);
    if (end == text || errno != 0)
        return false;
    while (gyre_text_is_space(*end))
        end++;
    *number_out = number;
    return *end == '\0';
}

enum bench_read bench_read_number(const char *root, const char *path, int64_t *number_out)
{
    char text[64];
    const enum bench_read result = bench_read_text(root, path, text, sizeof(text));
    if (result != BENCH_READ_OK)
        return result;
    return bench_text_to_number(text, number_out) ? BENCH_READ_OK : BENCH_READ_BROKEN;
}

enum bench_read bench_read_link(const char *root, const char *path, char *name_out,
                                size_t name_bytes)
{
    char whole[PATH_MAX], target[PATH_MAX];
    name_out[0] = '\0';
    if (!join(root, path, whole))
        return BENCH_READ_BROKEN;
    const ssize_t n = readlink(whole, target, sizeof(target) - 1);
    if (n <= 0)
        return result_of(errno);
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(name_out, name_bytes, "%s", slash == NULL ? target : slash + 1);
    return name_out[0] == '\0' ? BENCH_READ_BROKEN : BENCH_READ_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strverscmp(a, b);
}

int bench_read_names(const char *root, const char *path, char (**names_out)[BENCH_NAME_BYTES])
{
    char whole[PATH_MAX];
    int n = 0;
    *names_out = NULL;
    DIR *folder = join(root, path, whole) ? opendir(whole) : NULL;
    if (folder == NULL)
        return 0;
    char(*names)[BENCH_NAME_BYTES] = calloc(MOST_NAMES, sizeof(*names));
    for (struct dirent *entry;
         names != NULL && n < MOST_NAMES && (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.' && strlen(entry->d_name) < BENCH_NAME_BYTES)
            snprintf(names[n++], sizeof(names[0]), "%.63s", entry->d_name);
    closedir(folder);
    if (n > 0)
        qsort(names, (size_t)n, sizeof(*names), compare_names);
    *names_out = names;
    return n;
}

bool bench_exists(const char *root, const char *path)
{
    char whole[PATH_MAX];
    struct stat found;
    return join(root, path, whole) && stat(whole, &found) == 0;
}

bool bench_can_open(const char *root, const char *path)
{
    char whole[PATH_MAX];
    return join(root, path, whole) && access(whole, R_OK | W_OK) == 0;
}

char *bench_next_line(char **rest)
{
    if (*rest == NULL || **rest == '\0')
        return NULL;
    return strsep(rest, "\n");
}
