/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies to the GPU while kernels run, through pinned memory on a stream of the highest priority,
 * which shares no hardware queue with the user's streams, where a kernel may wait for a peer.
 */
#ifndef GYRE_KERNELS_CUDA_UPLOAD_H
#define GYRE_KERNELS_CUDA_UPLOAD_H

#include "core/foundation/base/thread.h"

#include <cuda_runtime_api.h>

/* Longer copies go in pieces. */
#define GYRE_CUDA_STAGING_BYTES ((size_t)(64 << 10))

struct gyre_cuda_uploader {
    cudaStream_t stream;
    void *staging;      /* pinned, GYRE_CUDA_STAGING_BYTES */
    bool is_unfinished; /* an unseen copy may still read the staging memory */
};

/** gyre_cuda_uploader_open - @staging: stays the caller's. The device is current. */
gyre_status gyre_cuda_uploader_open(struct gyre_cuda_uploader *uploader, void *staging);
void gyre_cuda_uploader_close(struct gyre_cuda_uploader *uploader);

/** gyre_cuda_upload - returns when the bytes are on the GPU. The device is current, the thread
 * apart (gyre_cuda_enter_apart). One thread at a time. Errors: DEVICE, TIMEOUT, the fault's. */
gyre_status gyre_cuda_upload(struct gyre_cuda_uploader *uploader, struct gyre_fault *fault,
                             void *to, const void *from, size_t n_bytes);

/** gyre_cuda_await_stream - polls. Errors: as gyre_cuda_upload(). */
gyre_status gyre_cuda_await_stream(cudaStream_t stream, struct gyre_fault *fault);

#endif
