/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's functions, which the CUDA runtime looks up, so gyre does not link to them.
 */
#ifndef GYRE_DEVICE_DRIVER_CUDA_H
#define GYRE_DEVICE_DRIVER_CUDA_H

#include "core/gyre.h"

#include <cuda.h>

/* X(function, its variant's CUDA version, parameters) */
#define GYRE_CUDA_DRIVER_TABLE(X)                                                     \
    X(cuPointerGetAttributes, 12000,                                                  \
      (unsigned n, CUpointer_attribute *which, void **data_out, CUdeviceptr pointer)) \
    X(cuStreamIsCapturing, 12000, (CUstream stream, CUstreamCaptureStatus * status_out))

struct gyre_cuda_driver {
#define GYRE_CUDA_DRIVER_FIELD(name, version, parameters) CUresult(*name) parameters;
    GYRE_CUDA_DRIVER_TABLE(GYRE_CUDA_DRIVER_FIELD)
#undef GYRE_CUDA_DRIVER_FIELD
};

/** Errors: DEVICE (no driver, or an older one). */
gyre_status gyre_cuda_driver_find(const struct gyre_cuda_driver **driver_out);

struct gyre_cuda_allocation {
    uint64_t base;
    uint64_t n_bytes;
    uint64_t id; /* unlike addresses never used twice */
};

/** Errors: DEVICE (not GPU memory, or unknown). */
gyre_status gyre_cuda_allocation_find(const void *ptr, struct gyre_cuda_allocation *allocation_out);

#endif
