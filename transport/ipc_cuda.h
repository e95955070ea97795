/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps GPU memory of other processes with cudaIpc. A handle is opened once for each GPU of this
 * process and its users are counted, because opening it a second time fails on some drivers.
 */
#ifndef GYRE_TRANSPORT_IPC_CUDA_H
#define GYRE_TRANSPORT_IPC_CUDA_H

#include "core/foundation/device/device.h"

#define GYRE_IPC_KEY_BYTES    16
#define GYRE_IPC_HANDLE_BYTES 64

struct gyre_ipc_import;

/** gyre_ipc_export - the handle of the whole allocation that starts at `base`.
 * @bytes_out: GYRE_IPC_HANDLE_BYTES. Errors: DEVICE. */
gyre_status gyre_ipc_export(void *base, uint8_t *bytes_out);

/** gyre_ipc_acquire / gyre_ipc_release - become a user of a peer's memory, which the first user
 * maps and the last one unmaps.
 * @key: GYRE_IPC_KEY_BYTES that are unique to this memory and never used again.
 * @bytes: as gyre_ipc_export() wrote them. Errors: DEVICE, OUT_OF_MEMORY. */
gyre_status gyre_ipc_acquire(struct gyre_device *device, const uint8_t *key, const uint8_t *bytes,
                             struct gyre_ipc_import **import_out);
void gyre_ipc_release(struct gyre_ipc_import *import);

/** gyre_ipc_base - the address of the mapped memory in this process. */
void *gyre_ipc_base(const struct gyre_ipc_import *import);

/** gyre_ipc_enable_peer - let one GPU of this process address another's memory. */
gyre_status gyre_ipc_enable_peer(int ordinal, int peer_ordinal);

#endif
