/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ipc_cuda.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/status.h"
#include "core/foundation/device/cuda_error.h"
#include "core/foundation/device/driver_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct gyre_ipc_import {
    struct gyre_ipc_import *next;
    uint8_t key[GYRE_IPC_KEY_BYTES];
    int ordinal;
    uint32_t n_users;
    void *base;
};

_Static_assert(sizeof(cudaIpcMemHandle_t) == GYRE_IPC_HANDLE_BYTES, "ranks send it to each other");

static pthread_mutex_t imports_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gyre_ipc_import *imports;

gyre_status gyre_ipc_export(void *base, uint8_t *bytes_out)
{
    cudaIpcMemHandle_t ipc;
    const cudaError_t error = cudaIpcGetMemHandle(&ipc, base);
    if (error != cudaSuccess)
        return gyre_cuda_fail(error, "cudaIpcGetMemHandle");
    memcpy(bytes_out, &ipc, sizeof(ipc));
    return GYRE_SUCCESS;
}

gyre_status gyre_ipc_enable_peer(int ordinal, int peer_ordinal)
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

static void close_import(const struct gyre_ipc_import *import)
{
    struct gyre_cuda_apart apart = {0};
    if (gyre_cuda_enter_apart(import->ordinal, &apart) != GYRE_SUCCESS)
        return;
    const cudaError_t error = cudaIpcCloseMemHandle(import->base);
    gyre_cuda_leave_apart(&apart);
    if (error != cudaSuccess)
        GYRE_INFO(P2P, "a peer's memory stays mapped: cudaIpcCloseMemHandle: %s",
                  cudaGetErrorString(cudaGetLastError()));
}

/* imports_lock is held. */
static gyre_status add_import(struct gyre_device *device, const uint8_t *key, const uint8_t *bytes,
                              struct gyre_ipc_import **import_out)
{
    struct gyre_ipc_import *import = calloc(1, sizeof(*import));
    if (import == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "a mapping of a peer's GPU memory");
    const gyre_status status = open_handle(device->ordinal, bytes, &import->base);
    if (status != GYRE_SUCCESS) {
        free(import);
        return status;
    }
    memcpy(import->key, key, sizeof(import->key));
    import->ordinal = device->ordinal;
    import->next = imports;
    imports = import;
    *import_out = import;
    return GYRE_SUCCESS;
}

gyre_status gyre_ipc_acquire(struct gyre_device *device, const uint8_t *key, const uint8_t *bytes,
                             struct gyre_ipc_import **import_out)
{
    gyre_status status = GYRE_SUCCESS;
    pthread_mutex_lock(&imports_lock);
    struct gyre_ipc_import *import = imports;
    while (import != NULL && (import->ordinal != device->ordinal ||
                              memcmp(import->key, key, sizeof(import->key)) != 0))
        import = import->next;
    if (import == NULL)
        status = add_import(device, key, bytes, &import);
    if (status == GYRE_SUCCESS) {
        import->n_users++;
        *import_out = import;
    }
    pthread_mutex_unlock(&imports_lock);
    return status;
}

void gyre_ipc_release(struct gyre_ipc_import *import)
{
    pthread_mutex_lock(&imports_lock);
    if (--import->n_users == 0) {
        struct gyre_ipc_import **link = &imports;
        while (*link != import)
            link = &(*link)->next;
        *link = import->next;
        close_import(import);
        free(import);
    }
    pthread_mutex_unlock(&imports_lock);
}

void *gyre_ipc_base(const struct gyre_ipc_import *import)
{
    return import->base;
}

GYRE_STATIC_ASSERT(GYRE_SHARE_IPC_BYTES == GYRE_IPC_HANDLE_BYTES, "travels in the handle");

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
    const gyre_status status = gyre_ipc_export((void *)(uintptr_t)allocation.base, handle_out->ipc);
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
    struct gyre_ipc_import *import;
    uint8_t key[GYRE_IPC_KEY_BYTES];
    if (mine->process_id == peer->process_id) {
        GYRE_TRY(gyre_ipc_enable_peer(device->ordinal, peer->device.ordinal));
        *mapping_out = (struct gyre_share_mapping){.address = (void *)(uintptr_t)handle->address};
        return GYRE_SUCCESS;
    }
    memcpy(key, &peer->process_id, sizeof(peer->process_id));
    memcpy(key + sizeof(peer->process_id), &handle->allocation_id, sizeof(handle->allocation_id));
    GYRE_TRY(gyre_ipc_acquire(device, key, handle->ipc, &import));
    *mapping_out = (struct gyre_share_mapping){
        .address = (unsigned char *)gyre_ipc_base(import) + handle->offset_bytes, .state = import};
    return GYRE_SUCCESS;
}
