/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU memory that peers address directly: slabs are cudaMalloc'ed; ranks of one process find each
 * other's through the registry and enable peer access, other processes map them by cudaIpc. A slab
 * is mapped once per GPU and process and counted, since a second cudaIpcOpenMemHandle of the same
 * handle fails on some drivers.
 */
#include "transport/p2p_memory.h"

#include "core/base/status.h"
#include "core/base/util.h"
#include "core/device/cuda_error.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Allocations that are multiples of this share no page with others: a handle exports whole pages.
 */
#define IPC_PAGE_BYTES (2ULL << 20)

GYRE_STATIC_ASSERT(sizeof(cudaIpcMemHandle_t) <= GYRE_SLAB_HANDLE_BYTES, "travels in the handle");

/* A slab of another process, mapped for one GPU. */
struct import {
    struct import *next;
    uint8_t token[GYRE_SLAB_TOKEN_BYTES];
    int ordinal;
    uint32_t n_users;
    void *base;
};

/* Process-wide, because CUDA's mappings are. */
static pthread_mutex_t imports_lock = PTHREAD_MUTEX_INITIALIZER;
static struct import *imports;

/* What a mapping's `state` points to. */
struct cuda_state {
    struct gyre_slab_entry *entry; /* a slab of this process */
    struct import *import;         /* or of another one */
};

/* The peer's GPU as this process numbers it, or -1 where it is not visible here
 * (CUDA_VISIBLE_DEVICES). */
static int ordinal_here(const struct gyre_peer_info *mine, const struct gyre_peer_info *peer)
{
    int ordinal = -1;
    if (mine->process_id == peer->process_id)
        return peer->device.ordinal;
    if (cudaDeviceGetByPCIBusId(&ordinal, peer->device.pci_bus_id) == cudaSuccess)
        return ordinal;
    (void)cudaGetLastError();
    return -1;
}

bool gyre_p2p_cuda_has_native_atomics(const struct gyre_peer_info *mine,
                                      const struct gyre_peer_info *peer)
{
    int value = 0;
    const int ordinal = ordinal_here(mine, peer);
    if (ordinal < 0 || ordinal == mine->device.ordinal)
        return false;
    if (cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrNativeAtomicSupported, mine->device.ordinal,
                                  ordinal) != cudaSuccess)
        (void)cudaGetLastError();
    return value != 0;
}

static bool cuda_reachable(const struct gyre_params *params, const struct gyre_peer_info *mine,
                           const struct gyre_peer_info *peer, char *why_out, size_t why_bytes)
{
    int can_access = 0;
    (void)params;
    const int ordinal = ordinal_here(mine, peer);
    /* A GPU that is hidden from this process cannot be asked about, but can be mapped by IPC. */
    if (ordinal < 0 || ordinal == mine->device.ordinal)
        return true;
    const cudaError_t error = cudaDeviceCanAccessPeer(&can_access, mine->device.ordinal, ordinal);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        snprintf(why_out, why_bytes, "cudaDeviceCanAccessPeer: %s", cudaGetErrorString(error));
        return false;
    }
    if (can_access == 0)
        snprintf(why_out, why_bytes, "GPU %s has no peer access to GPU %s", mine->device.pci_bus_id,
                 peer->device.pci_bus_id);
    return can_access != 0;
}

/* cudaFree() finds the GPU by the address. */
static void free_slab(void *base, size_t n_bytes)
{
    (void)n_bytes;
    (void)cudaFree(base);
}

static gyre_status export_slab(void *base, struct gyre_slab_handle *handle)
{
    cudaIpcMemHandle_t ipc;
    memset(handle->bytes, 0, sizeof(handle->bytes));
    const cudaError_t error = cudaIpcGetMemHandle(&ipc, base);
    if (error != cudaSuccess)
        return gyre_cuda_fail(error, "cudaIpcGetMemHandle");
    memcpy(handle->bytes, &ipc, sizeof(ipc));
    return GYRE_SUCCESS;
}

static bool has_other_processes(const struct gyre_transport_config *config)
{
    const struct gyre_peer_info *mine = &config->infos[config->rank];
    for (int i = 0; i < config->n_peers; i++)
        if (config->infos[config->peers[i]].process_id != mine->process_id)
            return true;
    return false;
}

static gyre_status cuda_alloc(const struct gyre_transport_config *config, size_t n_bytes,
                              struct gyre_slab_handle *handle,
                              struct gyre_slab_mapping *mapping_out)
{
    struct gyre_device *device = config->device;
    struct cuda_state *state = calloc(1, sizeof(*state));
    void *base = NULL;
    gyre_status status = GYRE_SUCCESS;
    if (state == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "slots of %zu bytes", n_bytes);
    const size_t n_rounded = (size_t)gyre_round_up(n_bytes, IPC_PAGE_BYTES);
    GYRE_TRY_GOTO(status, device->ops->mem_alloc(device, n_rounded, &base), fail_state);
    GYRE_TRY_GOTO(status, device->ops->zero(device, base, n_rounded), fail_base);
    /* The first page is ours: it lets an importer see that it mapped the right memory. */
    GYRE_TRY_GOTO(status, device->ops->copy(device, base, handle->token, GYRE_SLAB_TOKEN_BYTES),
                  fail_base);
    if (has_other_processes(config))
        GYRE_TRY_GOTO(status, export_slab(base, handle), fail_base);
    GYRE_TRY_GOTO(status,
                  gyre_slab_registry_add(handle->token, base, n_bytes, free_slab, &state->entry),
                  fail_base);
    *mapping_out = (struct gyre_slab_mapping){base, n_bytes, state};
    return GYRE_SUCCESS;
fail_base:
    free_slab(base, n_bytes);
fail_state:
    free(state);
    return gyre_fail_context(status, "slots of %zu bytes on the GPU", n_bytes);
}

