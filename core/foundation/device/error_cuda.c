/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns CUDA failures into causes, and switches a thread's current device
 * (core/foundation/device/cuda_error.h).
 */
#include "core/foundation/device/cuda_error.h"

#include "core/foundation/base/thread.h"

#include <unistd.h>

gyre_status gyre_cuda_fail(cudaError_t error, const char *call)
{
    (void)cudaGetLastError();
    if (error == cudaErrorInitializationError)
        return gyre_fail(
            gyre_fork_generation() > 0 ? GYRE_ERROR_INVALID_USAGE : GYRE_ERROR_DEVICE,
            "%s: cudaErrorInitializationError: CUDA cannot be used in pid %d. A process that was "
            "forked from one that had used CUDA has to be started by exec instead "
            "(Python: the start method \"spawn\"), or forked before CUDA is used",
            call, (int)getpid());
    return gyre_fail(error == cudaErrorMemoryAllocation ? GYRE_ERROR_OUT_OF_MEMORY
                                                        : GYRE_ERROR_DEVICE,
                     "%s: %s (%s)", call, cudaGetErrorString(error), cudaGetErrorName(error));
}

gyre_status gyre_cuda_enter(int ordinal, int *previous_out)
{
    int previous = -1;
    GYRE_CUDA_TRY(cudaGetDevice(&previous));
    if (previous != ordinal)
        GYRE_CUDA_TRY(cudaSetDevice(ordinal));
    *previous_out = previous;
    return GYRE_SUCCESS;
}

void gyre_cuda_leave(int ordinal, int previous)
{
    if (previous != ordinal && previous >= 0)
        (void)cudaSetDevice(previous);
}

gyre_status gyre_cuda_enter_apart(int ordinal, struct gyre_cuda_apart *apart_out)
{
    struct gyre_cuda_apart apart = {ordinal, -1, cudaStreamCaptureModeRelaxed};
    GYRE_TRY(gyre_cuda_enter(ordinal, &apart.previous));
    const cudaError_t error = cudaThreadExchangeStreamCaptureMode(&apart.mode);
    if (error != cudaSuccess) {
        gyre_cuda_leave(ordinal, apart.previous);
        return gyre_cuda_fail(error, "cudaThreadExchangeStreamCaptureMode");
    }
    *apart_out = apart;
    return GYRE_SUCCESS;
}

void gyre_cuda_leave_apart(const struct gyre_cuda_apart *apart)
{
    enum cudaStreamCaptureMode mode = apart->mode;
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    gyre_cuda_leave(apart->ordinal, apart->previous);
}
