/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's words on addresses; the runtime finds the driver, so nothing links to it.
 */
#include "core/device/memory_cuda.h"

#include "core/device/cuda_error.h"

#include <cuda.h>

typedef CUresult (*get_attributes_fn)(unsigned n, CUpointer_attribute *which, void **data,
                                      CUdeviceptr ptr);

static gyre_status find_function(get_attributes_fn *function_out)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    GYRE_CUDA_TRY(cudaGetDriverEntryPointByVersion("cuPointerGetAttributes", &function, 12000,
                                                   cudaEnableDefault, &found));
#else
    GYRE_CUDA_TRY(
        cudaGetDriverEntryPoint("cuPointerGetAttributes", &function, cudaEnableDefault, &found));
#endif
    if (found != cudaDriverEntryPointSuccess || function == NULL)
        return gyre_fail(GYRE_ERROR_DEVICE, "the CUDA driver has no cuPointerGetAttributes");
    *(void **)function_out = function;
    return GYRE_SUCCESS;
}

gyre_status gyre_cuda_allocation_find(const void *ptr, struct gyre_cuda_allocation *allocation_out)
{
    get_attributes_fn get_attributes = NULL;
    CUdeviceptr base = 0;
    size_t n_bytes = 0;
    unsigned long long id = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_BUFFER_ID};
    void *data[] = {&base, &n_bytes, &id};
    GYRE_TRY(find_function(&get_attributes));
    const CUresult result = get_attributes(3, which, data, (CUdeviceptr)(uintptr_t)ptr);
    if (result != CUDA_SUCCESS || base == 0)
        return gyre_fail(GYRE_ERROR_DEVICE, "%p is in no allocation of a GPU (driver error %d)",
                         ptr, (int)result);
    *allocation_out = (struct gyre_cuda_allocation){base, n_bytes, id};
    return GYRE_SUCCESS;
}
