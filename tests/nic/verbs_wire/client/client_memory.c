/* SPDX-License-Identifier: Apache-2.0
 *
 * A region is an entry of the job's file, where peers look its key up.
 */
#include "tests/nic/verbs_wire/client/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    if (!wire_gpu_describe(range->base, range->n_bytes, &place))
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
    else if (wire_gpu_takes("peermem"))
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
    errno = wire_gpu_takes("dmabuf") ? EINVAL : EOPNOTSUPP;
    if (errno == EOPNOTSUPP || n_bytes == 0 || !wire_gpu_is_dmabuf(fd, offset + n_bytes))
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
