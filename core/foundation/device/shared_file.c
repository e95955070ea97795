/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps anonymous files of other processes (core/foundation/device/shared_file.h).
 */
#include "core/foundation/device/shared_file.h"

#include "core/foundation/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Map the opened file if it is the one that the token names. */
static gyre_status map_checked(int fd, const char *path, const struct gyre_shared_file *file,
                               void **base_out)
{
    const size_t n_bytes = (size_t)file->n_bytes;
    struct stat stats;
    if (fstat(fd, &stats) != 0)
        return gyre_fail_errno(errno, "fstat(%s)", path);
    if (!S_ISREG(stats.st_mode) || (uint64_t)stats.st_size != n_bytes ||
        n_bytes < sizeof(struct gyre_shared_file_header))
        return gyre_fail(GYRE_ERROR_REMOTE,
                         "%s is not its memory of %zu bytes: the process has ended", path, n_bytes);
    void *base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return gyre_fail_errno(errno, "mmap(%s, %zu bytes)", path, n_bytes);
    struct gyre_shared_file_header header;
    memcpy(&header, base, sizeof(header));
    if (header.n_bytes != n_bytes || memcmp(header.token, file->token, sizeof(header.token)) != 0) {
        munmap(base, n_bytes);
        return gyre_fail(GYRE_ERROR_REMOTE,
                         "%s does not carry its token: another process has its pid now", path);
    }
    *base_out = base;
    return GYRE_SUCCESS;
}

gyre_status gyre_shared_file_map(const struct gyre_shared_file *file, void **base_out)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%u/fd/%d", file->pid, file->fd);
    /* Should the pid be somebody else's now, this may be a pipe or a device: never wait for it. */
    const int fd = gyre_descriptor_keep(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd < 0 && errno == ENOENT)
        return gyre_fail(GYRE_ERROR_REMOTE, "%s is gone: the process has ended", path);
    if (fd < 0)
        return gyre_fail_errno(errno, "open(%s) (same user and pid namespace needed)", path);
    const gyre_status status = map_checked(fd, path, file, base_out);
    close(fd); /* the mapping holds the memory */
    return status;
}
