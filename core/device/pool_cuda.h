/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU memory and pinned host memory of communicators. CUDA's own free waits for every kernel of
 * the GPU and of its peers, and meanwhile keeps launches out; a kernel of another communicator of
 * this process may wait for exactly such a launch. So memory that is freed while an executor of
 * the process is open is parked: a later communicator gets it, or CUDA gets it back when the last
 * executor is closed.
 */
#ifndef GYRE_DEVICE_POOL_CUDA_H
#define GYRE_DEVICE_POOL_CUDA_H

#include "core/device/device.h"

enum gyre_cuda_pool_kind {
    GYRE_CUDA_POOL_DEVICE,
    GYRE_CUDA_POOL_HOST /* pinned, mapped, portable */
};

/** gyre_cuda_pool_alloc - parked memory of the same size, else new memory; not zeroed.
 * Errors: OUT_OF_MEMORY, DEVICE. */
gyre_status gyre_cuda_pool_alloc(int ordinal, enum gyre_cuda_pool_kind kind, size_t n_bytes,
                                 void **ptr_out);

/** gyre_cuda_pool_free - no launch that is still to come may use it. @ptr: may be NULL. */
gyre_status gyre_cuda_pool_free(void *ptr);

/** gyre_cuda_pool_enter - an executor is opened. Waits while another thread gives memory back to
 * CUDA. */
void gyre_cuda_pool_enter(void);

/** gyre_cuda_pool_leave - an executor is closed.
 * @is_idle: all its launches are over. If not, parked memory is not used again before it was given
 * back to CUDA, which waits for them. */
void gyre_cuda_pool_leave(bool is_idle);

#endif
