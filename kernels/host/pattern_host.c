/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pattern_ops.h"

#include "core/foundation/base/util.h"
#include "kernels/pattern_values.h"

#include <string.h>

struct period {
    unsigned char bytes[GYRE_PATTERN_PERIOD * 8];
};

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

static gyre_status host_fill(struct gyre_device *device, const struct gyre_pattern *pattern,
                             uint32_t rank, uint64_t first, uint64_t count, void *buffer)
{
    struct period period;
    const uint64_t elem_bytes = gyre_dtype_bytes(pattern->dtype);
    const uint64_t n_period = gyre_min_u64(count, GYRE_PATTERN_PERIOD);
    unsigned char *to = buffer;
    (void)device;
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

static gyre_status host_check(struct gyre_device *device, const struct gyre_pattern *pattern,
                              uint32_t rank, uint64_t first, uint64_t count, const void *buffer,
                              struct gyre_pattern_errors *errors_out)
{
    struct period period;
    struct gyre_pattern_errors errors = {0, 0, 0, 0};
    const unsigned elem_bytes = gyre_dtype_bytes(pattern->dtype);
    const uint64_t n_period = gyre_min_u64(count, GYRE_PATTERN_PERIOD);
    const unsigned char *from = buffer;
    (void)device;
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

const struct gyre_pattern_ops gyre_pattern_host = {
    .fill = host_fill,
    .check = host_check,
};
