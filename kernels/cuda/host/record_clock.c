/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/host/records.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"

void gyre_cuda_clock_add(struct gyre_cuda_clock *clock, const struct gyre_cuda_clock_round *rounds,
                         uint32_t n_rounds)
{
    int64_t lowest_ns = INT64_MIN, highest_ns = INT64_MAX; /* GPU minus host */
    for (uint32_t i = 0; i < n_rounds; i++) {
        const int64_t low = (int64_t)(rounds[i].gpu_ns - rounds[i].answered_ns);
        const int64_t high = (int64_t)(rounds[i].gpu_ns - rounds[i].asked_ns);
        lowest_ns = low > lowest_ns ? low : lowest_ns;
        highest_ns = high < highest_ns ? high : highest_ns;
    }
    if (n_rounds == 0)
        return;
    /* The GPU's clock moves in steps, so the bounds can cross by less than one. */
    const int64_t width_ns =
        highest_ns > lowest_ns ? highest_ns - lowest_ns : lowest_ns - highest_ns;
    const int64_t offset_ns = (highest_ns < lowest_ns ? highest_ns : lowest_ns) + width_ns / 2;
    const uint32_t at = clock->n_points > 0;
    clock->gpu_ns[at] = rounds[n_rounds - 1].gpu_ns;
    clock->host_ns[at] = rounds[n_rounds - 1].gpu_ns - (uint64_t)offset_ns;
    clock->error_ns = gyre_max_u64(clock->error_ns, (uint64_t)width_ns / 2 + 1);
    clock->n_points = at + 1;
}

uint64_t gyre_cuda_clock_to_host(const struct gyre_cuda_clock *clock, uint64_t gpu_ns)
{
    const int64_t since_ns = (int64_t)(gpu_ns - clock->gpu_ns[0]);
    const int64_t span_ns = (int64_t)(clock->gpu_ns[1] - clock->gpu_ns[0]);
    int64_t drift_ns = 0;
    if (clock->n_points == 2 && span_ns > 0)
        drift_ns = (int64_t)((double)((int64_t)(clock->host_ns[1] - clock->host_ns[0]) - span_ns) *
                             ((double)since_ns / (double)span_ns));
    return clock->host_ns[0] + (uint64_t)(since_ns + drift_ns);
}

bool gyre_cuda_span_read(const struct gyre_cuda_span *spans, uint32_t n_blocks, uint64_t work,
                         const struct gyre_cuda_clock *clock, uint64_t *begin_ns_out,
                         uint64_t *end_ns_out)
{
    const struct gyre_cuda_span *own = &spans[work % GYRE_CUDA_SPANS * n_blocks];
    uint64_t begin_ns = UINT64_MAX, end_ns = 0;
    for (uint32_t block = 0; block < n_blocks; block++) {
        if (gyre_load_acquire_u64(&own[block].call) != work + 1)
            continue;
        begin_ns = gyre_min_u64(begin_ns, gyre_load_acquire_u64(&own[block].begin_ns));
        end_ns = gyre_max_u64(end_ns, gyre_load_acquire_u64(&own[block].end_ns));
    }
    if (end_ns == 0)
        return false;
    *begin_ns_out = gyre_cuda_clock_to_host(clock, begin_ns);
    *end_ns_out = gyre_cuda_clock_to_host(clock, end_ns);
    return true;
}
