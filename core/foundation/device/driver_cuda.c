/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/device/driver_cuda.h"

#include "core/foundation/device/cuda_error.h"
#include "core/foundation/base/status.h"
#include "core/foundation/base/thread.h"

#include <pthread.h>
#include <unistd.h>

static const struct {
    const char *name;
    unsigned version;
} functions[] = {
#define FUNCTION(name, version, parameters) {#name, version},
    GYRE_CUDA_DRIVER_TABLE(FUNCTION)
#undef FUNCTION
};

#define N_FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

_Static_assert(sizeof(struct gyre_cuda_driver) == N_FUNCTIONS * sizeof(void *), "one field each");

static struct {
    pthread_once_t once;
    union {
        struct gyre_cuda_driver driver;
        void *functions[N_FUNCTIONS];
    };
    cudaError_t error;
    const char *missing;
} found = {.once = PTHREAD_ONCE_INIT};

static void find_all(void)
{
    for (unsigned i = 0; i < N_FUNCTIONS && found.error == cudaSuccess; i++) {
        enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
        const char *name = functions[i].name;
        found.error = cudaGetDriverEntryPointByVersion(
            name, &found.functions[i], functions[i].version, cudaEnableDefault, &result);
        if (result != cudaDriverEntryPointSuccess || found.functions[i] == NULL)
            found.missing = name;
    }
}

gyre_status gyre_cuda_driver_find(const struct gyre_cuda_driver **driver_out)
{
    (void)pthread_once(&found.once, find_all);
    if (found.error != cudaSuccess)
        return gyre_cuda_fail(found.error, "cudaGetDriverEntryPointByVersion");
    if (found.missing != NULL)
        return gyre_fail(GYRE_ERROR_DEVICE, "the CUDA driver has no %s", found.missing);
    *driver_out = &found.driver;
    return GYRE_SUCCESS;
}

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
