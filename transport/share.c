/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared buffers on the host. Threads of one process use each other's addresses.
 */
#include "transport/share_cuda.h"

#include <string.h>

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
    if (!to_processes)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "host memory of rank %u cannot be addressed by other processes", mine->rank);
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
    if (mine->process_id != peer->process_id)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "rank %u is another process", peer->rank);
    *mapping_out = (struct gyre_share_mapping){(void *)(uintptr_t)handle->address, NULL};
    return GYRE_SUCCESS;
}

void gyre_share_release(struct gyre_share_mapping *mapping)
{
#ifdef GYRE_WITH_CUDA
    if (mapping->state != NULL)
        gyre_share_release_cuda(mapping);
#endif
    memset(mapping, 0, sizeof(*mapping));
}
