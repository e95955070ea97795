/* SPDX-License-Identifier: Apache-2.0
 *
 * On the host, ranks of p2p are threads of one process.
 */
#include "transport/slab.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static bool threads_reachable(const struct gyre_params *params, const struct gyre_peer_info *mine,
                              const struct gyre_peer_info *peer, char *why_out, size_t why_bytes)
{
    (void)params;
    if (mine->process_id == peer->process_id)
        return true;
    snprintf(why_out, why_bytes, "rank %u is another process", peer->rank);
    return false;
}

static void unmap(void *base, size_t n_bytes)
{
    munmap(base, n_bytes);
}

static gyre_status threads_alloc(const struct gyre_transport_config *config, size_t n_bytes,
                                 struct gyre_slab_handle *handle,
                                 struct gyre_slab_mapping *mapping_out)
{
    (void)config;
    /* Not the device's memory: a slab may outlive the communicator that opened the device. */
    void *base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return gyre_fail_errno(errno, "slots: mmap(%zu bytes)", n_bytes);
    struct gyre_slab_entry *entry;
    const gyre_status status = gyre_slab_registry_add(handle->token, base, n_bytes, unmap, &entry);
    if (status != GYRE_SUCCESS) {
        unmap(base, n_bytes);
        return status;
    }
    *mapping_out = (struct gyre_slab_mapping){base, n_bytes, entry};
    return GYRE_SUCCESS;
}

static gyre_status threads_import(const struct gyre_transport_config *config,
                                  const struct gyre_peer_info *peer,
                                  const struct gyre_slab_handle *handle, size_t n_bytes,
                                  struct gyre_slab_mapping *mapping_out)
{
    (void)config;
    (void)peer;
    struct gyre_slab_entry *entry;
    void *base;
    GYRE_TRY(gyre_slab_registry_acquire(handle->token, n_bytes, &base, &entry));
    *mapping_out = (struct gyre_slab_mapping){base, n_bytes, entry};
    return GYRE_SUCCESS;
}

static void threads_release(struct gyre_slab_mapping *mapping)
{
    gyre_slab_registry_release(mapping->state);
    memset(mapping, 0, sizeof(*mapping));
}

static const char *threads_describe(const struct gyre_peer_info *mine,
                                    const struct gyre_peer_info *peer)
{
    (void)mine;
    (void)peer;
    return "P2P/direct";
}

static const struct gyre_slab_memory_ops memory_threads = {
    .reachable = threads_reachable,
    .alloc = threads_alloc,
    .import = threads_import,
    .release = threads_release,
    .describe = threads_describe,
};

static const struct gyre_slab_memory_ops *memory_of(uint32_t device_kind)
{
    switch (device_kind) {
    case GYRE_DEVICE_HOST:
        return &memory_threads;
#ifdef GYRE_WITH_CUDA
    case GYRE_DEVICE_CUDA:
        return &gyre_slab_memory_cuda;
#endif
    default:
        return NULL;
    }
}

static bool is_near_enough(const struct gyre_params *params, const struct gyre_peer_info *mine,
                           const struct gyre_peer_info *peer, char *why_out, size_t why_bytes)
{
    const char *text = gyre_param_text(params, GYRE_PARAM_P2P_LEVEL);
    enum gyre_topo_level farthest;
    if (text[0] == '\0' || mine->device.kind != GYRE_DEVICE_CUDA)
        return true;
    if (gyre_topo_level_parse(gyre_param_source(params, GYRE_PARAM_P2P_LEVEL), text, &farthest) !=
        GYRE_SUCCESS)
        return true;
    const bool is_known = peer->path_level < GYRE_TOPO_N_LEVELS;
    const enum gyre_topo_level level =
        is_known ? (enum gyre_topo_level)peer->path_level : GYRE_TOPO_SYS;
    if (level <= farthest)
        return true;
    snprintf(why_out, why_bytes, "GPUs %s and %s are %s apart%s, %s allows %s",
             mine->device.pci_bus_id, peer->device.pci_bus_id, gyre_topo_level_name(level),
             is_known ? "" : " (not in the topology)",
             gyre_param_source(params, GYRE_PARAM_P2P_LEVEL), gyre_topo_level_name(farthest));
    return false;
}

static bool p2p_reachable(const struct gyre_params *params, const struct gyre_peer_info *mine,
                          const struct gyre_peer_info *peer, char *why_out, size_t why_bytes)
{
    const struct gyre_slab_memory_ops *memory = memory_of(mine->device.kind);
    if (gyre_param_number(params, GYRE_PARAM_P2P_DISABLE) == 1)
        snprintf(why_out, why_bytes, "%s is set",
                 gyre_param_source(params, GYRE_PARAM_P2P_DISABLE));
    else if (mine->host_hash != peer->host_hash)
        snprintf(why_out, why_bytes, "rank %u is on another host (%s)", peer->rank,
                 peer->host_name);
    else if (mine->device.kind != peer->device.kind)
        snprintf(why_out, why_bytes, "rank %u is on another kind of device", peer->rank);
    else if (!is_near_enough(params, mine, peer, why_out, why_bytes))
        return false;
    else if (memory == NULL)
        snprintf(why_out, why_bytes, "no direct addressing between devices of kind %u",
                 mine->device.kind);
    else
        return memory->reachable(params, mine, peer, why_out, why_bytes);
    return false;
}

static gyre_status p2p_open(const struct gyre_transport_config *config,
                            struct gyre_transport **transport_out, void **blob_out,
                            size_t *blob_bytes_out)
{
    const uint32_t kind = config->infos[config->rank].device.kind;
    const struct gyre_slab_memory_ops *memory = memory_of(kind);
    if (memory == NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "p2p on a device of kind %u", kind);
    return gyre_slab_open(&gyre_transport_p2p, memory, config, transport_out, blob_out,
                          blob_bytes_out);
}

const struct gyre_transport_ops gyre_transport_p2p = {
    .name = "p2p",
    .is_direct = true,
    .reachable = p2p_reachable,
    .open = p2p_open,
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