static gyre_status enable_peer(int ordinal, int peer_ordinal)
{
    int previous = -1;
    if (ordinal == peer_ordinal)
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_cuda_enter(ordinal, &previous));
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer_ordinal, 0);
    gyre_cuda_leave(ordinal, previous);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
        return GYRE_SUCCESS;
    }
    return error == cudaSuccess ? GYRE_SUCCESS
                                : gyre_cuda_fail(error, "cudaDeviceEnablePeerAccess");
}

/* The caller holds imports_lock. */
static struct import *find_import(const uint8_t *token, int ordinal)
{
    for (struct import *import = imports; import != NULL; import = import->next)
        if (import->ordinal == ordinal && memcmp(import->token, token, sizeof(import->token)) == 0)
            return import;
    return NULL;
}

static gyre_status open_handle(struct gyre_device *device, const struct gyre_slab_handle *handle,
                               void **base_out)
{
    cudaIpcMemHandle_t ipc;
    uint8_t token[GYRE_SLAB_TOKEN_BYTES];
    void *base = NULL;
    int previous = -1;
    memcpy(&ipc, handle->bytes, sizeof(ipc));
    GYRE_TRY(gyre_cuda_enter(device->ordinal, &previous));
    const cudaError_t error = cudaIpcOpenMemHandle(&base, ipc, cudaIpcMemLazyEnablePeerAccess);
    gyre_cuda_leave(device->ordinal, previous);
    if (error != cudaSuccess)
        return gyre_cuda_fail(error, "cudaIpcOpenMemHandle");
    const gyre_status status = device->ops->copy(device, token, base, sizeof(token));
    if (status == GYRE_SUCCESS && memcmp(token, handle->token, sizeof(token)) == 0) {
        *base_out = base;
        return GYRE_SUCCESS;
    }
    (void)cudaIpcCloseMemHandle(base);
    return status != GYRE_SUCCESS
               ? status
               : gyre_fail(GYRE_ERROR_REMOTE, "the mapped GPU memory is not the peer's slots");
}

/* The caller holds imports_lock. */
static gyre_status add_import(struct gyre_device *device, const struct gyre_slab_handle *handle,
                              struct import **import_out)
{
    struct import *import = calloc(1, sizeof(*import));
    if (import == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "mapping of a peer's slots");
    const gyre_status status = open_handle(device, handle, &import->base);
    if (status != GYRE_SUCCESS) {
        free(import);
        return status;
    }
    memcpy(import->token, handle->token, sizeof(import->token));
    import->ordinal = device->ordinal;
    import->next = imports;
    imports = import;
    *import_out = import;
    return GYRE_SUCCESS;
}

static gyre_status import_ipc(struct gyre_device *device, const struct gyre_slab_handle *handle,
                              struct cuda_state *state, void **base_out)
{
    gyre_status status = GYRE_SUCCESS;
    pthread_mutex_lock(&imports_lock);
    struct import *import = find_import(handle->token, device->ordinal);
    if (import == NULL)
        status = add_import(device, handle, &import);
    if (status == GYRE_SUCCESS) {
        import->n_users++;
        state->import = import;
        *base_out = import->base;
    }
    pthread_mutex_unlock(&imports_lock);
    return status;
}

static gyre_status cuda_import(const struct gyre_transport_config *config,
                               const struct gyre_peer_info *peer,
                               const struct gyre_slab_handle *handle, size_t n_bytes,
                               struct gyre_slab_mapping *mapping_out)
{
    const struct gyre_peer_info *mine = &config->infos[config->rank];
    struct cuda_state *state = calloc(1, sizeof(*state));
    void *base = NULL;
    gyre_status status;
    if (state == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "mapping of a peer's slots");
    if (mine->process_id == peer->process_id) {
        GYRE_TRY_GOTO(status, enable_peer(config->device->ordinal, peer->device.ordinal), fail);
        GYRE_TRY_GOTO(
            status, gyre_slab_registry_acquire(handle->token, n_bytes, &base, &state->entry), fail);
    } else {
        GYRE_TRY_GOTO(status, import_ipc(config->device, handle, state, &base), fail);
    }
    *mapping_out = (struct gyre_slab_mapping){base, n_bytes, state};
    return GYRE_SUCCESS;
fail:
    free(state);
    return status;
}

static void release_import(struct import *import)
{
    pthread_mutex_lock(&imports_lock);
    if (--import->n_users == 0) {
        struct import **link = &imports;
        while (*link != import)
            link = &(*link)->next;
        *link = import->next;
        (void)cudaIpcCloseMemHandle(import->base);
        (void)cudaGetLastError();
        free(import);
    }
    pthread_mutex_unlock(&imports_lock);
}

static void cuda_release(struct gyre_slab_mapping *mapping)
{
    struct cuda_state *state = mapping->state;
    if (state->entry != NULL)
        gyre_slab_registry_release(state->entry);
    if (state->import != NULL)
        release_import(state->import);
    free(state);
    memset(mapping, 0, sizeof(*mapping));
}

static const char *cuda_describe(const struct gyre_peer_info *mine,
                                 const struct gyre_peer_info *peer)
{
    return mine->process_id == peer->process_id ? "P2P/direct" : "P2P/IPC";
}

const struct gyre_slab_memory_ops gyre_slab_memory_cuda = {
    .name = "cuda",
    .reachable = cuda_reachable,
    .alloc = cuda_alloc,
    .import = cuda_import,
    .release = cuda_release,
    .describe = cuda_describe,
};
