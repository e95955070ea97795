/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the allocation that a GPU address lies in.
 */
#ifndef GYRE_DEVICE_MEMORY_CUDA_H
#define GYRE_DEVICE_MEMORY_CUDA_H

#include "core/gyre.h"

struct gyre_cuda_allocation {
    uint64_t base;
    uint64_t n_bytes;
    uint64_t id; /* never used twice in a process, unlike addresses */
};

/** gyre_cuda_allocation_find - the allocation of `ptr`. Errors: DEVICE (not GPU memory, or the
 * driver does not know). */
gyre_status gyre_cuda_allocation_find(const void *ptr, struct gyre_cuda_allocation *allocation_out);

#endif
