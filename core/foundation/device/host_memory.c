/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/device/host_memory.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

struct allocation {
    struct allocation *next;
    unsigned char *base; /* the file's; or so far before heap memory */
    struct gyre_shared_file file;
    void *ordinary; /* on the heap; NULL = a file */
    bool is_owned;  /* not freed by the user; false for other processes' files */
    bool is_imported;
    uint32_t n_users;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *first; /* under the lock */

GYRE_WATCH_FORKS(&lock, NULL)

static bool make_file(struct allocation *made, size_t n_bytes)
{
    const long n_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    struct rlimit size = {RLIM_INFINITY, 0}, files = {RLIM_INFINITY, 0};
    struct gyre_shared_file_header header = {.n_bytes = n_bytes};
    (void)getrlimit(RLIMIT_FSIZE, &size);
    (void)getrlimit(RLIMIT_NOFILE, &files);
    /* Past the limit the kernel sends SIGXFSZ. A file reserves nothing: too large a size is
     * refused. */
    if ((n_pages > 0 && page_bytes > 0 && n_bytes / (size_t)page_bytes > (size_t)n_pages) ||
        (size.rlim_cur != RLIM_INFINITY && n_bytes > size.rlim_cur))
        return false;
    const int fd = gyre_descriptor_keep(memfd_create("gyre", MFD_CLOEXEC));
    if (fd < 0)
        return false;
    void *base = MAP_FAILED;
    /* Memory leaves half of the descriptors for sockets. */
    if ((files.rlim_cur == RLIM_INFINITY || (rlim_t)fd < files.rlim_cur / 2) &&
        gyre_random_bytes(header.token, sizeof(header.token)) == GYRE_SUCCESS &&
        ftruncate(fd, (off_t)n_bytes) == 0)
        base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        close(fd);
        return false;
    }
    memcpy(base, &header, sizeof(header));
    made->base = base;
    made->file.fd = fd;
    made->file.n_bytes = n_bytes;
    memcpy(made->file.token, header.token, sizeof(header.token));
    return true;
}

gyre_status gyre_host_memory_alloc(size_t n_bytes, void **ptr_out)
{
    if (n_bytes > SIZE_MAX - 2 * GYRE_HOST_MEMORY_OFFSET_BYTES)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory",
                         n_bytes);
    const size_t n_rounded =
        (size_t)gyre_round_up(n_bytes == 0 ? 1 : n_bytes, GYRE_HOST_MEMORY_OFFSET_BYTES);
    struct allocation *made = calloc(1, sizeof(*made));
    if (made != NULL && !make_file(made, n_rounded + GYRE_HOST_MEMORY_OFFSET_BYTES)) {
        made->ordinary = aligned_alloc(GYRE_HOST_MEMORY_OFFSET_BYTES, n_rounded);
        if (made->ordinary != NULL)
            made->base = (unsigned char *)made->ordinary - GYRE_HOST_MEMORY_OFFSET_BYTES;
    }
    if (made == NULL || made->base == NULL) {
        free(made);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory",
                         n_bytes);
    }
    made->is_owned = true;
    made->n_users = 1;
    *ptr_out = made->base + GYRE_HOST_MEMORY_OFFSET_BYTES;
    GYRE_LOCKED(&lock);
    made->next = first;
    first = made;
    return GYRE_SUCCESS;
}

/* A user of the file there. False = no file. */
static bool drop_user(uintptr_t base, bool is_owner)
{
    pthread_mutex_lock(&lock);
    struct allocation **link = &first;
    while (*link != NULL && ((uintptr_t)(*link)->base != base || (is_owner && !(*link)->is_owned)))
        link = &(*link)->next;
    struct allocation *found = *link;
    const bool is_last = found != NULL && --found->n_users == 0;
    if (found != NULL && is_owner)
        found->is_owned = false;
    if (is_last)
        *link = found->next;
    pthread_mutex_unlock(&lock);
    if (is_last && found->ordinary != NULL) {
        free(found->ordinary);
    } else if (is_last) {
        munmap(found->base, (size_t)found->file.n_bytes);
        if (!found->is_imported)
            close(found->file.fd);
    }
    const bool was_found = found != NULL;
    if (is_last)
        free(found);
    return was_found;
}

