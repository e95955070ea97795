/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory kinds of p2p that live in files of their own.
 */
#ifndef GYRE_TRANSPORT_P2P_MEMORY_H
#define GYRE_TRANSPORT_P2P_MEMORY_H

#include "transport/slab.h"

#ifdef GYRE_WITH_CUDA
extern const struct gyre_slab_memory_ops gyre_slab_memory_cuda;

/** gyre_p2p_cuda_has_native_atomics - do atomics of one GPU work in the other's memory? They do
 * over NVLink and not over PCIe. False where the peer's GPU is hidden from this process. */
bool gyre_p2p_cuda_has_native_atomics(const struct gyre_peer_info *mine,
                                      const struct gyre_peer_info *peer);
#endif

#endif
