/* SPDX-License-Identifier: Apache-2.0
 *
 * Every function makes its GPU the current one and restores the caller's.
 */
#include "core/foundation/device/device.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/device/cuda_error.h"
#include "core/foundation/device/driver_cuda.h"
#include "core/foundation/device/pool_cuda.h"

#include <stdlib.h>
#include <string.h>

struct cuda_device {
    struct gyre_device base;
    pthread_mutex_t lock;
    /* For copies that this thread waits for. start() makes it, as that may allocate. */
    cudaStream_t stream;
    /* One is enough: a waiting stream waits for what was recorded before. */
    cudaEvent_t follow_event;
};

static struct cuda_device *own(struct gyre_device *device)
{
    return (struct cuda_device *)device;
}

#define ON_DEVICE(device, call)                                                      \
    do {                                                                             \
        int previous_ = -1;                                                          \
        GYRE_TRY(gyre_cuda_enter((device)->ordinal, &previous_));                    \
        const cudaError_t error_ = (call);                                           \
        gyre_cuda_leave((device)->ordinal, previous_);                               \
        return error_ == cudaSuccess ? GYRE_SUCCESS : gyre_cuda_fail(error_, #call); \
    } while (0)

#define ON_DEVICE_APART(device, call)                                                \
    do {                                                                             \
        struct gyre_cuda_apart apart_ = {0};                                         \
        GYRE_TRY(gyre_cuda_enter_apart((device)->ordinal, &apart_));                 \
        const cudaError_t error_ = (call);                                           \
        gyre_cuda_leave_apart(&apart_);                                              \
        return error_ == cudaSuccess ? GYRE_SUCCESS : gyre_cuda_fail(error_, #call); \
    } while (0)

/* 1 + the generation of forks that first used CUDA here; 0 = none */
static uint32_t used_in;

static gyre_status cuda_count(int *n_devices_out)
{
    int n_devices = 0;
    const uint32_t now = 1 + gyre_fork_generation(), first_use = gyre_load_relaxed_u32(&used_in);
    if (first_use != 0 && first_use != now)
        return gyre_cuda_fail(cudaErrorInitializationError, "cudaGetDeviceCount");
    /* Succeeds in a child of another user of CUDA; the next call fails. */
    const cudaError_t error = cudaGetDeviceCount(&n_devices);
    if (error == cudaSuccess)
        gyre_store_relaxed_u32(&used_in, now);
    if (error != cudaSuccess) {
        (void)gyre_cuda_fail(error, "cudaGetDeviceCount");
        n_devices = 0;
    } else if (n_devices == 0) {
        (void)gyre_fail(GYRE_ERROR_UNSUPPORTED, "the CUDA driver shows no GPU");
    }
    *n_devices_out = n_devices;
    return GYRE_SUCCESS;
}

static gyre_status cuda_open(int ordinal, struct gyre_device **device_out)
{
    int n_devices = 0;
    GYRE_TRY(cuda_count(&n_devices));
    if (n_devices == 0)
        return gyre_fail_context(GYRE_ERROR_UNSUPPORTED, "no usable CUDA device");
    if (ordinal < 0)
        GYRE_CUDA_TRY(cudaGetDevice(&ordinal));
    if (ordinal >= n_devices)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "CUDA device %d of %d", ordinal, n_devices);
    struct cuda_device *device = calloc(1, sizeof(*device));
    if (device == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "CUDA device %d", ordinal);
    device->base = (struct gyre_device){&gyre_device_cuda, ordinal};
    pthread_mutex_init(&device->lock, NULL);
    *device_out = &device->base;
    return GYRE_SUCCESS;
}

static void cuda_close(struct gyre_device *device)
{
    if (own(device)->follow_event != NULL)
        (void)cudaEventDestroy(own(device)->follow_event);
    if (own(device)->stream != NULL)
        (void)cudaStreamDestroy(own(device)->stream);
    pthread_mutex_destroy(&own(device)->lock);
    free(device);
}

static gyre_status make_own(struct cuda_device *device)
{
    gyre_status status = GYRE_SUCCESS;
    int least = 0, greatest = 0;
    GYRE_LOCKED(&device->lock);
    if (device->stream == NULL) {
        GYRE_CUDA_TRY_GOTO(status, cudaDeviceGetStreamPriorityRange(&least, &greatest), unlock);
        GYRE_CUDA_TRY_GOTO(
            status, cudaStreamCreateWithPriority(&device->stream, cudaStreamNonBlocking, greatest),
            unlock);
    }
    if (device->follow_event == NULL)
        GYRE_CUDA_TRY_GOTO(status,
                           cudaEventCreateWithFlags(&device->follow_event, cudaEventDisableTiming),
                           unlock);
unlock:
    return status;
}

static gyre_status cuda_start(struct gyre_device *device)
{
    struct gyre_cuda_apart apart = {0};
    gyre_status status = GYRE_SUCCESS;
    GYRE_TRY(gyre_cuda_enter_apart(device->ordinal, &apart));
    GYRE_CUDA_TRY_GOTO(status, cudaFree(NULL), leave);
    status = make_own(own(device));
leave:
    gyre_cuda_leave_apart(&apart);
    return status;
}

static gyre_status cuda_info(struct gyre_device *device, struct gyre_device_info *info_out)
{
    struct gyre_device_info info;
    struct cudaDeviceProp properties;
    memset(&info, 0, sizeof(info));
    GYRE_CUDA_TRY(cudaGetDeviceProperties(&properties, device->ordinal));
    GYRE_CUDA_TRY(
        cudaDeviceGetPCIBusId(info.pci_bus_id, (int)sizeof(info.pci_bus_id), device->ordinal));
    info.kind = GYRE_DEVICE_CUDA;
    info.ordinal = device->ordinal;
    memcpy(info.uuid, &properties.uuid, sizeof(info.uuid));
    info.n_sms = (uint32_t)properties.multiProcessorCount;
    info.arch = (uint32_t)(properties.major * 10 + properties.minor);
    *info_out = info;
    return GYRE_SUCCESS;
}

/* Another process maps the requested length, in small pages unless that is rounded. */
static size_t round_to_pages(size_t n_bytes)
{
    const bool is_large =
        n_bytes >= GYRE_LARGE_PAGE_BYTES && n_bytes <= SIZE_MAX - GYRE_LARGE_PAGE_BYTES;
    return is_large ? (n_bytes + GYRE_LARGE_PAGE_BYTES - 1) & ~(GYRE_LARGE_PAGE_BYTES - 1)
                    : n_bytes;
}

static gyre_status cuda_mem_alloc(struct gyre_device *device, size_t n_bytes, void **ptr_out)
{
    ON_DEVICE_APART(device, cudaMalloc(ptr_out, n_bytes > 0 ? round_to_pages(n_bytes) : 1));
}

static gyre_status cuda_mem_free(struct gyre_device *device, void *ptr)
{
    ON_DEVICE_APART(device, cudaFree(ptr));
}

static gyre_status cuda_pool_alloc(struct gyre_device *device, size_t n_bytes, void **ptr_out)
{
    return gyre_cuda_pool_alloc(device->ordinal, GYRE_CUDA_POOL_DEVICE, round_to_pages(n_bytes),
                                ptr_out);
}

static gyre_status cuda_pool_free(struct gyre_device *device, void *ptr)
{
    (void)device;
    return gyre_cuda_pool_free(ptr);
}

static gyre_status cuda_host_alloc(struct gyre_device *device, size_t n_bytes, void **ptr_out)
{
    void *ptr = NULL;
    GYRE_TRY(gyre_cuda_pool_alloc(device->ordinal, GYRE_CUDA_POOL_HOST, n_bytes, &ptr));
    memset(ptr, 0, n_bytes);
    *ptr_out = ptr;
    return GYRE_SUCCESS;
}

static gyre_status cuda_host_register(struct gyre_device *device, void *ptr, size_t n_bytes)
{
    struct gyre_cuda_apart apart = {0};
    void *seen_by_device = NULL;
    GYRE_TRY(gyre_cuda_enter_apart(device->ordinal, &apart));
    cudaError_t error =
        cudaHostRegister(ptr, n_bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error == cudaSuccess)
        error = cudaHostGetDevicePointer(&seen_by_device, ptr, 0);
    gyre_cuda_leave_apart(&apart);
    if (error != cudaSuccess)
        return gyre_cuda_fail(error, "cudaHostRegister");
    if (seen_by_device != ptr)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "GPU %d sees registered host memory at another address", device->ordinal);
    return GYRE_SUCCESS;
}

