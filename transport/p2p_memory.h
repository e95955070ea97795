/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of memory that p2p uses besides memory of this process.
 */
#ifndef GYRE_TRANSPORT_P2P_MEMORY_H
#define GYRE_TRANSPORT_P2P_MEMORY_H

#include "transport/slab.h"

#ifdef GYRE_WITH_CUDA
extern const struct gyre_slab_memory_ops gyre_slab_memory_cuda;

/** gyre_p2p_cuda_has_native_atomics - do atomics of one GPU work in the other GPU's memory? They do
 * over NVLink but not over PCIe. False if this process cannot see the peer's GPU. */
bool gyre_p2p_cuda_has_native_atomics(const struct gyre_peer_info *mine,
                                      const struct gyre_peer_info *peer);
#endif

#endif
