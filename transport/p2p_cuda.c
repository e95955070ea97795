/* SPDX-License-Identifier: Apache-2.0
 *
 * Slabs in GPU memory and shared buffers, which other processes map with cudaIpc.
 */
#include "core/foundation/base/log.h"
#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"
#include "core/foundation/device/cuda_error.h"
#include "core/foundation/device/driver_cuda.h"
#include "core/foundation/device/pool_cuda.h"
#include "transport/slab.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A handle exports whole pages, so no other allocation shares them. */
#define IPC_PAGE_BYTES   (2ULL << 20)
#define IPC_KEY_BYTES    16
#define IPC_HANDLE_BYTES 64

GYRE_STATIC_ASSERT(IPC_HANDLE_BYTES <= GYRE_SLAB_HANDLE_BYTES, "travels in the handle");

/* A handle is opened once for each GPU of this process and its users are counted, because some
 * drivers refuse a second opening. The driver's number identifies an allocation, because a later
 * one may have the same address. */
struct import {
    struct import *next;
    uint8_t key[IPC_KEY_BYTES];
    int ordinal;
    uint32_t n_users;
    void *base;
};

_Static_assert(sizeof(cudaIpcMemHandle_t) == IPC_HANDLE_BYTES, "ranks send it to each other");

static pthread_mutex_t imports_lock = PTHREAD_MUTEX_INITIALIZER;
static struct import *imports;

/* @base: an allocation's start. */
static gyre_status export_memory(void *base, uint8_t *bytes_out)
{
    cudaIpcMemHandle_t ipc;
    const cudaError_t error = cudaIpcGetMemHandle(&ipc, base);
    if (error != cudaSuccess)
        return gyre_cuda_fail(error, "cudaIpcGetMemHandle");
    memcpy(bytes_out, &ipc, sizeof(ipc));
    return GYRE_SUCCESS;
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

static gyre_status open_handle(int ordinal, const uint8_t *bytes, void **base_out)
{
    cudaIpcMemHandle_t ipc;
    struct gyre_cuda_apart apart = {0};
    memcpy(&ipc, bytes, sizeof(ipc));
    GYRE_TRY(gyre_cuda_enter_apart(ordinal, &apart));
    const cudaError_t error = cudaIpcOpenMemHandle(base_out, ipc, cudaIpcMemLazyEnablePeerAccess);
    gyre_cuda_leave_apart(&apart);
    return error == cudaSuccess ? GYRE_SUCCESS : gyre_cuda_fail(error, "cudaIpcOpenMemHandle");
}

/* The first user maps the memory. @key: IPC_KEY_BYTES, never used again. */
static gyre_status acquire_import(struct gyre_device *device, const uint8_t *key,
                                  const uint8_t *bytes, struct import **import_out)
{
    gyre_status status = GYRE_SUCCESS;
    pthread_mutex_lock(&imports_lock);
    struct import *import = imports;
    while (import != NULL && (import->ordinal != device->ordinal ||
                              memcmp(import->key, key, sizeof(import->key)) != 0))
        import = import->next;
    if (import == NULL) {
        import = calloc(1, sizeof(*import));
        status = import != NULL
                     ? open_handle(device->ordinal, bytes, &import->base)
                     : gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "a mapping of a peer's GPU memory");
        if (status != GYRE_SUCCESS) {
            free(import);
        } else {
            memcpy(import->key, key, sizeof(import->key));
            import->ordinal = device->ordinal;
            import->next = imports;
            imports = import;
        }
    }
    if (status == GYRE_SUCCESS) {
        import->n_users++;
        *import_out = import;
    }
    pthread_mutex_unlock(&imports_lock);
    return status;
}

/* The last user unmaps it. */
void gyre_share_release_cuda(void *state)
{
    struct import *import = state;
    pthread_mutex_lock(&imports_lock);
    if (--import->n_users == 0) {
        struct import **link = &imports;
        while (*link != import)
            link = &(*link)->next;
        *link = import->next;
        struct gyre_cuda_apart apart = {0};
        if (gyre_cuda_enter_apart(import->ordinal, &apart) == GYRE_SUCCESS) {
            const cudaError_t error = cudaIpcCloseMemHandle(import->base);
            gyre_cuda_leave_apart(&apart);
            if (error != cudaSuccess)
                GYRE_INFO(P2P, "a peer's memory stays mapped: cudaIpcCloseMemHandle: %s",
                          cudaGetErrorString(cudaGetLastError()));
        }
        free(import);
    }
    pthread_mutex_unlock(&imports_lock);
}

GYRE_STATIC_ASSERT(IPC_KEY_BYTES == GYRE_SLAB_TOKEN_BYTES, "a slab's token is its key");

struct cuda_state {
    struct gyre_slab_entry *entry;
    struct import *import;
};

/* -1 = this process does not see the GPU. */
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
    if (mine->uid != peer->uid) { /* the driver shares within one user only */
        snprintf(why_out, why_bytes, "rank %u runs as user %u, this rank as user %u", peer->rank,
                 peer->uid, mine->uid);
        return false;
    }
    const int ordinal = ordinal_here(mine, peer);
    /* CUDA maps the memory of a GPU that CUDA_VISIBLE_DEVICES hides. */
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

static void free_pooled_slab(void *base, size_t n_bytes)
{
    (void)n_bytes;
    (void)gyre_cuda_pool_free(base);
}

static void free_slab(void *base, size_t n_bytes)
{
    struct gyre_cuda_apart apart = {0};
    int ordinal = -1;
    (void)n_bytes;
    if (cudaGetDevice(&ordinal) != cudaSuccess ||
        gyre_cuda_enter_apart(ordinal, &apart) != GYRE_SUCCESS)
        return;
    (void)cudaFree(base);
    gyre_cuda_leave_apart(&apart);
}

