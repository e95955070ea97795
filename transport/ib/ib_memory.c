/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a rank's connections: FIFO ends, whose slots are in GPU memory if the NIC reaches
 * it and in pinned memory if not; `landing`, which peers write besides slots; and `staging`, which
 * only this NIC reads. Peers get the keys of `landing` and of the slots that they write, and no
 * others.
 */
#include "transport/ib/ib_transport.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096

/* GPUs before Hopper may see the tail before data that a NIC wrote earlier: they need a read
 * through the NIC before it (ib_fence.c). */
#define FIRST_ARCH_WITHOUT_FENCE 90

/* Values of GYRE_NET_GDR_FENCE. */
enum { ALWAYS = 1, BY_DEVICE = 2 };

/* Choose how NICs reach this rank's slots. If they cannot reach GPU memory, the log says why. */
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
    ib->fence.is_needed = asked == ALWAYS; /* also of host memory, which needs none */
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
        found = gyre_ib_gdr_probe(ib->verbs, ib->rails[0].pd, device, why, sizeof(why));
    ib->recv_gdr = found;
    if (asked == BY_DEVICE)
        ib->fence.is_needed = found != GYRE_IB_GDR_NONE && info.arch < FIRST_ARCH_WITHOUT_FENCE;
    /* On all GPUs for which this line is reached, NICs read GPU memory over PCI as fast as they
     * write it. */
    ib->send_gdr =
        gyre_param_number(params, GYRE_PARAM_NET_GDR_READ) == 0 ? GYRE_IB_GDR_NONE : found;
    if (found == GYRE_IB_GDR_NONE)
        GYRE_WARN("NET/IB : %s: no GPUDirect RDMA, staging in host memory: %s", port->name, why);
    else
        GYRE_INFO(NET, "NET/IB : %s: GPUDirect RDMA by %s, read %s, received slots are %s",
                  port->name, gyre_ib_gdr_names[found],
                  ib->send_gdr != GYRE_IB_GDR_NONE ? "on" : "off",
                  ib->fence.is_needed ? "fenced by a read through the NIC" : "given on at once");
    return GYRE_SUCCESS;
}

/* Compute the addresses of the slots of every FIFO. The slots of one direction are registered as
 * one region. The peer finds the slots of its FIFOs in the region by their distance from each
 * other. */
static gyre_status place_slots(struct gyre_ib_transport *ib)
{
    uint64_t offset_bytes = 0;
    uint32_t at = 0;
    for (int i = 0; i < ib->config.n_peers; i++)
        for (uint32_t fifo = 0; fifo < ib->peers[i].size.n_fifos; fifo++, at++) {
            struct gyre_proxy_fifo *send = &ib->fifos[at], *recv = &ib->fifos[ib->n_fifos + at];
            const struct gyre_proxy_fifo allocated[] = {*send, *recv};
            send->slots = ib->send_slots + offset_bytes;
            recv->slots = ib->recv_slots + offset_bytes;
            if ((allocated[0].slot_bytes > 0 && allocated[0].slots != send->slots) ||
                (allocated[1].slot_bytes > 0 && allocated[1].slots != recv->slots))
                return gyre_fail(GYRE_ERROR_INTERNAL, "slots of FIFO %u are not where expected",
                                 at);
            send->slot_bytes = recv->slot_bytes = ib->peers[i].size.slot_bytes;
            offset_bytes += ib->peers[i].slots_stride;
        }
    return GYRE_SUCCESS;
}

/* Allocate the ends of FIFOs, sends first, then receives. With GPUDirect the slots are in GPU
 * memory. */
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
            ib->fifos[at].slot_bytes = send_on_gpu ? 0 : ib->peers[i].size.slot_bytes;
            ib->fifos[n + at].slot_bytes = recv_on_gpu ? 0 : ib->peers[i].size.slot_bytes;
        }
    GYRE_TRY(gyre_proxy_fifos_alloc(ib->config.device, ib->config.spec.depth, ib->fifos, 2 * n,
                                    &ib->fifo_memory, &ib->fifo_bytes));
    ib->gpu_bytes = ib->one_side_bytes * (recv_on_gpu + send_on_gpu);
    if (ib->gpu_bytes > 0)
        GYRE_TRY(
            ib->config.device->ops->pool_alloc(ib->config.device, ib->gpu_bytes, &ib->gpu_memory));
    unsigned char *on_gpu = ib->gpu_memory;
    ib->recv_slots = recv_on_gpu ? on_gpu : ib->fifos[n].slots;
    ib->send_slots = !send_on_gpu  ? ib->fifos[0].slots
                     : recv_on_gpu ? on_gpu + ib->one_side_bytes
                                   : on_gpu;
    return place_slots(ib);
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

static gyre_status alloc_words(struct gyre_ib_transport *ib)
{
    const size_t n = ib->n_fifos;
    const size_t n_slots = n * ib->config.spec.depth;
    ib->landing_bytes = gyre_round_up(
        n_slots * sizeof(struct gyre_ib_box) + 2 * n * 8 + sizeof(uint64_t), PAGE_BYTES);
    ib->staging_bytes =
        gyre_round_up(n_slots * sizeof(struct gyre_ib_label) + 2 * n * 8, PAGE_BYTES);
    GYRE_TRY(alloc_pages(ib->landing_bytes, &ib->landing));
    return alloc_pages(ib->staging_bytes, &ib->staging);
}

static bool is_on_gpu(const struct gyre_ib_transport *ib)
{
    return ib->config.infos[ib->config.rank].device.kind == GYRE_DEVICE_CUDA;
}

