/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/runtime/upload.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "core/foundation/device/cuda_error.h"

#include <string.h>

/* A copy takes microseconds unless the GPU has stopped. */
#define UPLOAD_TIMEOUT_NS 10000000000ULL

gyre_status gyre_cuda_uploader_open(struct gyre_cuda_uploader *uploader, void *staging)
{
    int least = 0, greatest = 0;
    GYRE_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    GYRE_CUDA_TRY(cudaStreamCreateWithPriority(&uploader->stream, cudaStreamNonBlocking, greatest));
    uploader->staging = staging;
    return GYRE_SUCCESS;
}

void gyre_cuda_uploader_close(struct gyre_cuda_uploader *uploader)
{
    if (uploader->stream != NULL)
        (void)cudaStreamDestroy(uploader->stream);
    uploader->stream = NULL;
}

gyre_status gyre_cuda_await_stream(cudaStream_t stream, struct gyre_fault *fault)
{
    const uint64_t end_ns = gyre_now_ns() + UPLOAD_TIMEOUT_NS;
    for (;;) {
        const cudaError_t error = cudaStreamQuery(stream);
        if (error == cudaSuccess)
            return GYRE_SUCCESS;
        if (error != cudaErrorNotReady)
            return gyre_cuda_fail(error, "cudaStreamQuery");
        (void)cudaGetLastError();
        GYRE_TRY(gyre_fault_status(fault));
        if (gyre_now_ns() > end_ns)
            return gyre_fail(GYRE_ERROR_TIMEOUT,
                             "a copy of a program to the GPU has not ended after %d s",
                             (int)(UPLOAD_TIMEOUT_NS / 1000000000ULL));
        sched_yield();
    }
}

gyre_status gyre_cuda_upload(struct gyre_cuda_uploader *uploader, struct gyre_fault *fault,
                             void *to, const void *from, size_t n_bytes)
{
    if (uploader->is_unfinished)
        GYRE_TRY(gyre_cuda_await_stream(uploader->stream, fault));
    uploader->is_unfinished = true;
    for (size_t at = 0; at < n_bytes; at += GYRE_CUDA_STAGING_BYTES) {
        const size_t n_piece = (size_t)gyre_min_u64(n_bytes - at, GYRE_CUDA_STAGING_BYTES);
        memcpy(uploader->staging, (const unsigned char *)from + at, n_piece);
        GYRE_CUDA_TRY(cudaMemcpyAsync((unsigned char *)to + at, uploader->staging, n_piece,
                                      cudaMemcpyHostToDevice, uploader->stream));
        GYRE_TRY(gyre_cuda_await_stream(uploader->stream, fault));
    }
    uploader->is_unfinished = false;
    return GYRE_SUCCESS;
}
