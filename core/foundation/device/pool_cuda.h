/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU memory and pinned host memory of communicators. CUDA's own free waits for all kernels of the
 * GPU and of its peers, and no kernel can be launched meanwhile. But a running kernel of another
 * communicator of this process may wait for such a launch, and then both wait for ever. Therefore
 * memory that is freed while an executor of the process is open is parked. A later communicator
 * gets it, or CUDA gets it back when the last executor is closed.
 */
#ifndef GYRE_DEVICE_POOL_CUDA_H
#define GYRE_DEVICE_POOL_CUDA_H

#include "core/foundation/device/device.h"

enum gyre_cuda_pool_kind {
    GYRE_CUDA_POOL_DEVICE,
    GYRE_CUDA_POOL_HOST /* pinned, mapped, portable */
};

/** gyre_cuda_pool_alloc - memory that is not zeroed: parked memory of the same size if there is
 * any, else new memory. Errors: OUT_OF_MEMORY, DEVICE. */
gyre_status gyre_cuda_pool_alloc(int ordinal, enum gyre_cuda_pool_kind kind, size_t n_bytes,
                                 void **ptr_out);

/** gyre_cuda_pool_free - park memory or free it. No later launch may use it. @ptr: may be NULL. */
gyre_status gyre_cuda_pool_free(void *ptr);

/** gyre_cuda_pool_enter - to be called when an executor is opened. Waits while another thread gives
 * memory back to CUDA. */
void gyre_cuda_pool_enter(void);

/** gyre_cuda_pool_leave - to be called when an executor is closed.
 * @is_idle: all launches of the executor have ended. If not, parked memory is given back to CUDA,
 * which waits for the launches, before it is used again. */
void gyre_cuda_pool_leave(bool is_idle);

#endif
