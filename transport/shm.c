/* SPDX-License-Identifier: Apache-2.0
 *
 * A slab is an anonymous file; GPUs that cannot address each other register it.
 */
#include "transport/slab.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/text.h"
#include "core/foundation/device/host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct shm_state {
    int fd; /* the owner's; -1 = an imported slab */
    struct gyre_device *device;
};

GYRE_STATIC_ASSERT(GYRE_SLAB_TOKEN_BYTES == GYRE_SHARED_TOKEN_BYTES,
                   "a slab's token is its file's");

static bool shm_reachable(const struct gyre_params *params, const struct gyre_peer_info *mine,
                          const struct gyre_peer_info *peer, char *why_out, size_t why_bytes)
{
    if (gyre_param_number(params, GYRE_PARAM_SHM_DISABLE) == 1)
        snprintf(why_out, why_bytes, "%s is set",
                 gyre_param_source(params, GYRE_PARAM_SHM_DISABLE));
    else if (mine->host_hash != peer->host_hash)
        snprintf(why_out, why_bytes, "rank %u is on another host (%s)", peer->rank,
                 peer->host_name);
    else if (mine->pid_namespace == 0 || peer->pid_namespace == 0)
        snprintf(why_out, why_bytes, "/proc is not mounted where rank %u runs",
                 mine->pid_namespace == 0 ? mine->rank : peer->rank);
    else if (mine->pid_namespace != peer->pid_namespace)
        snprintf(why_out, why_bytes, "rank %u is in another pid namespace (a container of its own)",
                 peer->rank);
    else {
        /* What shm_import needs. The kernel asks for the same user and group, and closes the
         * descriptors of processes that changed their identity: setuid(), file capabilities,
         * prctl(PR_SET_DUMPABLE). */
        char path[64];
        struct stat stats;
        if (mine->process_id == peer->process_id)
            return true;
        snprintf(path, sizeof(path), "/proc/%u/fd", peer->pid);
        int error = faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) != 0 ? errno : 0;
        snprintf(path, sizeof(path), "/proc/%u/ns/pid", peer->pid);
        if (error == 0 && stat(path, &stats) != 0)
            error = errno;
        if (error == 0)
            return true;
        if (mine->uid != peer->uid)
            snprintf(why_out, why_bytes, "rank %u (pid %u) runs as user %u, this rank as user %u",
                     peer->rank, peer->pid, peer->uid, mine->uid);
        else
            snprintf(why_out, why_bytes,
                     "this rank may not open descriptors of rank %u (pid %u): %s", peer->rank,
                     peer->pid, gyre_text_error(error));
    }
    return false;
}

/* The mapping then owns base and fd. */
static gyre_status finish_mapping(const struct gyre_transport_config *config, void *base,
                                  size_t n_bytes, int fd, struct gyre_slab_mapping *mapping_out)
{
    struct gyre_device *device = config->device;
    struct shm_state *state = malloc(sizeof(*state));
    if (state == NULL)
        return gyre_fail_errno(ENOMEM, "shared memory");
    const gyre_status status = device->ops->host_register(device, base, n_bytes);
    if (status != GYRE_SUCCESS) {
        free(state);
        return status;
    }
    *state = (struct shm_state){fd, device};
    *mapping_out = (struct gyre_slab_mapping){base, n_bytes, state};
    return GYRE_SUCCESS;
}

