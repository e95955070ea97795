/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/file.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FIRST_READ_BYTES 65536
#define N_NAMES          16

int gyre_descriptor_keep(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    const int kept = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int error = errno;
    close(fd);
    errno = error;
    return kept;
}

int gyre_descriptor_write(int fd, const void *bytes, size_t n_bytes)
{
    const char *at = bytes;
    const struct timespec now = {0, 0};
    sigset_t ours, pending, before;
    int error = 0;
    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    sigpending(&pending);
    while (n_bytes > 0 && error == 0) {
        const ssize_t n_written = write(fd, at, n_bytes);
        if (n_written >= 0) {
            at += n_written;
            n_bytes -= (size_t)n_written;
        } else if (errno != EINTR) {
            error = errno;
        }
    }
    /* Takes this write's signal, unless one of the caller's is pending. */
    const int raised = error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
    if (raised != 0 && sigismember(&pending, raised) == 0) {
        sigdelset(&ours, raised == SIGPIPE ? SIGXFSZ : SIGPIPE);
        while (sigtimedwait(&ours, NULL, &now) < 0 && errno == EINTR)
            ;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

gyre_status gyre_file_to_replace(const char *path, char *target_out)
{
    struct stat there;
    if (strcmp(path, "-") == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "-: give the path of a file");
    if (stat(path, &there) != 0) {
        if (errno != ENOENT)
            return gyre_fail_errno(errno, "%s", path);
        if (lstat(path, &there) == 0)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: a symbolic link that leads nowhere",
                             path);
        if (strlen(path) >= PATH_MAX)
            return gyre_fail_errno(ENAMETOOLONG, "%.64s...", path);
        memcpy(target_out, path, strlen(path) + 1);
        return GYRE_SUCCESS;
    }
    if (!S_ISREG(there.st_mode)) /* realpath() fails for a pipe */
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%s: not a regular file, and a new file would replace it", path);
    if (realpath(path, target_out) == NULL || stat(target_out, &there) != 0)
        return gyre_fail_errno(errno, "%s", path);
    return GYRE_SUCCESS;
}

/* O_EXCL follows no link. Other users cannot take a random name first. */
static gyre_status create_beside(const char *target, mode_t mode, char *beside_out, int *fd_out)
{
    for (int i = 0; i < N_NAMES; i++) {
        uint64_t random = 0;
        GYRE_TRY(gyre_random_bytes(&random, sizeof(random)));
        if (snprintf(beside_out, PATH_MAX, "%s.%016" PRIx64 ".part", target, random) >= PATH_MAX)
            return gyre_fail_errno(ENAMETOOLONG, "%.64s...", target);
        const int fd = gyre_descriptor_keep(
            open(beside_out, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
        if (fd >= 0) {
            *fd_out = fd;
            return GYRE_SUCCESS;
        }
        if (errno != EEXIST)
            break;
    }
    return gyre_fail_errno(errno, "cannot make a new file in the folder of %s", target);
}

gyre_status gyre_file_replace(const char *path, const void *bytes, size_t n_bytes)
{
    char target[PATH_MAX], beside[PATH_MAX];
    struct stat there;
    struct rlimit limit;
    int fd = -1;
    /* Past this limit SIGXFSZ ends the process. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        n_bytes > limit.rlim_cur)
        return gyre_fail(GYRE_ERROR_SYSTEM,
                         "%s: File too large: needs %zu bytes, but files may have %llu (ulimit -f)",
                         path, n_bytes, (unsigned long long)limit.rlim_cur);
    GYRE_TRY(gyre_file_to_replace(path, target));
    const bool exists = stat(target, &there) == 0;
    GYRE_TRY(create_beside(target, exists ? there.st_mode & 0777 : 0666, beside, &fd));
    int error = exists && fchmod(fd, there.st_mode & 0777) != 0 ? errno : 0;
    if (error == 0)
        error = gyre_descriptor_write(fd, bytes, n_bytes);
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0 && rename(beside, target) != 0)
        error = errno;
    if (error == 0)
        return GYRE_SUCCESS;
    unlink(beside);
    return gyre_fail_errno(error, "%s", path);
}

gyre_status gyre_file_read_open(int fd, const char *name, size_t max_bytes, char **bytes_out,
                                size_t *n_bytes_out)
{
    char *bytes = NULL;
    size_t n_bytes = 0, capacity_bytes = 0;
    gyre_status status = GYRE_SUCCESS;
    for (;;) {
        if (n_bytes + 1 >= capacity_bytes) {
            capacity_bytes = capacity_bytes == 0 ? FIRST_READ_BYTES : 2 * capacity_bytes;
            char *larger = realloc(bytes, capacity_bytes);
            if (larger == NULL) {
                status = gyre_fail_errno(ENOMEM, "%s", name);
                break;
            }
            bytes = larger;
        }
        const ssize_t n_read = read(fd, bytes + n_bytes, capacity_bytes - 1 - n_bytes);
        if (n_read < 0 && errno == EINTR)
            continue;
        if (n_read < 0)
            status = gyre_fail_errno(errno, "%s", name);
        if (n_read <= 0)
            break;
        n_bytes += (size_t)n_read;
        if (n_bytes > max_bytes) {
            status =
                gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: more than %zu bytes", name, max_bytes);
            break;
        }
    }
    if (status != GYRE_SUCCESS) {
        free(bytes);
        return status;
    }
    bytes[n_bytes] = '\0';
    *bytes_out = bytes;
    if (n_bytes_out != NULL)
        *n_bytes_out = n_bytes;
    return GYRE_SUCCESS;
}

gyre_status gyre_file_read(const char *path, size_t max_bytes, char **bytes_out,
                           size_t *n_bytes_out)
{
    struct stat found;
    /* Without O_NONBLOCK, opening a pipe would wait for a writer. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return gyre_fail_errno(errno, "%s", path);
    gyre_status status = GYRE_SUCCESS;
    if (fstat(fd, &found) != 0)
        status = gyre_fail_errno(errno, "%s", path);
    else if (!S_ISREG(found.st_mode))
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: not a regular file", path);
    else
        status = gyre_file_read_open(fd, path, max_bytes, bytes_out, n_bytes_out);
    close(fd);
    return status;
}

bool gyre_file_expand(const char *name, int rank, char *path_out, size_t path_bytes,
                      bool *names_rank_out)
{
    size_t n_path = 0;
    bool names_rank = false;
    for (const char *at = name; *at != '\0'; at++) {
        char piece[65] = {*at, '\0'};
        const char letter = at[0] != '%' || (at[1] == 'r' && rank < 0) ? '\0' : at[1];
        if (letter == 'h')
            gethostname(piece, sizeof(piece) - 1);
        else if (letter == 'p')
            snprintf(piece, sizeof(piece), "%ld", (long)getpid());
        else if (letter == 'r')
            snprintf(piece, sizeof(piece), "%d", rank);
        names_rank = names_rank || letter == 'p' || letter == 'r';
        at += letter == 'h' || letter == 'p' || letter == 'r' || letter == '%';
        const size_t n_piece = strlen(piece);
        if (n_path + n_piece >= path_bytes)
            return false;
        memcpy(path_out + n_path, piece, n_piece);
        n_path += n_piece;
    }
    path_out[n_path] = '\0';
    if (names_rank_out != NULL)
        *names_rank_out = names_rank;
    return true;
}
