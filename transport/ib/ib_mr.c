/* SPDX-License-Identifier: Apache-2.0
 *
 * Registers memory. The one function of libcuda that exports a dma-buf is found by dlopen(),
 * because this folder may not include CUDA headers.
 */
#include "transport/ib/ib_mr.h"

#include "core/foundation/base/util.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

const char *const gyre_ib_gdr_names[] = {"none", "dma-buf", "peermem"};

/* CUDA driver API: CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD. */
#define RANGE_HANDLE_DMA_BUF 1
#define PAGE_BYTES           65536 /* of GPU memory; dma-buf ranges must be whole pages */

typedef int (*get_handle_fn)(void *handle_out, unsigned long long base, size_t n_bytes,
                             int handle_type, unsigned long long flags);

gyre_status gyre_ib_memlock_fail(const char *what, size_t n_bytes)
{
    struct rlimit limit;
    char words[32] = "unlimited";
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        snprintf(words, sizeof(words), "%llu KiB", (unsigned long long)limit.rlim_cur / 1024);
    return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY,
                     "E501 %s(%zu KiB): Cannot allocate memory (errno %d); the memlock limit is "
                     "%s: set \"* - memlock unlimited\" in limits.conf, LimitMEMLOCK=infinity for "
                     "a service (slurmd, sshd), or --ulimit memlock=-1 for docker",
                     what, n_bytes / 1024, ENOMEM, words);
}

/* Find the export function, or NULL. dlopen() counts its calls, so libcuda stays loaded as long as
 * the process uses it. */
static get_handle_fn find_export(void)
{
    get_handle_fn function = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return NULL;
    void *address = dlsym(library, "cuMemGetHandleForAddressRange");
    memcpy(&function, &address, sizeof(function));
    return function;
}

static struct ibv_mr *register_dmabuf(const struct gyre_ib_mr_request *request, int access)
{
    const get_handle_fn export = find_export();
    int fd = -1;
    if (export == NULL || request->verbs->reg_dmabuf_mr == NULL) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    const uintptr_t address = (uintptr_t)request->base;
    const uintptr_t start = address / PAGE_BYTES * PAGE_BYTES;
    const size_t n_bytes = (size_t)gyre_round_up(address + request->n_bytes - start, PAGE_BYTES);
    if (export(&fd, start, n_bytes, RANGE_HANDLE_DMA_BUF, 0) != 0 || fd < 0) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct ibv_mr *mr = request->verbs->reg_dmabuf_mr(request->pd, address - start,
                                                      request->n_bytes, address, fd, access);
    const int error = errno;
    close(fd); /* the region holds its own reference */
    errno = error;
    return mr;
}

gyre_status gyre_ib_mr_register(const struct gyre_ib_mr_request *request, struct ibv_mr **mr_out)
{
    const struct gyre_verbs *verbs = request->verbs;
    int access = request->remote_write ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
    if (request->remote_read)
        access |= IBV_ACCESS_REMOTE_READ;
    struct ibv_mr *mr;
    const bool is_relaxed = request->relaxed_ordering && verbs->reg_mr_iova2 != NULL;
    if (is_relaxed)
        access |= IBV_ACCESS_RELAXED_ORDERING;
    if (request->gdr == GYRE_IB_GDR_DMABUF)
        mr = register_dmabuf(request, access);
    else if (is_relaxed)
        mr = verbs->reg_mr_iova2(request->pd, request->base, request->n_bytes,
                                 (uintptr_t)request->base, (unsigned)access);
    else
        mr = verbs->reg_mr(request->pd, request->base, request->n_bytes, access);
    if (mr == NULL && errno == ENOMEM)
        return gyre_ib_memlock_fail("ibv_reg_mr", request->n_bytes);
    if (mr == NULL)
        return gyre_fail_errno(
            errno, "%s of %zu KiB of %s memory",
            request->gdr == GYRE_IB_GDR_DMABUF ? "ibv_reg_dmabuf_mr" : "ibv_reg_mr",
            request->n_bytes / 1024, request->gdr == GYRE_IB_GDR_NONE ? "host" : "GPU");
    *mr_out = mr;
    return GYRE_SUCCESS;
}

enum gyre_ib_gdr gyre_ib_gdr_probe(const struct gyre_verbs *verbs, struct ibv_pd *pd,
                                   struct gyre_device *device, char *why_out, size_t why_bytes)
{
    static const enum gyre_ib_gdr ways[] = {GYRE_IB_GDR_DMABUF, GYRE_IB_GDR_PEERMEM};
    void *page = NULL;
    enum gyre_ib_gdr found = GYRE_IB_GDR_NONE;
    int errors[2] = {0, 0};
    why_out[0] = '\0';
    if (device->ops->mem_alloc(device, PAGE_BYTES, &page) != GYRE_SUCCESS) {
        snprintf(why_out, why_bytes, "no GPU memory for the trial: %s", gyre_cause());
        return found;
    }
    for (int i = 0; i < 2 && found == GYRE_IB_GDR_NONE; i++) {
        struct ibv_mr *mr = NULL;
        const struct gyre_ib_mr_request request = {.verbs = verbs,
                                                   .pd = pd,
                                                   .base = page,
                                                   .n_bytes = PAGE_BYTES,
                                                   .remote_write = true,
                                                   .gdr = ways[i]};
        errno = 0;
        if (gyre_ib_mr_register(&request, &mr) == GYRE_SUCCESS) {
            verbs->dereg_mr(mr);
            found = ways[i];
        }
        errors[i] = errno;
    }
    device->ops->mem_free(device, page);
    if (found == GYRE_IB_GDR_NONE)
        snprintf(why_out, why_bytes,
                 "E402 ibv_reg_mr(GPU) = %s and dma-buf = %s: load nvidia-peermem or use the open "
                 "kernel driver with a NIC driver that knows dma-buf",
                 strerrorname_np(errors[1]), strerrorname_np(errors[0]));
    return found;
}
