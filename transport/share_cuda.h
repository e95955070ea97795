/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU side of gyre_share_export(), gyre_share_import() and gyre_share_release() (transport.h).
 */
#ifndef GYRE_TRANSPORT_SHARE_CUDA_H
#define GYRE_TRANSPORT_SHARE_CUDA_H

#include "transport/transport.h"

/** As the functions without _cuda, for GPU memory. The peer is on this host. */
gyre_status gyre_share_export_cuda(bool to_processes, void *buffer,
                                   struct gyre_share_handle *handle_out);
gyre_status gyre_share_import_cuda(struct gyre_device *device, const struct gyre_peer_info *mine,
                                   const struct gyre_peer_info *peer,
                                   const struct gyre_share_handle *handle,
                                   struct gyre_share_mapping *mapping_out);
void gyre_share_release_cuda(struct gyre_share_mapping *mapping);
#endif
