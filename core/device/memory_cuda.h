/* SPDX-License-Identifier: Apache-2.0
 *
 * What the driver knows of a GPU address: the allocation that it lies in.
 */
#ifndef GYRE_DEVICE_MEMORY_CUDA_H
#define GYRE_DEVICE_MEMORY_CUDA_H

#include "core/gyre.h"

struct gyre_cuda_allocation {
    uint64_t base;
    uint64_t n_bytes;
    uint64_t id; /* never given twice in a process, unlike addresses */
};

/** gyre_cuda_allocation_find - Errors: DEVICE (not GPU memory, or the driver cannot say). */
gyre_status gyre_cuda_allocation_find(const void *ptr, struct gyre_cuda_allocation *allocation_out);

#endif