static gyre_status cuda_host_unregister(struct gyre_device *device, void *ptr)
{
    ON_DEVICE_APART(device, cudaHostUnregister(ptr));
}

/* On an own stream, because the legacy default stream waits for others. @from: NULL = zeros. */
static gyre_status copy_apart(struct gyre_device *base, void *to, const void *from, size_t n_bytes)
{
    struct cuda_device *device = own(base);
    struct gyre_cuda_apart apart = {0};
    gyre_status status = GYRE_SUCCESS;
    GYRE_TRY(gyre_cuda_enter_apart(base->ordinal, &apart));
    GYRE_TRY_GOTO(status, make_own(device), leave);
    pthread_mutex_lock(&device->lock);
    if (from != NULL)
        GYRE_CUDA_TRY_GOTO(
            status, cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDefault, device->stream), unlock);
    else
        GYRE_CUDA_TRY_GOTO(status, cudaMemsetAsync(to, 0, n_bytes, device->stream), unlock);
    GYRE_CUDA_TRY_GOTO(status, cudaStreamSynchronize(device->stream), unlock);
unlock:
    pthread_mutex_unlock(&device->lock);
leave:
    gyre_cuda_leave_apart(&apart);
    return status;
}

static gyre_status cuda_copy(struct gyre_device *device, void *to, const void *from, size_t n_bytes)
{
    return copy_apart(device, to, from, n_bytes);
}