/* Allocate the slots of LL, zeroed: no flag is 0, so no line of fresh memory is valid. Kernels
 * write the lines that they send into host memory, because the proxy may have to clean them, and
 * poll those that they receive in GPU memory. If the NIC does not reach GPU memory there are no
 * lines. */
static gyre_status alloc_lines(struct gyre_ib_transport *ib)
{
    struct gyre_device *device = ib->config.device;
    const size_t n_bytes = gyre_round_up(gyre_ib_lines_bytes(ib), PAGE_BYTES);
    void *memory = NULL;
    if (is_on_gpu(ib) && ib->recv_gdr == GYRE_IB_GDR_NONE)
        ib->line_stride = 0;
    if (ib->line_stride == 0)
        return GYRE_SUCCESS;
    if (!is_on_gpu(ib)) {
        GYRE_TRY(alloc_pages(n_bytes, &memory));
        ib->send_lines = memory;
        GYRE_TRY(alloc_pages(n_bytes, &memory));
        ib->recv_lines = memory;
        return GYRE_SUCCESS;
    }
    GYRE_TRY(device->ops->host_alloc(device, n_bytes, &memory));
    ib->send_lines = memory;
    memset(memory, 0, n_bytes);
    GYRE_TRY(device->ops->pool_alloc(device, n_bytes, &memory));
    ib->recv_lines = memory;
    return device->ops->zero(device, memory, n_bytes);
}

static void free_lines(struct gyre_ib_transport *ib)
{
    struct gyre_device *device = ib->config.device;
    if (!is_on_gpu(ib)) {
        free(ib->send_lines);
        free(ib->recv_lines);
        return;
    }
    if (ib->send_lines != NULL)
        device->ops->host_free(device, ib->send_lines);
    if (ib->recv_lines != NULL)
        device->ops->pool_free(device, ib->recv_lines);
}

static gyre_status register_lines(const struct gyre_ib_transport *ib, struct gyre_ib_rail *rail,
                                  struct gyre_ib_mr_request request)
{
    if (ib->recv_lines == NULL)
        return GYRE_SUCCESS;
    request.base = ib->send_lines;
    request.n_bytes = gyre_round_up(gyre_ib_lines_bytes(ib), PAGE_BYTES);
    request.remote_write = false;
    GYRE_TRY(gyre_ib_mr_register(&request, &rail->send_lines));
    request.base = ib->recv_lines;
    request.remote_write = true;
    request.gdr = ib->recv_gdr;
    return gyre_ib_mr_register(&request, &rail->recv_lines);
}

static gyre_status register_rail(struct gyre_ib_transport *ib, struct gyre_ib_rail *rail)
{
    const bool relaxed =
        gyre_param_number(ib->config.params, GYRE_PARAM_IB_PCI_RELAXED_ORDERING) != 0;
    struct gyre_ib_mr_request request = {.verbs = ib->verbs, .pd = rail->pd};
    request.base = ib->landing;
    request.n_bytes = ib->landing_bytes;
    request.remote_write = true;
    GYRE_TRY(gyre_ib_mr_register(&request, &rail->landing));
    request.base = ib->recv_slots;
    request.n_bytes = ib->one_side_bytes;
    request.relaxed_ordering = relaxed;
    GYRE_TRY(register_lines(ib, rail, request)); /* each half of a line has a flag of its own */
    request.gdr = ib->recv_gdr;
    request.remote_read = ib->fence.is_needed;
    GYRE_TRY(gyre_ib_mr_register(&request, &rail->recv_slots));
    request.remote_read = false;
    request.base = ib->send_slots;
    request.remote_write = false;
    request.gdr = ib->send_gdr;
    GYRE_TRY(gyre_ib_mr_register(&request, &rail->send_slots));
    request.base = ib->staging;
    request.n_bytes = ib->staging_bytes;
    request.relaxed_ordering = false;
    request.gdr = GYRE_IB_GDR_NONE;
    return gyre_ib_mr_register(&request, &rail->staging);
}

gyre_status gyre_ib_memory_open(struct gyre_ib_transport *ib)
{
    GYRE_TRY(choose_gdr(ib));
    GYRE_TRY(alloc_fifos(ib));
    GYRE_TRY(alloc_words(ib));
    GYRE_TRY(alloc_lines(ib));
    for (int i = 0; i < ib->n_rails; i++) {
        const gyre_status status = register_rail(ib, &ib->rails[i]);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "NET/IB %s", ib->rails[i].port.name);
    }
    return GYRE_SUCCESS;
}

void gyre_ib_memory_close(struct gyre_ib_transport *ib)
{
    for (int i = 0; i < ib->n_rails; i++) {
        struct gyre_ib_rail *rail = &ib->rails[i];
        struct ibv_mr *const regions[] = {rail->landing, rail->recv_slots, rail->send_slots,
                                          rail->staging, rail->recv_lines, rail->send_lines};
        for (size_t j = 0; j < GYRE_ARRAY_LENGTH(regions); j++)
            if (regions[j] != NULL)
                ib->verbs->dereg_mr(regions[j]);
    }
    if (ib->gpu_memory != NULL)
        ib->config.device->ops->pool_free(ib->config.device, ib->gpu_memory);
    if (ib->fifo_memory != NULL)
        ib->config.device->ops->host_free(ib->config.device, ib->fifo_memory);
    free(ib->landing);
    free(ib->staging);
    free_lines(ib);
    free(ib->fifos);
}
