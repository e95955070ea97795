/* SPDX-License-Identifier: Apache-2.0
 *
 * Protection domains and regions, and where GPU memory is.
 */
#include "tests/nic/verbs_wire/client/client.h"
#include "tests/nic/verbs_wire/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_GPUS 16

/* CUDA driver API, cuda.h. */
#define MEMORY_TYPE     2
#define DEVICE_ORDINAL  9
#define TYPE_DEVICE     2
#define CAPTURE_RELAXED 2

/* Primary, as the CUDA runtime's. */
static struct {
    void *context;
} gpus[MAX_GPUS]; /* under wire_lock; kept until the process ends */

static void pop(int capture_mode)
{
    void *context;
    (void)WIRE_CU(capture_mode, &capture_mode);
    (void)WIRE_CU(pop, &context);
}

/* Until pop. Another thread may be capturing a graph, which by default forbids such calls in all
 * threads. */
static bool push(int ordinal, int *capture_mode_out)
{
    int device;
    if (ordinal < 0 || ordinal >= MAX_GPUS) {
        wire_say("GPU %d of at most %d", ordinal, MAX_GPUS);
        errno = EINVAL;
        return false;
    }
    if (gpus[ordinal].context == NULL &&
        (!WIRE_CU(device, &device, ordinal) || !WIRE_CU(retain, &gpus[ordinal].context, device)))
        return false;
    *capture_mode_out = CAPTURE_RELAXED;
    if (!WIRE_CU(push, gpus[ordinal].context))
        return false;
    (void)WIRE_CU(capture_mode, capture_mode_out);
    return true;
}

/* Does VERBS_WIRE_GPU allow this way? */
static bool takes_gpu(const char *way)
{
    const char *allowed = getenv("VERBS_WIRE_GPU");
    return strcmp(allowed != NULL ? allowed : "dmabuf", way) == 0;
}

/* Of at least n bytes? False with errno. */
static bool is_dmabuf(int fd, uint64_t n_bytes)
{
    char link[32];
    char target[64];
    struct stat status;
    if (fstat(fd, &status) != 0)
        return false; /* EBADF, as drivers answer */
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    if (strstr(target, "dmabuf") == NULL) {
        wire_say("descriptor %d is %s, not a dma-buf", fd, target);
        errno = EINVAL;
        return false;
    }
    const off_t size = lseek(fd, 0, SEEK_END);
    if (size < 0 || (uint64_t)size < n_bytes) {
        wire_say("dma-buf of %lld bytes, %llu asked for", (long long)size,
                 (unsigned long long)n_bytes);
        errno = EINVAL;
        return false;
    }
    return true;
}

/* False with errno, and says why: no libcuda, not GPU memory, no IPC handle. */
static bool describe_gpu_memory(uint64_t address, uint64_t n_bytes,
                                struct wire_gpu_place *place_out)
{
    unsigned type = 0;
    unsigned long long base = 0;
    size_t size = 0;
    struct wire_ipc_handle handle;
    struct wire_uuid uuid;
    int ordinal = 0;
    int device = 0;
    int capture_mode;
    errno = EFAULT;
    if (wire_gpu_load() == NULL || !WIRE_CU(attribute, &type, MEMORY_TYPE, address) ||
        !WIRE_CU(attribute, &ordinal, DEVICE_ORDINAL, address))
        return false;
    if (type != TYPE_DEVICE) {
        wire_say("memory at 0x%llx is of type %u, not of a GPU", (unsigned long long)address, type);
        errno = EFAULT;
        return false;
    }
    if (!push(ordinal, &capture_mode))
        return false;
    const bool has_handle = WIRE_CU(range, &base, &size, address) &&
                            WIRE_CU(ipc_get, &handle, base) && WIRE_CU(device, &device, ordinal) &&
                            WIRE_CU(uuid, &uuid, device);
    pop(capture_mode);
    if (!has_handle)
        return false;
    if (address - base + n_bytes > size) {
        wire_say("%llu bytes at 0x%llx leave their allocation of %zu bytes at 0x%llx",
                 (unsigned long long)n_bytes, (unsigned long long)address, size, base);
        errno = EFAULT;
        return false;
    }
    memset(place_out, 0, sizeof(*place_out));
    memcpy(place_out->ipc, handle.bytes, sizeof(place_out->ipc));
    memcpy(place_out->uuid, uuid.bytes, sizeof(place_out->uuid));
    place_out->allocation = base;
    place_out->allocation_bytes = size;
    return true;
}

