/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_DEVICE_CUDA_ERROR_H
#define GYRE_DEVICE_CUDA_ERROR_H

#include "core/foundation/base/status.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/** OUT_OF_MEMORY or DEVICE. Clears the runtime's last error. */
gyre_status gyre_cuda_fail(cudaError_t error, const char *call);

gyre_status gyre_cuda_enter(int ordinal, int *previous_out);
void gyre_cuda_leave(int ordinal, int previous);

struct gyre_cuda_apart {
    int ordinal;
    int previous;
    enum cudaStreamCaptureMode mode;
};

/** Until gyre_cuda_leave_apart() calls that allocate, load or wait stay out of a graph that a
 * thread captures. */
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
