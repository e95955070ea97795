/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared buffers on GPUs, behind gyre_share_export() and its like of transport.h.
 */
#ifndef GYRE_TRANSPORT_SHARE_CUDA_H
#define GYRE_TRANSPORT_SHARE_CUDA_H

#include "transport/transport.h"

/** The same for GPU memory; the peer is on this host. */
gyre_status gyre_share_export_cuda(bool to_processes, void *buffer,
                                   struct gyre_share_handle *handle_out);
gyre_status gyre_share_import_cuda(struct gyre_device *device, const struct gyre_peer_info *mine,
                                   const struct gyre_peer_info *peer,
                                   const struct gyre_share_handle *handle,
                                   struct gyre_share_mapping *mapping_out);
void gyre_share_release_cuda(struct gyre_share_mapping *mapping);
#endif
