/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory kinds of p2p that live in files of their own.
 */
#ifndef GYRE_TRANSPORT_P2P_MEMORY_H
#define GYRE_TRANSPORT_P2P_MEMORY_H

#include "transport/slab.h"

#ifdef GYRE_WITH_CUDA
extern const struct gyre_slab_memory_ops gyre_slab_memory_cuda;
#endif

#endif
