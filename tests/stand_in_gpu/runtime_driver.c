/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/stand_in_gpu/runtime.h"

#include <string.h>

static bool is_host(const struct stand_in_memory *memory)
{
    return memory->kind == STAND_IN_MEMORY_HOST || memory->kind == STAND_IN_MEMORY_REGISTERED;
}

/* And page-locked memory's base, as CUDA. */
static CUresult answer(const struct stand_in_memory *memory, CUpointer_attribute which, void *out)
{
    switch (which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype *)out = memory == NULL    ? 0
                               : is_host(memory) ? CU_MEMORYTYPE_HOST
                                                 : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)out = memory == NULL ? -2 : memory->gpu;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)out = memory == NULL ? 0 : (CUdeviceptr)(uintptr_t)memory->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)out = memory == NULL ? 0 : memory->n_bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)out = memory == NULL ? 0 : memory->id;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static CUresult pointer_get_attributes(unsigned n, CUpointer_attribute *which, void **data_out,
                                       CUdeviceptr pointer)
{
    CUresult result = CUDA_SUCCESS;
    stand_in_enter();
    const struct stand_in_memory *memory = stand_in_memory_find((const void *)(uintptr_t)pointer);
    for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = answer(memory, which[i], data_out[i]);
    (void)stand_in_leave(cudaSuccess);
    return result;
}

static CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus *status_out)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &status) != cudaSuccess)
        return CUDA_ERROR_INVALID_HANDLE;
    *status_out = (CUstreamCaptureStatus)status;
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function_out,
                                             unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result_out)
{
    (void)version;
    (void)flags;
    *result_out = cudaDriverEntryPointSuccess;
    if (strcmp(name, "cuPointerGetAttributes") == 0) {
        CUresult (*function)(unsigned, CUpointer_attribute *, void **, CUdeviceptr) =
            pointer_get_attributes;
        memcpy(function_out, &function, sizeof(function));
    } else if (strcmp(name, "cuStreamIsCapturing") == 0) {
        CUresult (*function)(CUstream, CUstreamCaptureStatus *) = stream_is_capturing;
        memcpy(function_out, &function, sizeof(function));
    } else {
        *function_out = NULL;
        *result_out = cudaDriverEntryPointSymbolNotFound;
    }
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *ptr)
{
    memset(out, 0, sizeof(*out));
    stand_in_enter();
    const struct stand_in_memory *memory = stand_in_memory_find(ptr);
    out->type = memory == NULL    ? cudaMemoryTypeUnregistered
                : is_host(memory) ? cudaMemoryTypeHost
                                  : cudaMemoryTypeDevice;
    out->device = memory == NULL ? -2 : memory->gpu;
    if (memory != NULL) {
        out->devicePointer = (void *)(uintptr_t)ptr;
        out->hostPointer = is_host(memory) ? (void *)(uintptr_t)ptr : NULL;
    }
    return stand_in_leave(cudaSuccess);
}
