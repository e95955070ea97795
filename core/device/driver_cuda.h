/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the CUDA driver. The runtime finds the driver, so nothing links to it.
 */
#ifndef GYRE_DEVICE_DRIVER_CUDA_H
#define GYRE_DEVICE_DRIVER_CUDA_H

#include "core/gyre.h"

#include <cuda.h>

/* X(function, CUDA version that it is asked for in, its parameters) */
#define GYRE_CUDA_DRIVER_TABLE(X)                                                     \
    X(cuPointerGetAttributes, 12000,                                                  \
      (unsigned n, CUpointer_attribute *which, void **data_out, CUdeviceptr pointer)) \
    X(cuStreamIsCapturing, 12000, (CUstream stream, CUstreamCaptureStatus * status_out))

struct gyre_cuda_driver {
#define GYRE_CUDA_DRIVER_FIELD(name, version, parameters) CUresult(*name) parameters;
    GYRE_CUDA_DRIVER_TABLE(GYRE_CUDA_DRIVER_FIELD)
#undef GYRE_CUDA_DRIVER_FIELD
};

/** gyre_cuda_driver_find - the driver's functions; looked up once a process.
 * Errors: DEVICE (there is no driver, or it lacks one of them). */
gyre_status gyre_cuda_driver_find(const struct gyre_cuda_driver **driver_out);

#endif
