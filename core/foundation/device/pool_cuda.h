/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU memory and pinned host memory of communicators. CUDA's own free waits for all kernels of the
 * GPU and of its peers, and no kernel can be launched meanwhile. A running kernel of another
 * communicator may wait for such a launch, and then both wait for ever. So memory that is freed
 * while an executor is open is parked, until a communicator takes it or the last executor is
 * closed.
 */
#ifndef GYRE_DEVICE_POOL_CUDA_H
#define GYRE_DEVICE_POOL_CUDA_H

#include "core/foundation/device/device.h"

enum gyre_cuda_pool_kind {
    GYRE_CUDA_POOL_DEVICE,
    GYRE_CUDA_POOL_HOST /* pinned, mapped, portable */
};

/** Not zeroed: parked memory of the same size if there is any. Errors: OUT_OF_MEMORY, DEVICE. */
gyre_status gyre_cuda_pool_alloc(int ordinal, enum gyre_cuda_pool_kind kind, size_t n_bytes,
                                 void **ptr_out);

/** No later launch may use the memory. @ptr: may be NULL. */
gyre_status gyre_cuda_pool_free(void *ptr);

/** An executor is opened. Waits while another thread gives memory back to CUDA. */
void gyre_cuda_pool_enter(void);

/** An executor is closed. @is_idle: its launches have ended; if not, parked memory goes back to
 * CUDA, which waits for them, before it is used again. */
void gyre_cuda_pool_leave(bool is_idle);

#endif