/* Also macros in verbs.h. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct wire_pd *pd = calloc(1, sizeof(*pd));
    pd->ibv.context = context;
    pthread_mutex_lock(&wire_lock);
    pd->number = ++wire.n_pds;
    pthread_mutex_unlock(&wire_lock);
    return &pd->ibv;
}

int ibv_dealloc_pd(struct ibv_pd *ibv)
{
    free(ibv);
    return 0;
}

/* Pinning fails with EFAULT where there are no pages, as in GPU memory. */
static bool is_host_memory(const unsigned char *base, size_t n_bytes)
{
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    /* A system call survives reading it. */
    const bool is_host = write(ends[1], base, 1) == 1 && write(ends[1], base + n_bytes - 1, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return is_host;
}

static struct ibv_mr *publish(struct wire_pd *pd, const struct vm_range *range,
                              const struct wire_gpu_place *gpu)
{
    struct wire_file *file = wire.job.file;
    const int index = wire_claim(&wire.job, file->regions, sizeof(file->regions[0]),
                                 WIRE_MAX_REGIONS, &file->next_region);
    if (index < 0)
        return NULL;
    struct wire_region *region = calloc(1, sizeof(*region));
    struct wire_region_entry *entry = &file->regions[index];
    region->entry = entry;
    entry->pd = pd->number;
    entry->range = *range;
    entry->is_gpu = gpu != NULL;
    if (gpu != NULL)
        entry->gpu = *gpu;
    entry->generation = entry->generation % 0xffff + 1;
    const uint32_t key = entry->generation << WIRE_INDEX_BITS | (uint32_t)index;
    gyre_store_release_u32(&entry->key, key);
    region->ibv = (struct ibv_mr){.context = pd->ibv.context,
                                  .pd = &pd->ibv,
                                  .addr = (void *)(uintptr_t)range->base,
                                  .length = range->n_bytes,
                                  .lkey = key | WIRE_LOCAL_KEY,
                                  .rkey = key};
    return &region->ibv;
}

static struct ibv_mr *register_gpu(struct wire_pd *pd, const struct vm_range *range)
{
    struct wire_gpu_place place;
    if (!describe_gpu_memory(range->base, range->n_bytes, &place))
        return NULL;
    return publish(pd, range, &place);
}

static struct ibv_mr *register_memory(struct ibv_pd *ibv, void *base, size_t n_bytes,
                                      unsigned access)
{
    struct wire_pd *pd = (struct wire_pd *)(void *)ibv;
    const struct vm_range range = {(uintptr_t)base, n_bytes, access};
    struct ibv_mr *mr = NULL;
    errno = EINVAL;
    if (n_bytes == 0 ||
        ((access & IBV_ACCESS_REMOTE_WRITE) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0))
        return NULL;
    const bool is_host = is_host_memory(base, n_bytes);
    pthread_mutex_lock(&wire_lock);
    if (is_host)
        mr = publish(pd, &range, NULL);
    else if (takes_gpu("peermem"))
        mr = register_gpu(pd, &range);
    else
        errno = EFAULT;
    const int error = errno;
    pthread_mutex_unlock(&wire_lock);
    errno = error;
    return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *base, size_t n_bytes, int access)
{
    return register_memory(pd, base, n_bytes, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *base, size_t n_bytes, uint64_t iova,
                                unsigned int access)
{
    if (iova != (uintptr_t)base) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return register_memory(pd, base, n_bytes, access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *base, size_t n_bytes, uint64_t iova,
                               int access)
{
    return ibv_reg_mr_iova2(pd, base, n_bytes, iova, (unsigned)access);
}

/* The descriptor only has to be a dma-buf. The memory is reached by its address, which callers give
 * as the iova. */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *ibv, uint64_t offset, size_t n_bytes, uint64_t iova,
                                 int fd, int access)
{
    const struct vm_range range = {iova, n_bytes, (unsigned)access};
    struct ibv_mr *mr = NULL;
    errno = takes_gpu("dmabuf") ? EINVAL : EOPNOTSUPP;
    if (errno == EOPNOTSUPP || n_bytes == 0 || !is_dmabuf(fd, offset + n_bytes))
        return NULL;
    pthread_mutex_lock(&wire_lock);
    mr = register_gpu((struct wire_pd *)(void *)ibv, &range);
    const int error = errno;
    pthread_mutex_unlock(&wire_lock);
    errno = error;
    return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    struct wire_region *region = (struct wire_region *)(void *)mr;
    struct wire_region_entry *entry = region->entry;
    pthread_mutex_lock(&wire_lock);
    (void)wire_exchange(&entry->key, 0);
    /* A NIC that looked the key up before may still use it. */
    for (struct wire_pair *pair = wire.pairs; pair != NULL; pair = pair->next)
        if (pair->entry->pd == entry->pd)
            wire_wait_left(pair->entry);
    if (entry->is_gpu) {
        gyre_fetch_add_u32(&wire.job.file->n_unregistered, 1);
        wire_wake(wire.nic);
    }
    gyre_store_release_u64(&entry->owner, 0);
    pthread_mutex_unlock(&wire_lock);
    free(region);
    return 0;
}
