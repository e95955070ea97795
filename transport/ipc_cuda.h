/* SPDX-License-Identifier: Apache-2.0
 *
 * A handle is opened once for each GPU of this process and its users are counted, because some
 * drivers refuse a second opening. The driver's number identifies an allocation, because a later
 * one may have the same address.
 */
#ifndef GYRE_TRANSPORT_IPC_CUDA_H
#define GYRE_TRANSPORT_IPC_CUDA_H

#include "transport/transport.h"

#define GYRE_IPC_KEY_BYTES    16
#define GYRE_IPC_HANDLE_BYTES 64

struct gyre_ipc_import;

/** @base: an allocation's start. @bytes_out: GYRE_IPC_HANDLE_BYTES. */
gyre_status gyre_ipc_export(void *base, uint8_t *bytes_out);

/** gyre_ipc_acquire, _release - the first user maps the memory and the last one unmaps it. @key:
 * GYRE_IPC_KEY_BYTES, never used again. */
gyre_status gyre_ipc_acquire(struct gyre_device *device, const uint8_t *key, const uint8_t *bytes,
                             struct gyre_ipc_import **import_out);
void gyre_ipc_release(struct gyre_ipc_import *import);

void *gyre_ipc_base(const struct gyre_ipc_import *import);

gyre_status gyre_ipc_enable_peer(int ordinal, int peer_ordinal);

/** As in transport.h, for a peer on this host. */
gyre_status gyre_share_export_cuda(bool to_processes, void *buffer,
                                   struct gyre_share_handle *handle_out);
gyre_status gyre_share_import_cuda(struct gyre_device *device, const struct gyre_peer_info *mine,
                                   const struct gyre_peer_info *peer,
                                   const struct gyre_share_handle *handle,
                                   struct gyre_share_mapping *mapping_out);

#endif
