/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/check/pattern.h"

#include "bench/check/pattern_values.h"
#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"
#include "core/foundation/model/schedule.h"

#ifdef GYRE_WITH_CUDA
#include "bench/check/pattern_cuda.h"
#endif

struct period {
    unsigned char bytes[GYRE_PATTERN_PERIOD * 8];
};

static gyre_status check_shape(const struct gyre_pattern *pattern, uint32_t rank)
{
    if ((unsigned)pattern->dtype >= GYRE_N_DTYPES || (unsigned)pattern->op >= GYRE_N_OPS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "no pattern for type %d, operation %d",
                         (int)pattern->dtype, (int)pattern->op);
    if (pattern->n_ranks == 0 || pattern->n_ranks > GYRE_MAX_RANKS ||
        (rank >= pattern->n_ranks && rank != GYRE_PATTERN_REDUCED))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "no pattern for rank %u of %u", rank,
                         pattern->n_ranks);
    return GYRE_SUCCESS;
}

/* One period, which memcpy and memcmp then repeat. */
static void compute(const struct gyre_pattern *pattern, uint32_t rank, uint64_t first, uint64_t n,
                    struct period *period_out)
{
    const unsigned elem_bytes = gyre_dtype_bytes(pattern->dtype);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t bits = rank == GYRE_PATTERN_REDUCED
                                  ? gyre_pattern_reduced(pattern, first + i)
                                  : gyre_pattern_value(pattern, rank, first + i);
        memcpy(period_out->bytes + i * elem_bytes, &bits, elem_bytes);
    }
}

gyre_status gyre_pattern_fill(struct gyre_device *device, const struct gyre_pattern *pattern,
                              uint32_t rank, uint64_t first, uint64_t count, void *buffer)
{
    struct period period;
    GYRE_TRY(check_shape(pattern, rank));
#ifdef GYRE_WITH_CUDA
    if (device->ops->kind == GYRE_DEVICE_CUDA)
        return gyre_pattern_fill_cuda(device, pattern, rank, first, count, buffer);
#endif
    (void)device;
    const uint64_t elem_bytes = gyre_dtype_bytes(pattern->dtype);
    const uint64_t n_period = gyre_min_u64(count, GYRE_PATTERN_PERIOD);
    unsigned char *to = buffer;
    compute(pattern, rank, first, n_period, &period);
    for (uint64_t done = 0; done < count; done += n_period)
        memcpy(to + done * elem_bytes, period.bytes,
               gyre_min_u64(n_period, count - done) * elem_bytes);
    return GYRE_SUCCESS;
}

static void count_wrong(const unsigned char *got, const unsigned char *expected, uint64_t n_elems,
                        unsigned elem_bytes, uint64_t first, struct gyre_pattern_errors *errors)
{
    for (uint64_t i = 0; i < n_elems; i++) {
        if (memcmp(got + i * elem_bytes, expected + i * elem_bytes, elem_bytes) == 0)
            continue;
        if (errors->n_wrong++ > 0)
            continue;
        errors->first_wrong = first + i;
        memcpy(&errors->got, got + i * elem_bytes, elem_bytes);
        memcpy(&errors->expected, expected + i * elem_bytes, elem_bytes);
    }
}

gyre_status gyre_pattern_check_copy(struct gyre_device *device, const struct gyre_pattern *pattern,
                                    uint32_t rank, uint64_t first, uint64_t count,
                                    const void *buffer, struct gyre_pattern_errors *errors_out)
{
    struct period period;
    struct gyre_pattern_errors errors = {0, 0, 0, 0};
    GYRE_TRY(check_shape(pattern, rank));
#ifdef GYRE_WITH_CUDA
    if (device->ops->kind == GYRE_DEVICE_CUDA)
        return gyre_pattern_check_cuda(device, pattern, rank, first, count, buffer, errors_out);
#endif
    (void)device;
    const unsigned elem_bytes = gyre_dtype_bytes(pattern->dtype);
    const uint64_t n_period = gyre_min_u64(count, GYRE_PATTERN_PERIOD);
    const unsigned char *from = buffer;
    compute(pattern, rank, first, n_period, &period);
    for (uint64_t done = 0; done < count; done += n_period) {
        const uint64_t n_elems = gyre_min_u64(n_period, count - done);
        const unsigned char *got = from + done * elem_bytes;
        if (memcmp(got, period.bytes, n_elems * elem_bytes) != 0)
            count_wrong(got, period.bytes, n_elems, elem_bytes, first + done, &errors);
    }
    *errors_out = errors;
    return GYRE_SUCCESS;
}

gyre_status gyre_pattern_check_reduced(struct gyre_device *device,
                                       const struct gyre_pattern *pattern, uint64_t first,
                                       uint64_t count, const void *buffer,
                                       struct gyre_pattern_errors *errors_out)
{
    return gyre_pattern_check_copy(device, pattern, GYRE_PATTERN_REDUCED, first, count, buffer,
                                   errors_out);
}
