/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices, their attributes, and errors.
 */
#include "tests/stand_in_gpu/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_SMS        132U /* of an H100 */
#define MOST_SMS           512U
#define SHOWN_CUDA_VERSION 13000

pthread_mutex_t stand_in_lock = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local int current_gpu;
static _Thread_local cudaError_t last_error;
static bool peers[STAND_IN_MAX_GPUS][STAND_IN_MAX_GPUS]; /* access is enabled */

#define ERROR_TABLE(X)                                                                             \
    X(cudaSuccess, "no error")                                                                     \
    X(cudaErrorInvalidValue, "invalid argument")                                                   \
    X(cudaErrorMemoryAllocation, "out of memory")                                                  \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                            \
    X(cudaErrorInvalidDeviceFunction, "no table of kernels has this function")                     \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                   \
    X(cudaErrorNotReady, "device not ready")                                                       \
    X(cudaErrorNotSupported, "operation not supported by the stand-in GPU")                        \
    X(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled")                         \
    X(cudaErrorHostMemoryAlreadyRegistered, "the memory is already registered")                    \
    X(cudaErrorHostMemoryNotRegistered, "the memory is not registered")                            \
    X(cudaErrorMapBufferObjectFailed, "the memory of another process cannot be mapped")            \
    X(cudaErrorCapturedEvent, "the event was recorded in a capture")                               \
    X(cudaErrorIllegalState, "the stream is being captured already")                               \
    X(cudaErrorStreamCaptureUnsupported, "the call is not permitted while a stream is captured")   \
    X(cudaErrorStreamCaptureInvalidated, "a former error has ended the capture")                   \
    X(cudaErrorStreamCaptureMerge, "two captures would become one")                                \
    X(cudaErrorStreamCaptureUnmatched, "the capture did not begin on this stream")                 \
    X(cudaErrorStreamCaptureUnjoined, "work of the capture is not joined to its first stream")     \
    X(cudaErrorStreamCaptureIsolation, "an operation of the capture depends on one outside of it") \
    X(cudaErrorStreamCaptureWrongThread, "another thread began the capture")

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
#define ROW(error, text) {error, #error, text},
    ERROR_TABLE(ROW)
#undef ROW
};

#define N_ERRORS (sizeof(errors) / sizeof(errors[0]))

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < N_ERRORS; i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < N_ERRORS; i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t stand_in_result(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

void stand_in_enter(void)
{
    pthread_mutex_lock(&stand_in_lock);
}

cudaError_t stand_in_leave(cudaError_t error)
{
    pthread_mutex_unlock(&stand_in_lock);
    return stand_in_result(error);
}

uint32_t stand_in_setting(const char *name, uint32_t fallback, uint32_t most)
{
    const char *text = getenv(name);
    char *end = NULL;
    if (text == NULL)
        return fallback;
    const unsigned long value = strtoul(text, &end, 10);
    if (*text >= '0' && *text <= '9' && *end == '\0' && value >= 1 && value <= most)
        return (uint32_t)value;
    fprintf(stderr, "stand-in GPU: %s is \"%s\", not a number from 1 to %u\n", name, text, most);
    exit(1);
}

uint64_t stand_in_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

void *stand_in_realloc(void *ptr, size_t n_bytes)
{
    void *more = realloc(ptr, n_bytes > 0 ? n_bytes : 1);
    if (more != NULL)
        return more;
    fprintf(stderr, "stand-in GPU: the host has no memory for %zu bytes\n", n_bytes);
    abort();
}

uint32_t stand_in_n_gpus(void)
{
    return stand_in_setting("STAND_IN_GPUS", TEST_STAND_IN_GPU, STAND_IN_MAX_GPUS);
}

static int n_sms(void)
{
    return (int)stand_in_setting("STAND_IN_SMS", DEFAULT_SMS, MOST_SMS);
}

static bool is_gpu(int gpu)
{
    return gpu >= 0 && (uint32_t)gpu < stand_in_n_gpus();
}

int stand_in_gpu(void)
{
    return current_gpu;
}

cudaError_t cudaGetDeviceCount(int *n_out)
{
    *n_out = (int)stand_in_n_gpus();
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *gpu_out)
{
    *gpu_out = current_gpu;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int gpu)
{
    if (!is_gpu(gpu))
        return stand_in_result(cudaErrorInvalidDevice);
    current_gpu = gpu;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version_out)
{
    *version_out = SHOWN_CUDA_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version_out)
{
    *version_out = SHOWN_CUDA_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int gpu)
{
    if (!is_gpu(gpu))
        return stand_in_result(cudaErrorInvalidDevice);
    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "stand-in GPU");
    memcpy(out->uuid.bytes, "stand-in GPU   ", sizeof(out->uuid.bytes));
    out->uuid.bytes[sizeof(out->uuid.bytes) - 1] = (char)gpu;
    out->totalGlobalMem = STAND_IN_GPU_MEMORY_BYTES;
    out->major = 9;
    out->minor = 0;
    out->multiProcessorCount = n_sms();
    out->warpSize = 32;
    out->maxThreadsPerBlock = 1024;
    out->sharedMemPerBlockOptin = STAND_IN_SHARED_BYTES;
    out->pciBusID = gpu + 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value_out, enum cudaDeviceAttr attribute, int gpu)
{
    if (!is_gpu(gpu))
        return stand_in_result(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value_out = STAND_IN_SHARED_BYTES;
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value_out = n_sms();
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value_out = 9;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value_out = 0;
        return cudaSuccess;
    default:
        return stand_in_result(cudaErrorInvalidValue);
    }
}

