/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures of the CUDA runtime, and the thread's current GPU.
 */
#ifndef GYRE_DEVICE_CUDA_ERROR_H
#define GYRE_DEVICE_CUDA_ERROR_H

#include "core/foundation/base/status.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/** OUT_OF_MEMORY, or DEVICE. Clears the runtime's own last error. */
gyre_status gyre_cuda_fail(cudaError_t error, const char *call);

/** Make a GPU the thread's current one, and restore the previous one. */
gyre_status gyre_cuda_enter(int ordinal, int *previous_out);
void gyre_cuda_leave(int ordinal, int previous);

struct gyre_cuda_apart {
    int ordinal;
    int previous;
    enum cudaStreamCaptureMode mode;
};

/** For calls that allocate, load or wait: until gyre_cuda_leave_apart() they do not become part of
 * a graph, even if a thread is capturing a stream. */
gyre_status gyre_cuda_enter_apart(int ordinal, struct gyre_cuda_apart *apart_out);
void gyre_cuda_leave_apart(const struct gyre_cuda_apart *apart);

#define GYRE_CUDA_TRY(call)                           \
    do {                                              \
        const cudaError_t try_error_ = (call);        \
        if (try_error_ != cudaSuccess)                \
            return gyre_cuda_fail(try_error_, #call); \
    } while (0)

#define GYRE_CUDA_TRY_GOTO(status, call, label)           \
    do {                                                  \
        const cudaError_t try_error_ = (call);            \
        if (try_error_ != cudaSuccess) {                  \
            (status) = gyre_cuda_fail(try_error_, #call); \
            goto label;                                   \
        }                                                 \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
