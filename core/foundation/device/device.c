/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/device/device.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"
#include "core/foundation/device/host_memory.h"
#include "core/foundation/device/host_stream.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* gyre.h promises whole pages, which separate the users' buffers. */
#define MEM_ALIGN_BYTES 4096

static struct gyre_device the_host = {&gyre_device_host, -1};

static gyre_status host_count(int *n_devices_out)
{
    *n_devices_out = 1;
    return GYRE_SUCCESS;
}

static gyre_status host_open(int ordinal, struct gyre_device **device_out)
{
    (void)ordinal;
    *device_out = &the_host;
    return GYRE_SUCCESS;
}

static void host_close(struct gyre_device *device)
{
    (void)device;
}

static gyre_status host_start(struct gyre_device *device)
{
    (void)device;
    return GYRE_SUCCESS;
}

static gyre_status host_info(struct gyre_device *device, struct gyre_device_info *info_out)
{
    struct gyre_device_info info;
    cpu_set_t usable;
    (void)device;
    memset(&info, 0, sizeof(info));
    info.kind = GYRE_DEVICE_HOST;
    info.ordinal = -1;
    info.n_sms = 1;
    if (sched_getaffinity(0, sizeof(usable), &usable) == 0 && CPU_COUNT(&usable) > 0)
        info.n_sms = (uint32_t)CPU_COUNT(&usable);
    *info_out = info;
    return GYRE_SUCCESS;
}

/* Windows may share it with other processes. */
static gyre_status host_mem_alloc(struct gyre_device *device, size_t n_bytes, void **ptr_out)
{
    (void)device;
    return gyre_host_memory_alloc(n_bytes, ptr_out);
}

static gyre_status host_mem_free(struct gyre_device *device, void *ptr)
{
    (void)device;
    return gyre_host_memory_free(ptr);
}

static gyre_status host_pool_alloc(struct gyre_device *device, size_t n_bytes, void **ptr_out)
{
    (void)device;
    if (n_bytes > SIZE_MAX - MEM_ALIGN_BYTES)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory",
                         n_bytes);
    const size_t n_rounded = (size_t)gyre_round_up(n_bytes == 0 ? 1 : n_bytes, MEM_ALIGN_BYTES);
    void *ptr = aligned_alloc(MEM_ALIGN_BYTES, n_rounded);
    if (ptr == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory",
                         n_bytes);
    *ptr_out = ptr;
    return GYRE_SUCCESS;
}

static gyre_status host_pool_free(struct gyre_device *device, void *ptr)
{
    (void)device;
    free(ptr);
    return GYRE_SUCCESS;
}

static gyre_status host_register(struct gyre_device *device, void *ptr, size_t n_bytes)
{
    (void)device;
    (void)ptr;
    (void)n_bytes;
    return GYRE_SUCCESS;
}

static gyre_status host_unregister(struct gyre_device *device, void *ptr)
{
    (void)device;
    (void)ptr;
    return GYRE_SUCCESS;
}

static gyre_status host_alloc(struct gyre_device *device, size_t n_bytes, void **ptr_out)
{
    GYRE_TRY(host_pool_alloc(device, n_bytes, ptr_out));
    memset(*ptr_out, 0, n_bytes);
    return GYRE_SUCCESS;
}

static gyre_status host_copy(struct gyre_device *device, void *to, const void *from, size_t n_bytes)
{
    (void)device;
    gyre_copy(to, from, n_bytes);
    return GYRE_SUCCESS;
}

static gyre_status host_zero(struct gyre_device *device, void *ptr, size_t n_bytes)
{
    (void)device;
    memset(ptr, 0, n_bytes);
    return GYRE_SUCCESS;
}

static gyre_status host_check_pointer(struct gyre_device *device, const void *ptr)
{
    (void)device;
    if (ptr == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "the buffer is NULL");
    return GYRE_SUCCESS;
}

static gyre_status host_stream_create(struct gyre_device *device, gyre_stream *stream_out)
{
    (void)device;
    return gyre_host_stream_create(stream_out);
}

static gyre_status host_stream_destroy(struct gyre_device *device, gyre_stream stream)
{
    (void)device;
    return gyre_host_stream_destroy(stream);
}

static gyre_status host_stream_synchronize(struct gyre_device *device, gyre_stream stream)
{
    (void)device;
    return gyre_host_stream_synchronize(stream);
}

static gyre_status host_stream_query(struct gyre_device *device, gyre_stream stream)
{
    (void)device;
    return gyre_host_stream_query(stream);
}

static gyre_status host_stream_follow(struct gyre_device *device, gyre_stream stream,
                                      gyre_stream other)
{
    (void)device;
    return gyre_host_stream_follow(stream, other);
}

const struct gyre_device_ops gyre_device_host = {
    .kind = GYRE_DEVICE_HOST,
    .name = "host",
    .count = host_count,
    .open = host_open,
    .close = host_close,
    .start = host_start,
    .attach = host_start,
    .info = host_info,
    .mem_alloc = host_mem_alloc,
    .mem_free = host_mem_free,
    .pool_alloc = host_pool_alloc,
    .pool_free = host_pool_free,
    .host_alloc = host_alloc,
    .host_free = host_pool_free,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .copy = host_copy,
    .zero = host_zero,
    .check_pointer = host_check_pointer,
    .stream_create = host_stream_create,
    .stream_destroy = host_stream_destroy,
    .stream_synchronize = host_stream_synchronize,
    .stream_query = host_stream_query,
    .stream_follow = host_stream_follow,
};

static gyre_status find_cuda(const struct gyre_device_ops **ops_out)
{
#ifdef GYRE_WITH_CUDA
    int n_devices = 0;
    GYRE_TRY(gyre_device_cuda.count(&n_devices));
    if (n_devices > 0) {
        *ops_out = &gyre_device_cuda;
        return GYRE_SUCCESS;
    }
    return gyre_fail_context(GYRE_ERROR_UNSUPPORTED, "no usable CUDA device");
#else
    (void)ops_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "no CUDA device: this gyre was built without CUDA");
#endif
}

gyre_status gyre_device_find(gyre_device_kind kind, const struct gyre_device_ops **ops_out)
{
    switch (kind) {
    case GYRE_DEVICE_AUTO: {
        const gyre_status status = find_cuda(ops_out);
        if (status == GYRE_ERROR_INVALID_USAGE)
            return status;
        if (status != GYRE_SUCCESS)
            *ops_out = &gyre_device_host;
        return GYRE_SUCCESS;
    }
    case GYRE_DEVICE_HOST:
        *ops_out = &gyre_device_host;
        return GYRE_SUCCESS;
    case GYRE_DEVICE_CUDA:
        return find_cuda(ops_out);
    }
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "unknown device kind %d", (int)kind);
}
