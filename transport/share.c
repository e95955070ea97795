/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/transport.h"

#include "core/foundation/device/host_memory.h"
#include "transport/slab.h"

#include <string.h>

GYRE_STATIC_ASSERT(sizeof(struct gyre_shared_file) <= GYRE_SHARE_IPC_BYTES,
                   "travels in the handle");

gyre_status gyre_share_export(const struct gyre_peer_info *mine, bool to_processes, void *buffer,
                              struct gyre_share_handle *handle_out)
{
    struct gyre_share_handle handle;
    memset(&handle, 0, sizeof(handle));
    handle.address = (uint64_t)(uintptr_t)buffer;
    *handle_out = handle;
#ifdef GYRE_WITH_CUDA
    if (mine->device.kind == GYRE_DEVICE_CUDA)
        return gyre_share_export_cuda(to_processes, buffer, handle_out);
#endif
    struct gyre_shared_file file;
    if (gyre_host_memory_find(buffer, &file, &handle_out->offset_bytes)) {
        handle_out->allocation_bytes = file.n_bytes;
        memcpy(handle_out->ipc, &file, sizeof(file));
        return GYRE_SUCCESS;
    }
    if (!to_processes)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "other processes cannot address the host memory at %p of rank %u: allocate it "
                     "with gyre_mem_alloc (ncclMemAlloc), which gives such memory as long as less "
                     "than half of the process's descriptors are in use (ulimit -n)",
                     buffer, mine->rank);
}

gyre_status gyre_share_import(struct gyre_device *device, const struct gyre_peer_info *mine,
                              const struct gyre_peer_info *peer,
                              const struct gyre_share_handle *handle,
                              struct gyre_share_mapping *mapping_out)
{
    if (mine->host_hash != peer->host_hash)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "rank %u is on another host (%s)", peer->rank,
                         peer->host_name);
#ifdef GYRE_WITH_CUDA
    if (mine->device.kind == GYRE_DEVICE_CUDA)
        return gyre_share_import_cuda(device, mine, peer, handle, mapping_out);
#endif
    (void)device;
    const bool is_own = mine->process_id == peer->process_id;
    struct gyre_shared_file file;
    void *base = NULL;
    memcpy(&file, handle->ipc, sizeof(file));
    if (handle->allocation_bytes == 0 && is_own) {
        *mapping_out = (struct gyre_share_mapping){.address = (void *)(uintptr_t)handle->address};
        return GYRE_SUCCESS;
    }
    const gyre_status status = gyre_host_memory_acquire(&file, is_own, &base);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "memory of rank %u", peer->rank);
    *mapping_out = (struct gyre_share_mapping){
        .address = (unsigned char *)base + handle->offset_bytes, .host_base = base};
    return GYRE_SUCCESS;
}

void gyre_share_release(struct gyre_share_mapping *mapping)
{
#ifdef GYRE_WITH_CUDA
    if (mapping->state != NULL)
        gyre_share_release_cuda(mapping->state);
#endif
    if (mapping->host_base != NULL)
        gyre_host_memory_release(mapping->host_base);
    memset(mapping, 0, sizeof(*mapping));
}
