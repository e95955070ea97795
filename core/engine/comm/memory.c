/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls for memory and streams, for callers without a CUDA runtime of their own.
 */
#include "core/foundation/base/status.h"
#include "core/foundation/device/device.h"

/* A device opened for the duration of one call. */
static gyre_status open_device(gyre_device_kind kind, int ordinal, struct gyre_device **device_out)
{
    const struct gyre_device_ops *ops;
    GYRE_TRY(gyre_device_find(kind, &ops));
    return ops->open(ordinal, device_out);
}

gyre_status gyre_get_device(int *ordinal_out)
{
    if (ordinal_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "get_device: ordinal_out is NULL");
    struct gyre_device *device;
    struct gyre_device_info info;
    GYRE_TRY(open_device(GYRE_DEVICE_AUTO, -1, &device));
    const gyre_status status = device->ops->info(device, &info);
    device->ops->close(device);
    if (status == GYRE_SUCCESS)
        *ordinal_out = info.ordinal;
    return status;
}

gyre_status gyre_mem_alloc(void **ptr_out, size_t n_bytes, gyre_device_kind kind, int ordinal)
{
    if (ptr_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "mem_alloc: ptr_out is NULL");
    struct gyre_device *device;
    GYRE_TRY(open_device(kind, ordinal, &device));
    const gyre_status status = device->ops->mem_alloc(device, n_bytes, ptr_out);
    device->ops->close(device);
    return status;
}

gyre_status gyre_mem_free(void *ptr, gyre_device_kind kind)
{
    if (ptr == NULL)
        return GYRE_SUCCESS;
    struct gyre_device *device;
    GYRE_TRY(open_device(kind, -1, &device));
    const gyre_status status = device->ops->mem_free(device, ptr);
    device->ops->close(device);
    return status;
}

gyre_status gyre_stream_create(gyre_stream *stream_out, gyre_device_kind kind, int ordinal)
{
    if (stream_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "stream_create: stream_out is NULL");
    struct gyre_device *device;
    GYRE_TRY(open_device(kind, ordinal, &device));
    const gyre_status status = device->ops->stream_create(device, stream_out);
    device->ops->close(device);
    return status;
}

gyre_status gyre_stream_destroy(gyre_stream stream, gyre_device_kind kind)
{
    struct gyre_device *device;
    GYRE_TRY(open_device(kind, -1, &device));
    const gyre_status status = device->ops->stream_destroy(device, stream);
    device->ops->close(device);
    return status;
}

gyre_status gyre_stream_synchronize(gyre_stream stream, gyre_device_kind kind)
{
    struct gyre_device *device;
    GYRE_TRY(open_device(kind, -1, &device));
    const gyre_status status = device->ops->stream_synchronize(device, stream);
    device->ops->close(device);
    return status;
}

gyre_status gyre_stream_query(gyre_stream stream, gyre_device_kind kind)
{
    struct gyre_device *device;
    GYRE_TRY(open_device(kind, -1, &device));
    const gyre_status status = device->ops->stream_query(device, stream);
    device->ops->close(device);
    return status;
}