gyre_status gyre_host_memory_free(void *ptr)
{
    if (ptr == NULL || drop_user((uintptr_t)ptr - GYRE_HOST_MEMORY_OFFSET_BYTES, true))
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                     "mem_free: %p was not allocated by gyre_mem_alloc on the host, or was freed "
                     "before",
                     ptr);
}

bool gyre_host_memory_find(const void *ptr, struct gyre_shared_file *file_out,
                           uint64_t *offset_bytes_out)
{
    const uintptr_t address = (uintptr_t)ptr;
    GYRE_LOCKED(&lock);
    const struct allocation *at = first;
    while (at != NULL &&
           (address < (uintptr_t)at->base || address - (uintptr_t)at->base >= at->file.n_bytes ||
            at->is_imported || at->ordinary != NULL))
        at = at->next;
    if (at != NULL) {
        *file_out = at->file;
        file_out->pid = (uint32_t)getpid();
        *offset_bytes_out = address - (uintptr_t)at->base;
    }
    return at != NULL;
}

gyre_status gyre_host_memory_acquire(const struct gyre_shared_file *file, bool is_own,
                                     void **base_out)
{
    gyre_status status = GYRE_SUCCESS;
    GYRE_LOCKED(&lock);
    struct allocation *at = first;
    while (at != NULL &&
           (at->ordinary != NULL || memcmp(at->file.token, file->token, sizeof(file->token)) != 0))
        at = at->next;
    if (at == NULL && is_own) {
        status = gyre_fail(GYRE_ERROR_REMOTE, "the memory was freed in the meantime");
    } else if (at == NULL) {
        void *base = NULL;
        at = calloc(1, sizeof(*at));
        status = at == NULL ? gyre_fail_errno(ENOMEM, "memory of another process")
                            : gyre_shared_file_map(file, &base);
        if (status == GYRE_SUCCESS) {
            *at = (struct allocation){
                .next = first, .base = base, .file = *file, .is_imported = true};
            first = at;
        } else {
            free(at);
        }
    }
    if (status == GYRE_SUCCESS) {
        at->n_users++;
        *base_out = at->base;
    }
    return status;
}

void gyre_host_memory_release(void *base)
{
    (void)drop_user((uintptr_t)base, false);
}

gyre_status gyre_shared_file_map(const struct gyre_shared_file *file, void **base_out)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%u/fd/%d", file->pid, file->fd);
    const int fd = gyre_descriptor_keep(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd < 0 && errno == ENOENT)
        return gyre_fail(GYRE_ERROR_REMOTE, "%s is gone: the process has ended", path);
    if (fd < 0)
        return gyre_fail_errno(errno, "open(%s) (same user and pid namespace needed)", path);
    const size_t n_bytes = (size_t)file->n_bytes;
    struct gyre_shared_file_header header;
    struct stat stats;
    void *base = MAP_FAILED;
    gyre_status status = GYRE_SUCCESS;
    if (fstat(fd, &stats) != 0)
        status = gyre_fail_errno(errno, "fstat(%s)", path);
    else if (!S_ISREG(stats.st_mode) || (uint64_t)stats.st_size != n_bytes ||
             n_bytes < sizeof(header))
        status =
            gyre_fail(GYRE_ERROR_REMOTE, "%s is not its memory of %zu bytes: the process has ended",
                      path, n_bytes);
    else if ((base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
        status = gyre_fail_errno(errno, "mmap(%s, %zu bytes)", path, n_bytes);
    close(fd);
    GYRE_TRY(status);
    memcpy(&header, base, sizeof(header));
    if (header.n_bytes != n_bytes || memcmp(header.token, file->token, sizeof(header.token)) != 0) {
        munmap(base, n_bytes);
        return gyre_fail(GYRE_ERROR_REMOTE,
                         "%s does not carry its token: another process has its pid now", path);
    }
    *base_out = base;
    return status;
}
