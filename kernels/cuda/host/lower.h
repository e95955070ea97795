/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_KERNELS_CUDA_HOST_LOWER_H
#define GYRE_KERNELS_CUDA_HOST_LOWER_H

#include "core/foundation/model/fused.h"
#include "kernels/cuda/host/program.h"
#include "kernels/executor.h"

struct gyre_cuda_shape {
    uint32_t max_connections; /* of one worker */
    uint32_t max_steps;       /* likewise */
    uint32_t max_uses;        /* of one connection in a tile */
    uint32_t slot_bytes;      /* the smallest, of this protocol */
    uint32_t
        proxied_bytes; /* line protocols: in the smallest slot with a proxy; UINT32_MAX = none */
    bool is_proxied;
};

/** All variants of one rank. @connectors: checked for existence and protocol, in
 * every channel. @blob_out: malloc'ed. Errors: INVALID_USAGE (no such connection), UNSUPPORTED (no
 * slots for the protocol, too many chunks), OUT_OF_MEMORY. */
gyre_status gyre_cuda_lower(const struct gyre_fifo_spec *spec,
                            const struct gyre_connector *connectors, int n_ranks,
                            const struct gyre_load_config *config,
                            struct gyre_cuda_program **blob_out, struct gyre_cuda_shape *shape_out);

/** Both sides of the peers' FIFOs in channel 0. Offsets are in blocks.
 * False if a side has a proxy, the depth is no power of two, or channels are not equally far apart.
 */
bool gyre_cuda_fused_resolve(const struct gyre_fifo_spec *spec,
                             const struct gyre_connector *connectors,
                             const struct gyre_load_config *config,
                             const struct gyre_fused_program *found,
                             struct gyre_cuda_fused *fused_out);

/** Are their FIFOs addressed alike, as one launch needs? */
bool gyre_cuda_fused_joins(const struct gyre_cuda_fused *send,
                           const struct gyre_cuda_fused *receive);

/** One peer with the ends of both. */
struct gyre_cuda_fused gyre_cuda_fused_join(const struct gyre_cuda_fused *send,
                                            const struct gyre_cuda_fused *receive);

/** A send launched before the receive gives its credit. @n_channels: of the receive. */
struct gyre_cuda_fused gyre_cuda_fused_before(const struct gyre_cuda_fused *send,
                                              const struct gyre_cuda_fused *receive,
                                              uint32_t n_channels);

#endif
