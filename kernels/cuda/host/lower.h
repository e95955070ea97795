/* SPDX-License-Identifier: Apache-2.0
 *
 * Lowering: from a program to the blob of fixed-width records that the interpreter kernel reads.
 * Pure: built and tested without nvcc.
 */
#ifndef GYRE_KERNELS_CUDA_HOST_LOWER_H
#define GYRE_KERNELS_CUDA_HOST_LOWER_H

#include "kernels/cuda/host/program.h"
#include "kernels/executor.h"

/* How large a launch of a loaded program is. */
struct gyre_cuda_shape {
    uint32_t max_connections; /* of one worker */
    uint32_t max_steps;       /* of one worker */
    uint32_t max_uses;        /* of one connection in a tile */
    uint32_t slot_bytes;      /* the smallest of its connections, this protocol's */
    uint32_t proxied_bytes;   /* what the smallest slot of the connections of a proxy holds, if the
                               * program is loaded for a line protocol; UINT32_MAX = there is none */
    bool is_proxied;          /* a proxy serves one of its connections */
};

/** gyre_cuda_lower - one rank's programs, of all variants, as a blob for the interpreter kernel.
 * @connectors: checked for existence and protocol, for every channel.
 * @blob_out: malloc'ed. Errors: INVALID_USAGE (no such connection), UNSUPPORTED (the connection
 * has no slots for the protocol, too many chunks, range steps), OUT_OF_MEMORY. */
gyre_status gyre_cuda_lower(const struct gyre_fifo_spec *spec,
                            const struct gyre_connector *connectors, int n_ranks,
                            const struct gyre_load_config *config,
                            struct gyre_cuda_program **blob_out, struct gyre_cuda_shape *shape_out);

#endif
