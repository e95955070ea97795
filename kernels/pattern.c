/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pattern.h"

#include "core/foundation/base/status.h"
#include "core/foundation/model/schedule.h"
#include "kernels/pattern_ops.h"

static gyre_status find(const struct gyre_device *device, const struct gyre_pattern *pattern,
                        uint32_t rank, const struct gyre_pattern_ops **ops_out)
{
    if ((unsigned)pattern->dtype >= GYRE_N_DTYPES || (unsigned)pattern->op >= GYRE_N_OPS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "no pattern for type %d, operation %d",
                         (int)pattern->dtype, (int)pattern->op);
    if (pattern->n_ranks == 0 || pattern->n_ranks > GYRE_MAX_RANKS ||
        (rank >= pattern->n_ranks && rank != GYRE_PATTERN_REDUCED))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "no pattern for rank %u of %u", rank,
                         pattern->n_ranks);
#ifdef GYRE_WITH_CUDA
    if (device->ops->kind == GYRE_DEVICE_CUDA) {
        *ops_out = &gyre_pattern_cuda;
        return GYRE_SUCCESS;
    }
#endif
    (void)device;
    *ops_out = &gyre_pattern_host;
    return GYRE_SUCCESS;
}

gyre_status gyre_pattern_fill(struct gyre_device *device, const struct gyre_pattern *pattern,
                              uint32_t rank, uint64_t first, uint64_t count, void *buffer)
{
    const struct gyre_pattern_ops *ops = NULL;
    GYRE_TRY(find(device, pattern, rank, &ops));
    return ops->fill(device, pattern, rank, first, count, buffer);
}

gyre_status gyre_pattern_check_copy(struct gyre_device *device, const struct gyre_pattern *pattern,
                                    uint32_t rank, uint64_t first, uint64_t count,
                                    const void *buffer, struct gyre_pattern_errors *errors_out)
{
    const struct gyre_pattern_ops *ops = NULL;
    GYRE_TRY(find(device, pattern, rank, &ops));
    return ops->check(device, pattern, rank, first, count, buffer, errors_out);
}

gyre_status gyre_pattern_check_reduced(struct gyre_device *device,
                                       const struct gyre_pattern *pattern, uint64_t first,
                                       uint64_t count, const void *buffer,
                                       struct gyre_pattern_errors *errors_out)
{
    const struct gyre_pattern_ops *ops = NULL;
    GYRE_TRY(find(device, pattern, GYRE_PATTERN_REDUCED, &ops));
    return ops->check(device, pattern, GYRE_PATTERN_REDUCED, first, count, buffer, errors_out);
}