static gyre_status shm_alloc(const struct gyre_transport_config *config, size_t n_bytes,
                             struct gyre_slab_handle *handle, struct gyre_slab_mapping *mapping_out)
{
    const int fd = gyre_descriptor_keep(memfd_create("gyre", MFD_CLOEXEC));
    if (fd < 0)
        return gyre_fail_errno(errno, "shared memory: memfd_create for %zu bytes", n_bytes);
    gyre_status status;
    /* A missing page would later end the process by SIGBUS, and a file past this limit by SIGXFSZ.
     */
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        n_bytes > limit.rlim_cur) {
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY,
                           "shared memory: needs %zu bytes, but files may have %llu (ulimit -f); "
                           "raise it, or lower GYRE_BUFFSIZE or GYRE_MAX_NCHANNELS",
                           n_bytes, (unsigned long long)limit.rlim_cur);
        goto close_fd;
    }
    int error;
    do
        error = posix_fallocate(fd, 0, (off_t)n_bytes);
    while (error == EINTR);
    if (error == ENOSPC || error == ENOMEM) {
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY,
                           "shared memory: %zu bytes are not to be had (errno %d); free memory, or "
                           "lower GYRE_BUFFSIZE or GYRE_MAX_NCHANNELS",
                           n_bytes, error);
        goto close_fd;
    }
    if (error != 0) {
        status = gyre_fail_errno(error, "shared memory: posix_fallocate(%zu bytes)", n_bytes);
        goto close_fd;
    }
    void *base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        status = gyre_fail_errno(errno, "shared memory: mmap(%zu bytes)", n_bytes);
        goto close_fd;
    }
    struct gyre_shared_file_header header = {.n_bytes = n_bytes};
    memcpy(header.token, handle->token, sizeof(header.token));
    memcpy(base, &header, sizeof(header));
    memcpy(handle->bytes, &fd, sizeof(fd)); /* of this process */
    GYRE_TRY_GOTO(status, finish_mapping(config, base, n_bytes, fd, mapping_out), unmap);
    return GYRE_SUCCESS;

unmap:
    munmap(base, n_bytes);
close_fd:
    close(fd);
    return status;
}

static gyre_status shm_import(const struct gyre_transport_config *config,
                              const struct gyre_peer_info *peer,
                              const struct gyre_slab_handle *handle, size_t n_bytes,
                              struct gyre_slab_mapping *mapping_out)
{
    int fd;
    void *base = NULL;
    memcpy(&fd, handle->bytes, sizeof(fd));
    struct gyre_shared_file file = {.n_bytes = n_bytes, .fd = fd, .pid = peer->pid};
    memcpy(file.token, handle->token, sizeof(file.token));
    GYRE_TRY(gyre_shared_file_map(&file, &base));
    const gyre_status status = finish_mapping(config, base, n_bytes, -1, mapping_out);
    if (status != GYRE_SUCCESS)
        munmap(base, n_bytes);
    return status;
}

static void shm_release(struct gyre_slab_mapping *mapping)
{
    struct shm_state *state = mapping->state;
    state->device->ops->host_unregister(state->device, mapping->base);
    munmap(mapping->base, mapping->n_bytes);
    if (state->fd >= 0)
        close(state->fd);
    free(state);
    memset(mapping, 0, sizeof(*mapping));
}

static const char *shm_describe(const struct gyre_peer_info *mine,
                                const struct gyre_peer_info *peer)
{
    (void)mine;
    (void)peer;
    return "SHM";
}

static const struct gyre_slab_memory_ops memory_memfd = {
    .reachable = shm_reachable,
    .alloc = shm_alloc,
    .import = shm_import,
    .release = shm_release,
    .describe = shm_describe,
};

static gyre_status shm_open_slab(const struct gyre_transport_config *config,
                                 struct gyre_transport **transport_out, void **blob_out,
                                 size_t *blob_bytes_out)
{
    return gyre_slab_open(&gyre_transport_shm, &memory_memfd, config, transport_out, blob_out,
                          blob_bytes_out);
}

const struct gyre_transport_ops gyre_transport_shm = {
    .name = "shm",
    .reachable = shm_reachable,
    .open = shm_open_slab,
    .connect = gyre_slab_connect,
    .describe = gyre_slab_describe,
    .memory_bytes = gyre_slab_memory_bytes,
    .takes_lines = gyre_transport_no_lines,
    .measure = gyre_transport_no_wire,
    .take_state = gyre_transport_no_state,
    .wake = gyre_slab_wake,
    .help = gyre_slab_help,
    .close = gyre_slab_close,
};