cudaError_t cudaDeviceGetPCIBusId(char *id_out, int n_bytes, int gpu)
{
    if (!is_gpu(gpu))
        return stand_in_result(cudaErrorInvalidDevice);
    snprintf(id_out, (size_t)n_bytes, "0000:%02x:00.0", (unsigned)gpu + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int *gpu_out, const char *id)
{
    unsigned domain, bus, slot;
    if (sscanf(id, "%x:%x:%x.0", &domain, &bus, &slot) != 3 || domain != 0 || slot != 0 ||
        !is_gpu((int)bus - 1))
        return stand_in_result(cudaErrorInvalidDevice);
    *gpu_out = (int)bus - 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least_out, int *greatest_out)
{
    *least_out = 0;
    *greatest_out = -5;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *n_free_out, size_t *n_all_out)
{
    stand_in_enter();
    const size_t n_used = stand_in_memory_in_use(current_gpu);
    *n_all_out = STAND_IN_GPU_MEMORY_BYTES;
    *n_free_out = n_used < STAND_IN_GPU_MEMORY_BYTES ? STAND_IN_GPU_MEMORY_BYTES - n_used : 0;
    return stand_in_leave(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
    stand_in_enter();
    const cudaError_t error = stand_in_capture_check();
    if (error == cudaSuccess)
        stand_in_gpu_wait(current_gpu);
    return stand_in_leave(error);
}

cudaError_t cudaDeviceCanAccessPeer(int *can_out, int gpu, int peer)
{
    if (!is_gpu(gpu) || !is_gpu(peer))
        return stand_in_result(cudaErrorInvalidDevice);
    *can_out = gpu != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    if (!is_gpu(peer) || peer == current_gpu)
        return stand_in_result(cudaErrorInvalidDevice);
    if (flags != 0)
        return stand_in_result(cudaErrorInvalidValue);
    stand_in_enter();
    const bool was_enabled = peers[current_gpu][peer];
    peers[current_gpu][peer] = true;
    return stand_in_leave(was_enabled ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess);
}

/* As NVLinks: equally fast, with atomics. */
cudaError_t cudaDeviceGetP2PAttribute(int *value_out, enum cudaDeviceP2PAttr attribute, int gpu,
                                      int peer)
{
    if (!is_gpu(gpu) || !is_gpu(peer) || gpu == peer)
        return stand_in_result(cudaErrorInvalidDevice);
    *value_out = attribute == cudaDevP2PAttrAccessSupported ||
                 attribute == cudaDevP2PAttrNativeAtomicSupported;
    return cudaSuccess;
}