static gyre_status cuda_alloc(const struct gyre_transport_config *config, size_t n_bytes,
                              struct gyre_slab_handle *handle,
                              struct gyre_slab_mapping *mapping_out)
{
    struct gyre_device *device = config->device;
    struct cuda_state *state = calloc(1, sizeof(*state));
    /* A peer that aborts late may still write to it. */
    bool is_exported = false;
    for (int i = 0; i < config->n_peers; i++)
        is_exported = is_exported || config->infos[config->peers[i]].process_id !=
                                         config->infos[config->rank].process_id;
    void (*release)(void *, size_t) = is_exported ? free_slab : free_pooled_slab;
    void *base = NULL;
    gyre_status status = GYRE_SUCCESS;
    if (state == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "slots of %zu bytes", n_bytes);
    const size_t n_rounded = (size_t)gyre_round_up(n_bytes, IPC_PAGE_BYTES);
    GYRE_TRY_GOTO(status,
                  is_exported ? device->ops->mem_alloc(device, n_rounded, &base)
                              : device->ops->pool_alloc(device, n_rounded, &base),
                  fail_state);
    GYRE_TRY_GOTO(status, device->ops->zero(device, base, n_rounded), fail_base);
    GYRE_TRY_GOTO(status, device->ops->copy(device, base, handle->token, GYRE_SLAB_TOKEN_BYTES),
                  fail_base);
    if (is_exported)
        GYRE_TRY_GOTO(status, export_memory(base, handle->bytes), fail_base);
    GYRE_TRY_GOTO(status,
                  gyre_slab_registry_add(handle->token, base, n_bytes, release, &state->entry),
                  fail_base);
    *mapping_out = (struct gyre_slab_mapping){base, n_bytes, state};
    return GYRE_SUCCESS;
fail_base:
    release(base, n_bytes);
fail_state:
    free(state);
    return gyre_fail_context(status, "slots of %zu bytes on the GPU", n_bytes);
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
        struct gyre_device *device = config->device;
        uint8_t token[GYRE_SLAB_TOKEN_BYTES];
        GYRE_TRY_GOTO(status, acquire_import(device, handle->token, handle->bytes, &state->import),
                      fail);
        base = state->import->base;
        GYRE_TRY_GOTO(status, device->ops->copy(device, token, base, sizeof(token)), fail);
        if (memcmp(token, handle->token, sizeof(token)) != 0) {
            status = gyre_fail(GYRE_ERROR_REMOTE, "the mapped GPU memory is not the peer's slots");
            goto fail;
        }
    }
    *mapping_out = (struct gyre_slab_mapping){base, n_bytes, state};
    return GYRE_SUCCESS;
fail:
    if (state->import != NULL)
        gyre_share_release_cuda(state->import);
    free(state);
    return status;
}

static void cuda_release(struct gyre_slab_mapping *mapping)
{
    struct cuda_state *state = mapping->state;
    if (state->entry != NULL)
        gyre_slab_registry_release(state->entry);
    if (state->import != NULL)
        gyre_share_release_cuda(state->import);
    free(state);
    memset(mapping, 0, sizeof(*mapping));
}

static const char *cuda_describe(const struct gyre_peer_info *mine,
                                 const struct gyre_peer_info *peer)
{
    return mine->process_id == peer->process_id ? "P2P/direct" : "P2P/IPC";
}

const struct gyre_slab_memory_ops gyre_slab_memory_cuda = {
    .reachable = cuda_reachable,
    .alloc = cuda_alloc,
    .import = cuda_import,
    .release = cuda_release,
    .describe = cuda_describe,
};

GYRE_STATIC_ASSERT(GYRE_SHARE_IPC_BYTES == IPC_HANDLE_BYTES, "travels in the handle");

gyre_status gyre_share_export_cuda(bool to_processes, void *buffer,
                                   struct gyre_share_handle *handle_out)
{
    struct gyre_cuda_allocation allocation;
    GYRE_TRY(gyre_cuda_allocation_find(buffer, &allocation));
    handle_out->offset_bytes = (uint64_t)(uintptr_t)buffer - allocation.base;
    handle_out->allocation_id = allocation.id;
    handle_out->allocation_bytes = allocation.n_bytes;
    if (!to_processes)
        return GYRE_SUCCESS;
    const gyre_status status = export_memory((void *)(uintptr_t)allocation.base, handle_out->ipc);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(GYRE_ERROR_UNSUPPORTED,
                                 "memory of %p: only what cudaMalloc or gyre_mem_alloc "
                                 "gave can be shared with other processes",
                                 buffer);
    return GYRE_SUCCESS;
}

gyre_status gyre_share_import_cuda(struct gyre_device *device, const struct gyre_peer_info *mine,
                                   const struct gyre_peer_info *peer,
                                   const struct gyre_share_handle *handle,
                                   struct gyre_share_mapping *mapping_out)
{
    struct import *import;
    uint8_t key[IPC_KEY_BYTES];
    if (mine->process_id == peer->process_id) {
        GYRE_TRY(enable_peer(device->ordinal, peer->device.ordinal));
        *mapping_out = (struct gyre_share_mapping){.address = (void *)(uintptr_t)handle->address};
        return GYRE_SUCCESS;
    }
    memcpy(key, &peer->process_id, sizeof(peer->process_id));
    memcpy(key + sizeof(peer->process_id), &handle->allocation_id, sizeof(handle->allocation_id));
    GYRE_TRY(acquire_import(device, key, handle->ipc, &import));
    *mapping_out = (struct gyre_share_mapping){
        .address = (unsigned char *)import->base + handle->offset_bytes, .state = import};
    return GYRE_SUCCESS;
}
