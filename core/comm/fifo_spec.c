/* SPDX-License-Identifier: Apache-2.0
 *
 * How a communicator's FIFOs are dimensioned: a pure function of the device, the ranks and
 * GYRE_BUFFSIZE, so that all ranks find the same.
 */
#include "core/comm/plan.h"

#include "core/base/util.h"

#define MIN_SLOT_BYTES   4096
#define MAX_SIMPLE_BYTES (512 * 1024) /* on GPUs */
#define MAX_HOST_BYTES   (128 * 1024)
#define NEAR_SLOT_BYTES  (128 * 1024)

static uint32_t floor_to_power_of_two(uint64_t value)
{
    uint64_t power = 1;
    while (power * 2 <= value)
        power *= 2;
    return (uint32_t)power;
}

/* SIMPLE on GPUs without a proxy. A ring of 64 channels reaches 330 GB/s with slots of 64 KiB and
 * 357 GB/s with 128 KiB (4 H200, 1 GiB, 2026-11): what comes from the rank before gets those, and
 * everything else shares the rest of the budget. */
static void divide_between_rings_and_others(struct gyre_fifo_spec *spec, uint32_t n_peers,
                                            uint64_t budget_bytes)
{
    const uint64_t n_slots = (uint64_t)spec->n_fifos * spec->depth; /* of one peer */
    const uint64_t near = floor_to_power_of_two(
        gyre_min_u64(NEAR_SLOT_BYTES, n_peers > 1 ? budget_bytes / 3 * 2 / n_slots : UINT64_MAX));
    const uint64_t rest = budget_bytes - gyre_min_u64(budget_bytes, near * n_slots);
    uint64_t other = near;
    if (n_peers > 1)
        other = gyre_min_u64(near, floor_to_power_of_two(rest / ((n_peers - 1) * n_slots)));
    spec->slot_bytes[GYRE_PROTO_SIMPLE] =
        gyre_clamp_u32(other / 16 * 16, MIN_SLOT_BYTES, MAX_SIMPLE_BYTES);
    if (near > spec->slot_bytes[GYRE_PROTO_SIMPLE])
        spec->near_slot_bytes = (uint32_t)near;
}

static uint64_t simple_bytes(const struct gyre_fifo_spec *spec, uint32_t n_peers)
{
    const uint64_t n_slots = (uint64_t)n_peers * spec->n_fifos * spec->depth;
    const uint64_t n_near = (uint64_t)spec->n_fifos * spec->depth;
    const uint64_t extra =
        spec->near_slot_bytes > 0 ? spec->near_slot_bytes - spec->slot_bytes[GYRE_PROTO_SIMPLE] : 0;
    return n_slots * spec->slot_bytes[GYRE_PROTO_SIMPLE] + n_near * extra;
}

struct gyre_fifo_spec gyre_tuner_fifo_spec(gyre_device_kind kind, uint32_t n_ranks, bool is_proxied,
                                           uint64_t buffer_bytes)
{
    const bool is_cuda = kind == GYRE_DEVICE_CUDA;
    const uint32_t n_peers = n_ranks > 1 ? n_ranks - 1 : 1;
    struct gyre_fifo_spec spec = {.n_fifos = is_cuda ? 64 : 4, .depth = 4};
    if (is_cuda && n_peers > 4)
        spec.n_fifos = gyre_clamp_u32(256 / n_peers, 2, 64);
    /* A proxied pair has slots at both ends on each rank. */
    const uint64_t n_slots = (uint64_t)n_peers * spec.n_fifos * spec.depth * (is_proxied ? 2 : 1);
    const uint64_t share = GYRE_FIFO_BUDGET_BYTES / n_slots;
    const uint32_t most = is_cuda ? MAX_SIMPLE_BYTES : MAX_HOST_BYTES;
    if (is_proxied || !is_cuda) {
        const uint64_t simple = buffer_bytes > 0
                                    ? buffer_bytes / spec.depth
                                    : floor_to_power_of_two(is_cuda ? share / 5 * 4 : share);
        spec.slot_bytes[GYRE_PROTO_SIMPLE] = gyre_clamp_u32(simple / 16 * 16, MIN_SLOT_BYTES, most);
        return spec;
    }
    /* Of the budget SIMPLE takes up to four fifths, LL128 what is left, LL a little. */
    divide_between_rings_and_others(&spec, n_peers, GYRE_FIFO_BUDGET_BYTES / 5 * 4);
    const uint64_t rest =
        GYRE_FIFO_BUDGET_BYTES - gyre_min_u64(GYRE_FIFO_BUDGET_BYTES, simple_bytes(&spec, n_peers));
    const uint64_t lines = rest / n_slots / 5 * 4;
    spec.slot_bytes[GYRE_PROTO_LL128] =
        gyre_clamp_u32(lines / 3 * 2 / 1024 * 1024, MIN_SLOT_BYTES, 64 * 1024);
    spec.slot_bytes[GYRE_PROTO_LL] =
        gyre_clamp_u32(floor_to_power_of_two(lines / 2), MIN_SLOT_BYTES, 16 * 1024);
    if (buffer_bytes > 0) {
        spec.slot_bytes[GYRE_PROTO_SIMPLE] =
            gyre_clamp_u32(buffer_bytes / spec.depth / 16 * 16, MIN_SLOT_BYTES, most);
        spec.near_slot_bytes = 0;
    }
    return spec;
}
