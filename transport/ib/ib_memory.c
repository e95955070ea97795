/* SPDX-License-Identifier: Apache-2.0
 *
 * Sides of FIFOs, with slots in GPU memory if the NIC reaches it; `recv_words`, which peers write
 * besides slots; `staging`, which only this NIC reads. dlopen() finds the function that exports a
 * dma-buf, because this folder may not include CUDA headers.
 */
#include "transport/ib/ib_transport.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/util.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *const gdr_names[] = {"none", "dma-buf", "peermem"};

/* CUDA: CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD. */
#define RANGE_HANDLE_DMA_BUF 1
#define GPU_PAGE_BYTES       65536 /* dma-buf ranges are whole pages */

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

static struct ibv_mr *register_dmabuf(const struct gyre_ib_mr_request *request, int access)
{
    get_handle_fn export = NULL;
    int fd = -1;
    /* libcuda stays loaded: dlopen() counts its calls. */
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *function = library != NULL ? dlsym(library, "cuMemGetHandleForAddressRange") : NULL;
    memcpy(&export, &function, sizeof(export));
    if (export == NULL || request->verbs->reg_dmabuf_mr == NULL) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    const uintptr_t address = (uintptr_t)request->base;
    const uintptr_t start = address / GPU_PAGE_BYTES * GPU_PAGE_BYTES;
    const size_t n_bytes =
        (size_t)gyre_round_up(address + request->n_bytes - start, GPU_PAGE_BYTES);
    if (export(&fd, start, n_bytes, RANGE_HANDLE_DMA_BUF, 0) != 0 || fd < 0) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct ibv_mr *mr = request->verbs->reg_dmabuf_mr(request->pd, address - start,
                                                      request->n_bytes, address, fd, access);
    const int error = errno;
    close(fd); /* the region holds its own */
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

static enum gyre_ib_gdr probe_gdr(const struct gyre_verbs *verbs, struct ibv_pd *pd,
                                  struct gyre_device *device, char *why_out, size_t why_bytes)
{
    static const enum gyre_ib_gdr ways[] = {GYRE_IB_GDR_DMABUF, GYRE_IB_GDR_PEERMEM};
    void *page = NULL;
    enum gyre_ib_gdr found = GYRE_IB_GDR_NONE;
    int errors[2] = {0, 0};
    why_out[0] = '\0';
    if (device->ops->mem_alloc(device, GPU_PAGE_BYTES, &page) != GYRE_SUCCESS) {
        snprintf(why_out, why_bytes, "no GPU memory for the trial: %s", gyre_cause());
        return found;
    }
    for (int i = 0; i < 2 && found == GYRE_IB_GDR_NONE; i++) {
        struct ibv_mr *mr = NULL;
        const struct gyre_ib_mr_request request = {.verbs = verbs,
                                                   .pd = pd,
                                                   .base = page,
                                                   .n_bytes = GPU_PAGE_BYTES,
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

#define PAGE_BYTES 4096

/* Older GPUs may see the tail before data that a NIC wrote earlier (ib_path.c). */
#define FIRST_ARCH_WITHOUT_FENCE 90

enum { ALWAYS = 1, BY_DEVICE = 2 };

static gyre_status choose_gdr(struct gyre_ib_transport *ib)
{
    const struct gyre_params *params = ib->config.params;
    struct gyre_device *device = ib->config.device;
    const char *level = gyre_param_text(params, GYRE_PARAM_NET_GDR_LEVEL);
    enum gyre_ib_distance farthest = GYRE_IB_DISTANCE_PXB;
    struct gyre_device_info info;
    char why[240] = "";
    const int64_t asked = gyre_param_number(params, GYRE_PARAM_NET_GDR_FENCE);
    gyre_status status = GYRE_SUCCESS;
    if (level[0] != '\0')
        status = gyre_ib_parse_distance(level, &farthest);
    if (status != GYRE_SUCCESS)
        gyre_fail_context(status, "%s", gyre_param_called(params, GYRE_PARAM_NET_GDR_LEVEL));
    GYRE_TRY(gyre_param_forgive(params, GYRE_PARAM_NET_GDR_LEVEL, status));
    ib->fence.is_needed = asked == ALWAYS;
    GYRE_TRY(device->ops->info(device, &info));
    if (info.kind != GYRE_DEVICE_CUDA)
        return GYRE_SUCCESS;
    char gpu_path[256];
    int gpu_node;
    gyre_ib_pci_path(info.pci_bus_id, gpu_path, sizeof(gpu_path), &gpu_node);
    const struct gyre_ib_port *port = &ib->rails[0].port;
    const enum gyre_ib_distance distance =
        gyre_ib_distance(gpu_path, gpu_node, port->pci_path, port->numa_node);
    enum gyre_ib_gdr found = GYRE_IB_GDR_NONE;
    if (distance > farthest)
        snprintf(why, sizeof(why), "GPU and NIC are %s apart, allowed is %s (%s)",
                 gyre_ib_distance_names[distance], gyre_ib_distance_names[farthest],
                 gyre_param_called(params, GYRE_PARAM_NET_GDR_LEVEL));
    else
        found = probe_gdr(ib->verbs, ib->rails[0].pd, device, why, sizeof(why));
    ib->recv_gdr = found;
    if (asked == BY_DEVICE)
        ib->fence.is_needed = found != GYRE_IB_GDR_NONE && info.arch < FIRST_ARCH_WITHOUT_FENCE;
    /* NICs read memory of all GPUs that come here fast. */
    ib->send_gdr =
        gyre_param_number(params, GYRE_PARAM_NET_GDR_READ) == 0 ? GYRE_IB_GDR_NONE : found;
    if (found == GYRE_IB_GDR_NONE)
        GYRE_WARN("NET/IB : %s: no GPUDirect RDMA, staging in host memory: %s", port->name, why);
    else
        GYRE_INFO(NET, "NET/IB : %s: GPUDirect RDMA by %s, read %s, received slots are %s",
                  port->name, gdr_names[found], ib->send_gdr != GYRE_IB_GDR_NONE ? "on" : "off",
                  ib->fence.is_needed ? "fenced by a read through the NIC" : "given on at once");
    return GYRE_SUCCESS;
}

static gyre_status alloc_fifos(struct gyre_ib_transport *ib)
{
    const uint32_t n = ib->n_fifos;
    const bool send_on_gpu = ib->send_gdr != GYRE_IB_GDR_NONE;
    const bool recv_on_gpu = ib->recv_gdr != GYRE_IB_GDR_NONE;
    ib->fifos = calloc(2 * (size_t)n, sizeof(*ib->fifos));
    if (ib->fifos == NULL)
        return gyre_fail_errno(ENOMEM, "%u FIFOs", 2 * n);
    uint32_t at = 0;
    for (int i = 0; i < ib->config.n_peers; i++)
        for (uint32_t fifo = 0; fifo < ib->peers[i].size.n_fifos; fifo++, at++) {
            const uint32_t slot_bytes = ib->peers[i].size.slot_bytes;
            ib->fifos[at] = (struct gyre_proxy_fifo){.slot_bytes = send_on_gpu ? 0 : slot_bytes,
                                                     .depth = ib->send_depth};
            ib->fifos[n + at] = (struct gyre_proxy_fifo){.slot_bytes = recv_on_gpu ? 0 : slot_bytes,
                                                         .depth = ib->config.spec.depth};
        }
    GYRE_TRY(gyre_proxy_fifos_alloc(ib->config.device, ib->fifos, 2 * n, &ib->fifo_memory,
                                    &ib->fifo_bytes));
    ib->gpu_bytes =
        (recv_on_gpu ? ib->recv_slots_bytes : 0) + (send_on_gpu ? ib->send_slots_bytes : 0);
    if (ib->gpu_bytes > 0)
        GYRE_TRY(
            ib->config.device->ops->pool_alloc(ib->config.device, ib->gpu_bytes, &ib->gpu_memory));
    unsigned char *on_gpu = ib->gpu_memory;
    ib->recv_slots = recv_on_gpu ? on_gpu : ib->fifos[n].slots;
    ib->send_slots = !send_on_gpu  ? ib->fifos[0].slots
                     : recv_on_gpu ? on_gpu + ib->recv_slots_bytes
                                   : on_gpu;
    /* One direction is one region, in which the peer finds its FIFOs by their distance. */
    unsigned char *send_at = ib->send_slots, *recv_at = ib->recv_slots;
    at = 0;
    for (int i = 0; i < ib->config.n_peers; i++)
        for (uint32_t fifo = 0; fifo < ib->peers[i].size.n_fifos; fifo++, at++) {
            struct gyre_proxy_fifo *send = &ib->fifos[at], *recv = &ib->fifos[n + at];
            send->slots = send_at;
            recv->slots = recv_at;
            send->slot_bytes = recv->slot_bytes = ib->peers[i].size.slot_bytes;
            send_at += ib->peers[i].send_stride;
            recv_at += ib->peers[i].slots_stride;
        }
    return GYRE_SUCCESS;
}

static gyre_status alloc_pages(size_t n_bytes, void **memory_out)
{
    void *memory = aligned_alloc(PAGE_BYTES, n_bytes);
    if (memory == NULL)
        return gyre_fail_errno(ENOMEM, "%zu bytes of control memory", n_bytes);
    memset(memory, 0, n_bytes);
    *memory_out = memory;
    return GYRE_SUCCESS;
}

static bool is_on_gpu(const struct gyre_ib_transport *ib)
{
    return ib->config.infos[ib->config.rank].device.kind == GYRE_DEVICE_CUDA;
}

/* Zeroed: no flag is 0. Lines to send are in host memory, because the proxy may have to clean them,
 * and the others in GPU memory. If the NIC does not reach that, there are no lines. */
static gyre_status alloc_lines(struct gyre_ib_transport *ib)
{
    struct gyre_device *device = ib->config.device;
    if (is_on_gpu(ib) && ib->recv_gdr == GYRE_IB_GDR_NONE)
        ib->line_stride = ib->send_line_stride = 0;
    ib->send_lines_bytes = gyre_round_up(ib->n_fifos * ib->send_line_stride, PAGE_BYTES);
    ib->recv_lines_bytes = gyre_round_up(ib->n_fifos * ib->line_stride, PAGE_BYTES);
    void *memory = NULL;
    if (ib->line_stride == 0)
        return GYRE_SUCCESS;
    if (!is_on_gpu(ib)) {
        GYRE_TRY(alloc_pages(ib->send_lines_bytes, &memory));
        ib->send_lines = memory;
        GYRE_TRY(alloc_pages(ib->recv_lines_bytes, &memory));
        ib->recv_lines = memory;
        return GYRE_SUCCESS;
    }
    GYRE_TRY(device->ops->host_alloc(device, ib->send_lines_bytes, &memory));
    ib->send_lines = memory;
    memset(memory, 0, ib->send_lines_bytes);
    GYRE_TRY(device->ops->pool_alloc(device, ib->recv_lines_bytes, &memory));
    ib->recv_lines = memory;
    return device->ops->zero(device, memory, ib->recv_lines_bytes);
}

static gyre_status register_rail(struct gyre_ib_transport *ib, struct gyre_ib_rail *rail)
{
    const bool may_relax =
        gyre_param_number(ib->config.params, GYRE_PARAM_IB_PCI_RELAXED_ORDERING) != 0;
    const enum gyre_ib_gdr on_host = GYRE_IB_GDR_NONE;
    const struct {
        struct ibv_mr **mr_out;
        void *base; /* NULL = there are no lines */
        size_t n_bytes;
        bool remote_write;
        bool relaxed;
        enum gyre_ib_gdr gdr;
    } regions[] = {
        {&rail->recv_words, ib->recv_words, ib->recv_words_bytes, true, false, on_host},
        /* Any order is right: each half of a line has a flag. */
        {&rail->send_lines, ib->send_lines, ib->send_lines_bytes, false, true, on_host},
        {&rail->recv_lines, ib->recv_lines, ib->recv_lines_bytes, true, true, ib->recv_gdr},
        {&rail->recv_slots, ib->recv_slots, ib->recv_slots_bytes, true, true, ib->recv_gdr},
        {&rail->send_slots, ib->send_slots, ib->send_slots_bytes, false, true, ib->send_gdr},
        {&rail->staging, ib->staging, ib->staging_bytes, false, false, on_host},
    };
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(regions); i++) {
        const struct gyre_ib_mr_request request = {
            .verbs = ib->verbs,
            .pd = rail->pd,
            .base = regions[i].base,
            .n_bytes = regions[i].n_bytes,
            .remote_write = regions[i].remote_write,
            .remote_read = ib->fence.is_needed && regions[i].mr_out == &rail->recv_slots,
            .relaxed_ordering = may_relax && regions[i].relaxed,
            .gdr = regions[i].gdr,
        };
        if (request.base != NULL)
            GYRE_TRY(gyre_ib_mr_register(&request, regions[i].mr_out));
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_ib_memory_open(struct gyre_ib_transport *ib)
{
    GYRE_TRY(choose_gdr(ib));
    GYRE_TRY(alloc_fifos(ib));
    const size_t n = ib->n_fifos;
    const size_t n_slots = n * ib->config.spec.depth;
    ib->recv_words_bytes = gyre_round_up(
        n_slots * sizeof(struct gyre_ib_box) + 2 * n * 8 + sizeof(uint64_t), PAGE_BYTES);
    ib->staging_bytes =
        gyre_round_up(n * ib->send_depth * sizeof(struct gyre_ib_label) + 2 * n * 8, PAGE_BYTES);
    GYRE_TRY(alloc_pages(ib->recv_words_bytes, &ib->recv_words));
    GYRE_TRY(alloc_pages(ib->staging_bytes, &ib->staging));
    GYRE_TRY(alloc_lines(ib));
    for (int i = 0; i < ib->n_rails; i++) {
        const gyre_status status = register_rail(ib, &ib->rails[i]);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "NET/IB %s", ib->rails[i].port.name);
    }
    struct gyre_ib_box *boxes = ib->recv_words;
    uint64_t *credits = (uint64_t *)(void *)(boxes + n_slots);
    struct gyre_ib_label *labels = ib->staging;
    uint64_t *heads = (uint64_t *)(void *)(labels + n * ib->send_depth);
    ib->sends = calloc(n, sizeof(*ib->sends));
    ib->recvs = calloc(n, sizeof(*ib->recvs));
    if (ib->sends == NULL || ib->recvs == NULL)
        return gyre_fail_errno(ENOMEM, "ib: %zu FIFOs", n);
    for (size_t i = 0; i < n; i++) {
        ib->sends[i].fifo = ib->fifos[i];
        ib->sends[i].labels = labels + i * ib->send_depth;
        ib->recvs[i].fifo = ib->fifos[n + i];
        ib->recvs[i].head = heads + i;
        ib->recvs[i].boxes = boxes + i * ib->config.spec.depth;
        if (ib->recv_lines == NULL)
            continue;
        ib->sends[i].lines.slots = ib->send_lines + i * ib->send_line_stride;
        ib->recvs[i].lines.slots = ib->recv_lines + i * ib->line_stride;
        ib->recvs[i].lines.head = heads + n + i;
    }
    for (int i = 0, at = 0; i < ib->config.n_peers; at += (int)ib->peers[i++].size.n_fifos) {
        ib->peers[i].sends = ib->sends + at;
        ib->peers[i].recvs = ib->recvs + at;
        ib->peers[i].credit_words = credits + 2 * at;
    }
    return GYRE_SUCCESS;
}

void gyre_ib_memory_close(struct gyre_ib_transport *ib)
{
    struct gyre_device *device = ib->config.device;
    for (int i = 0; i < ib->n_rails; i++) {
        struct gyre_ib_rail *rail = &ib->rails[i];
        struct ibv_mr *const regions[] = {rail->recv_words, rail->recv_slots, rail->send_slots,
                                          rail->staging,    rail->recv_lines, rail->send_lines};
        for (size_t j = 0; j < GYRE_ARRAY_LENGTH(regions); j++)
            if (regions[j] != NULL)
                ib->verbs->dereg_mr(regions[j]);
    }
    if (ib->gpu_memory != NULL)
        device->ops->pool_free(device, ib->gpu_memory);
    if (ib->fifo_memory != NULL)
        device->ops->host_free(device, ib->fifo_memory);
    free(ib->recv_words);
    free(ib->staging);
    if (!is_on_gpu(ib)) {
        free(ib->send_lines);
        free(ib->recv_lines);
    } else {
        if (ib->send_lines != NULL)
            device->ops->host_free(device, ib->send_lines);
        if (ib->recv_lines != NULL)
            device->ops->pool_free(device, ib->recv_lines);
    }
    free(ib->fifos);
    free(ib->sends);
    free(ib->recvs);
}
