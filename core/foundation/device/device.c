/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the ops table of a device kind.
 */
#include "core/foundation/device/device.h"

#include "core/foundation/base/status.h"

static gyre_status find_cuda(const struct gyre_device_ops **ops_out)
{
#ifdef GYRE_WITH_CUDA
    int n_devices = 0;
    GYRE_TRY(gyre_device_cuda.count(&n_devices));
    if (n_devices > 0) {
        *ops_out = &gyre_device_cuda;
        return GYRE_SUCCESS;
    }
    /* count() left the reason as the cause text */
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
        if (status == GYRE_ERROR_INVALID_USAGE) /* there are GPUs, which this process may not use */
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