static gyre_status cuda_zero(struct gyre_device *device, void *ptr, size_t n_bytes)
{
    return copy_apart(device, ptr, NULL, n_bytes);
}

static gyre_status cuda_check_pointer(struct gyre_device *device, const void *ptr)
{
    struct cudaPointerAttributes attributes;
    /* The driver is faster than the runtime. */
    const struct gyre_cuda_driver *driver;
    CUmemorytype type = 0;
    int ordinal = -1;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *data[] = {&type, &ordinal};
    if (gyre_cuda_driver_find(&driver) == GYRE_SUCCESS &&
        driver->cuPointerGetAttributes(2, which, data, (CUdeviceptr)(uintptr_t)ptr) ==
            CUDA_SUCCESS &&
        type == CU_MEMORYTYPE_DEVICE && ordinal == device->ordinal)
        return GYRE_SUCCESS;
    GYRE_CUDA_TRY(cudaPointerGetAttributes(&attributes, ptr));
    switch (attributes.type) {
    case cudaMemoryTypeDevice:
        if (attributes.device == device->ordinal)
            return GYRE_SUCCESS;
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "the buffer %p is memory of GPU %d, the communicator's is %d", ptr,
                         attributes.device, device->ordinal);
    case cudaMemoryTypeHost:
    case cudaMemoryTypeManaged:
        return GYRE_SUCCESS;
    case cudaMemoryTypeUnregistered:
        break;
    }
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                     "the buffer %p is ordinary host memory, which GPU %d cannot address", ptr,
                     device->ordinal);
}

static gyre_status cuda_stream_create(struct gyre_device *device, gyre_stream *stream_out)
{
    ON_DEVICE(device, cudaStreamCreateWithFlags((cudaStream_t *)stream_out, cudaStreamNonBlocking));
}

