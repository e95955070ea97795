/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks the driver for the allocation of an address (core/foundation/device/memory_cuda.h).
 */
#include "core/foundation/device/memory_cuda.h"

#include "core/foundation/base/status.h"
#include "core/foundation/device/driver_cuda.h"

gyre_status gyre_cuda_allocation_find(const void *ptr, struct gyre_cuda_allocation *allocation_out)
{
    const struct gyre_cuda_driver *driver;
    CUdeviceptr base = 0;
    size_t n_bytes = 0;
    unsigned long long id = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_BUFFER_ID};
    void *data[] = {&base, &n_bytes, &id};
    GYRE_TRY(gyre_cuda_driver_find(&driver));
    const CUresult result =
        driver->cuPointerGetAttributes(3, which, data, (CUdeviceptr)(uintptr_t)ptr);
    if (result != CUDA_SUCCESS || base == 0)
        return gyre_fail(GYRE_ERROR_DEVICE, "%p is in no allocation of a GPU (driver error %d)",
                         ptr, (int)result);
    *allocation_out = (struct gyre_cuda_allocation){base, n_bytes, id};
    return GYRE_SUCCESS;
}
