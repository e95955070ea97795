/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's free waits for all kernels of the GPU and of its peers, and blocks launches. A running
 * kernel of another communicator may wait for such a launch: a deadlock. So memory freed while an
 * executor is open is parked, until a communicator takes it or the last executor is closed.
 */
#ifndef GYRE_DEVICE_POOL_CUDA_H
#define GYRE_DEVICE_POOL_CUDA_H

#include "core/foundation/device/device.h"

enum gyre_cuda_pool_kind { GYRE_CUDA_POOL_DEVICE, GYRE_CUDA_POOL_HOST };

/** Not zeroed: parked memory of the same size if possible. Errors: OUT_OF_MEMORY, DEVICE. */
gyre_status gyre_cuda_pool_alloc(int ordinal, enum gyre_cuda_pool_kind kind, size_t n_bytes,
                                 void **ptr_out);

/** No later launch may use it. @ptr: may be NULL. */
gyre_status gyre_cuda_pool_free(void *ptr);

/** For a new executor. Waits while a thread gives memory back to CUDA. */
void gyre_cuda_pool_enter(void);

/** @is_idle: its launches have ended. Otherwise CUDA, which waits for them, takes parked memory
 * back before any reuse. */
void gyre_cuda_pool_leave(bool is_idle);

#endif
