/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared buffers on GPUs. Inside a process a peer uses peer access; between processes it maps the
 * whole allocation with cudaIpc. An allocation is identified by the number that the driver gave it
 * and not by its address, because a later allocation may have the same address.
 */
#include "transport/share_cuda.h"

#include "core/foundation/device/memory_cuda.h"
#include "transport/ipc_cuda.h"

#include <string.h>

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

void gyre_share_release_cuda(struct gyre_share_mapping *mapping)
{
    gyre_ipc_release(mapping->state);
}
