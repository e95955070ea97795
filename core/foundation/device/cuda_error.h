/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns failures of the CUDA runtime into causes, and switches a thread's current GPU. Only files
 * that include CUDA headers use this.
 */
#ifndef GYRE_DEVICE_CUDA_ERROR_H
#define GYRE_DEVICE_CUDA_ERROR_H

#include "core/foundation/base/status.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/** gyre_cuda_fail - record a CUDA failure as this thread's cause; out of memory becomes
 * OUT_OF_MEMORY, everything else DEVICE. Clears the runtime's own last error. */
gyre_status gyre_cuda_fail(cudaError_t error, const char *call);

/** gyre_cuda_enter / gyre_cuda_leave - make a GPU the calling thread's current one, and restore the
 * previous one.
 * @previous_out: to be given to gyre_cuda_leave(). */
gyre_status gyre_cuda_enter(int ordinal, int *previous_out);
void gyre_cuda_leave(int ordinal, int previous);

/* State of gyre_cuda_enter_apart(), for gyre_cuda_leave_apart(). */
struct gyre_cuda_apart {
    int ordinal;
    int previous;
    enum cudaStreamCaptureMode mode;
};

/** gyre_cuda_enter_apart - as gyre_cuda_enter(), for calls that allocate, load or wait. Until
 * gyre_cuda_leave_apart() the thread's CUDA calls are carried out at once and do not become part of
 * a graph, even if this thread or another one is capturing a stream. */
gyre_status gyre_cuda_enter_apart(int ordinal, struct gyre_cuda_apart *apart_out);
void gyre_cuda_leave_apart(const struct gyre_cuda_apart *apart);

/** Return from the calling function if the CUDA call fails. */
#define GYRE_CUDA_TRY(call)                           \
    do {                                              \
        const cudaError_t try_error_ = (call);        \
        if (try_error_ != cudaSuccess)                \
            return gyre_cuda_fail(try_error_, #call); \
    } while (0)

/** Go to `label` if the CUDA call fails, with the status in the variable `status`. */
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