static gyre_status cuda_stream_destroy(struct gyre_device *device, gyre_stream stream)
{
    struct gyre_cuda_apart apart = {0};
    if (stream == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "the default stream (NULL) stays");
    GYRE_TRY(gyre_cuda_enter_apart(device->ordinal, &apart));
    const cudaError_t drained = cudaStreamSynchronize((cudaStream_t)stream);
    const cudaError_t error = cudaStreamDestroy((cudaStream_t)stream);
    gyre_cuda_leave_apart(&apart);
    if (drained != cudaSuccess)
        return gyre_cuda_fail(drained, "cudaStreamSynchronize");
    return error == cudaSuccess ? GYRE_SUCCESS : gyre_cuda_fail(error, "cudaStreamDestroy");
}

static gyre_status cuda_stream_synchronize(struct gyre_device *device, gyre_stream stream)
{
    ON_DEVICE(device, cudaStreamSynchronize((cudaStream_t)stream));
}

static gyre_status cuda_stream_query(struct gyre_device *device, gyre_stream stream)
{
    int previous = -1;
    GYRE_TRY(gyre_cuda_enter(device->ordinal, &previous));
    const cudaError_t error = cudaStreamQuery((cudaStream_t)stream);
    gyre_cuda_leave(device->ordinal, previous);
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return GYRE_IN_PROGRESS;
    }
    return error == cudaSuccess ? GYRE_SUCCESS : gyre_cuda_fail(error, "cudaStreamQuery");
}

static gyre_status find_capture(gyre_stream stream, unsigned long long *id_out)
{
    enum cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    GYRE_CUDA_TRY(
        cudaStreamGetCaptureInfo((cudaStream_t)stream, &capturing, id_out, NULL, NULL, NULL, NULL));
    if (capturing != cudaStreamCaptureStatusActive)
        *id_out = 0;
    return GYRE_SUCCESS;
}

static gyre_status follow(struct cuda_device *device, gyre_stream stream, gyre_stream other)
{
    unsigned long long captures[2] = {0, 0};
    gyre_status status = GYRE_SUCCESS;
    GYRE_TRY(find_capture(stream, &captures[0]));
    GYRE_TRY(find_capture(other, &captures[1]));
    if (captures[0] != captures[1]) /* CUDA would end or extend the capture */
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "a group's calls on two streams, which are not captured together");
    GYRE_LOCKED(&device->lock);
    GYRE_CUDA_TRY_GOTO(status, cudaEventRecord(device->follow_event, (cudaStream_t)other), unlock);
    GYRE_CUDA_TRY_GOTO(status, cudaStreamWaitEvent((cudaStream_t)stream, device->follow_event, 0),
                       unlock);
unlock:
    return status;
}

static gyre_status cuda_stream_follow(struct gyre_device *device, gyre_stream stream,
                                      gyre_stream other)
{
    int previous = -1;
    GYRE_TRY(gyre_cuda_enter(device->ordinal, &previous));
    const gyre_status status = follow(own(device), stream, other);
    gyre_cuda_leave(device->ordinal, previous);
    return status;
}

static gyre_status cuda_attach(struct gyre_device *device)
{
    GYRE_CUDA_TRY(cudaSetDevice(device->ordinal));
    return GYRE_SUCCESS;
}

const struct gyre_device_ops gyre_device_cuda = {
    .kind = GYRE_DEVICE_CUDA,
    .name = "cuda",
    .count = cuda_count,
    .open = cuda_open,
    .close = cuda_close,
    .start = cuda_start,
    .attach = cuda_attach,
    .info = cuda_info,
    .mem_alloc = cuda_mem_alloc,
    .mem_free = cuda_mem_free,
    .pool_alloc = cuda_pool_alloc,
    .pool_free = cuda_pool_free,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_pool_free,
    .host_register = cuda_host_register,
    .host_unregister = cuda_host_unregister,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .check_pointer = cuda_check_pointer,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_synchronize = cuda_stream_synchronize,
    .stream_query = cuda_stream_query,
    .stream_follow = cuda_stream_follow,
};
