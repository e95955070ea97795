/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/links/links.h"

#include "core/foundation/base/util.h"

#define MIN_SLOT_BYTES     4096
#define MAX_SIMPLE_BYTES   (512 * 1024) /* on GPUs */
#define MAX_HOST_BYTES     (128 * 1024)
#define RING_SLOT_BYTES    (128 * 1024)
#define MAX_SUB_FIFOS      2 /* of a channel: trees */
#define ACROSS_SLOT_BYTES  (32 * 1024)
#define LEAST_NEAR_BYTES   (12 * 1024)
#define MOST_NEAR_BYTES    (128 * 1024)
#define MOST_ALONE_FIFOS   16
#define MOST_FAR_FIFOS     16  /* calls of few bytes do not use more channels */
#define MIN_FAR_BYTES      256 /* fits 16,384 ranks */
#define MIN_LL_BYTES       3072
#define MAX_LL_BYTES       (16 * 1024)
#define MAX_LL128_BYTES    (64 * 1024)
#define MIN_NET_LINE_BYTES 256
#define MAX_NET_LINE_BYTES (16 * 1024)
#define ENDS_BYTES         64 /* a slot's share of inboxes and credits, about */
#define MIN_LINES_BYTES    (MIN_LL_BYTES + MIN_SLOT_BYTES + ENDS_BYTES)

static uint32_t floor_to_power_of_two(uint64_t value)
{
    uint64_t power = 1;
    while (power * 2 <= value)
        power *= 2;
    return (uint32_t)power;
}

/* Rings get the longest slots: 357 GB/s with 128 KiB, 330 with 64 (64 channels, 4 H200, 1 GiB,
 * 2026-11). @ring_bytes: wanted. */
static void divide_between_rings_and_others(struct gyre_fifo_spec *spec, uint32_t n_peers,
                                            uint64_t ring_bytes, uint64_t budget_bytes)
{
    const uint64_t n_slots = (uint64_t)spec->n_fifos * spec->depth; /* of one peer */
    /* Down to a multiple of RING_SLOT_BYTES, or to a power of two below it. */
    const uint64_t value = gyre_min_u64(gyre_min_u64(ring_bytes, MAX_SIMPLE_BYTES),
                                        n_peers > 1 ? budget_bytes / 3 * 2 / n_slots : UINT64_MAX);

    const uint64_t ring = value < RING_SLOT_BYTES ? floor_to_power_of_two(value)
                                                  : value / RING_SLOT_BYTES * RING_SLOT_BYTES;
    const uint64_t rest = budget_bytes - gyre_min_u64(budget_bytes, ring * n_slots);
    uint64_t other = ring;
    if (n_peers > 1)
        other = gyre_min_u64(ring, floor_to_power_of_two(rest / ((n_peers - 1) * n_slots)));
    spec->slot_bytes[GYRE_PROTO_SIMPLE] =
        gyre_clamp_u32(other / 16 * 16, MIN_SLOT_BYTES, MAX_SIMPLE_BYTES);
    if (ring > spec->slot_bytes[GYRE_PROTO_SIMPLE])
        spec->ring_slot_bytes = (uint32_t)ring;
}

static uint64_t simple_bytes(const struct gyre_fifo_spec *spec, uint32_t n_peers)
{
    const uint64_t n_slots = (uint64_t)n_peers * spec->n_fifos * spec->depth;
    const uint64_t n_ring = (uint64_t)spec->n_fifos * spec->depth;
    const uint64_t extra =
        spec->ring_slot_bytes > 0 ? spec->ring_slot_bytes - spec->slot_bytes[GYRE_PROTO_SIMPLE] : 0;
    return n_slots * spec->slot_bytes[GYRE_PROTO_SIMPLE] + n_ring * extra;
}

/* All-reduces of 1 GiB reach 316 GB/s with 256 KiB and 276 with 128 (16 channels, 2 H200, 2026-11).
 * With two ranks there is room for half as much again. */
static uint64_t ring_bytes(uint32_t n_peers, uint32_t n_joined)
{
    const uint64_t joined = (uint64_t)RING_SLOT_BYTES * n_joined;
    return n_peers == 1 && n_joined > 1 ? joined / 2 * 3 : joined;
}

/* LL carries small messages only. The rest makes a two-shot all-reduce of 4 MiB in 64 channels one
 * tile of LL128; two would fill all slots, and a launch would wait until its peers have started (31
 * us instead of 26, 4 H200, 2026-11). @slot_bytes: of both protocols together. */
static void divide_between_lines(struct gyre_fifo_spec *spec, uint64_t slot_bytes)
{
    const uint32_t ll = gyre_clamp_u32(slot_bytes / 6 / 1024 * 1024, MIN_LL_BYTES, MAX_LL_BYTES);
    spec->slot_bytes[GYRE_PROTO_LL] = ll;
    spec->slot_bytes[GYRE_PROTO_LL128] =
        gyre_clamp_u32((slot_bytes - gyre_min_u64(slot_bytes, ll + ENDS_BYTES)) / 1024 * 1024,
                       MIN_SLOT_BYTES, MAX_LL128_BYTES);
}

/* GPUs behind proxies gain more from FIFOs than from slots longer than ACROSS_SLOT_BYTES (predicted
 * for 2 hosts of 8 GPUs and 8 NICs, 2026-11). */
static struct gyre_fifo_spec divide_across(uint32_t n_peers, uint64_t buffer_bytes,
                                           uint32_t max_channels)
{
    struct gyre_fifo_spec spec = {.depth = GYRE_COMM_DEPTH};
    const uint64_t n_slots = 2ULL * n_peers * spec.depth; /* of one FIFO of each peer */
    const uint64_t most = gyre_min_u64((uint64_t)max_channels * MAX_SUB_FIFOS, 64);
    const uint64_t fifo_bytes = n_slots * ACROSS_SLOT_BYTES;
    spec.n_fifos = gyre_clamp_u32(
        floor_to_power_of_two(gyre_max_u64(GYRE_FIFO_BUDGET_ACROSS_BYTES / fifo_bytes, 1)), 2,
        (uint32_t)gyre_max_u64(most, 2));
    const uint64_t share = GYRE_FIFO_BUDGET_ACROSS_BYTES / (n_slots * spec.n_fifos);
    spec.slot_bytes[GYRE_PROTO_SIMPLE] = gyre_clamp_u32(
        (buffer_bytes > 0 ? buffer_bytes / spec.depth : floor_to_power_of_two(share)) / 16 * 16,
        MIN_SLOT_BYTES, MAX_SIMPLE_BYTES);
    return spec;
}

struct gyre_fifo_spec gyre_tuner_fifo_spec(gyre_device_kind kind, uint32_t n_ranks, bool is_proxied,
                                           uint64_t buffer_bytes, uint32_t max_channels)
{
    const bool is_cuda = kind == GYRE_DEVICE_CUDA;
    const uint32_t n_peers = n_ranks > 1 ? n_ranks - 1 : 1;
    struct gyre_fifo_spec spec = {.n_fifos = 4, .depth = GYRE_COMM_DEPTH};
    if (is_cuda && is_proxied)
        return divide_across(n_peers, buffer_bytes, max_channels);
    uint32_t n_joined = 1; /* each FIFO gets the memory of so many */
    if (is_cuda) {
        const uint32_t most = n_peers > 4 ? gyre_clamp_u32(256 / n_peers, 2, 64) : 64;
        uint32_t n_fifos = most;
        while (n_fifos % 2 == 0 && n_fifos / 2 >= (uint64_t)max_channels * MAX_SUB_FIFOS)
            n_fifos /= 2;
        n_joined = most / n_fifos;
        spec.n_fifos = n_fifos;
    }
    /* A proxied pair has slots at both ends on each rank. */
    const uint64_t n_slots = (uint64_t)n_peers * spec.n_fifos * spec.depth * (is_proxied ? 2 : 1);
    const uint64_t share = GYRE_FIFO_BUDGET_BYTES / n_slots;
    if (!is_cuda) {
        const uint64_t simple =
            buffer_bytes > 0 ? buffer_bytes / spec.depth : floor_to_power_of_two(share);
        spec.slot_bytes[GYRE_PROTO_SIMPLE] =
            gyre_clamp_u32(simple / 16 * 16, MIN_SLOT_BYTES, MAX_HOST_BYTES);
        return spec;
    }
    divide_between_rings_and_others(&spec, n_peers, ring_bytes(n_peers, n_joined),
                                    GYRE_FIFO_BUDGET_BYTES / 5 * 4);
    const uint64_t rest =
        GYRE_FIFO_BUDGET_BYTES - gyre_min_u64(GYRE_FIFO_BUDGET_BYTES, simple_bytes(&spec, n_peers));
    divide_between_lines(&spec, rest / n_slots);
    /* Beside that, other pairs get slots up to the ring's: all-to-alls of 1 GiB reach 253 GB/s with
     * 32 KiB and 305 with 128 (4 H200, 2026-11). */
    if (spec.ring_slot_bytes > 0) {
        const uint64_t other = floor_to_power_of_two(
            GYRE_FIFO_BUDGET_BYTES / ((uint64_t)(n_peers - 1) * spec.n_fifos * spec.depth));
        spec.slot_bytes[GYRE_PROTO_SIMPLE] =
            gyre_clamp_u32(other, spec.slot_bytes[GYRE_PROTO_SIMPLE], spec.ring_slot_bytes);
        if (spec.slot_bytes[GYRE_PROTO_SIMPLE] == spec.ring_slot_bytes)
            spec.ring_slot_bytes = 0;
    }
    if (buffer_bytes > 0) {
        spec.slot_bytes[GYRE_PROTO_SIMPLE] =
            gyre_clamp_u32(buffer_bytes / spec.depth / 16 * 16, MIN_SLOT_BYTES, MAX_SIMPLE_BYTES);
        spec.ring_slot_bytes = 0;
    }
    return spec;
}

/* More than a sixteenth of the budget would shorten SIMPLE's slots. 0: the shortest slots do not
 * fit an eighth. */
static uint64_t size_lines(uint32_t n_inside, uint32_t depth, uint32_t n_fifos,
                           uint64_t budget_bytes)
{
    const uint64_t least = (uint64_t)n_inside * depth * n_fifos * MIN_LINES_BYTES;
    return least <= budget_bytes / 8 ? gyre_max_u64(least, budget_bytes / 16) : 0;
}

/* Only small calls and point to point use far pairs. */
static struct gyre_fifo_size size_far(uint32_t n_ends, uint32_t depth, uint64_t rest_bytes,
                                      struct gyre_fifo_size near)
{
    struct gyre_fifo_size far = {.n_fifos = (uint32_t)gyre_min_u64(near.n_fifos, MOST_FAR_FIFOS)};
    const uint64_t n_slots = (uint64_t)n_ends * depth;
    while (far.n_fifos > MAX_SUB_FIFOS && rest_bytes / n_slots / far.n_fifos < MIN_SLOT_BYTES)
        far.n_fifos /= 2;
    const uint64_t share = rest_bytes / n_slots / far.n_fifos;
    /* A FIFO's slots fill whole pages, or parts of one page. */
    const uint32_t unit = share < MIN_SLOT_BYTES / depth ? 64 : MIN_SLOT_BYTES / depth;
    far.slot_bytes = gyre_clamp_u32(share / unit * unit, MIN_FAR_BYTES, near.slot_bytes);
    return far;
}

struct gyre_fifo_spec gyre_tuner_fifo_spec_across(gyre_device_kind kind,
                                                  const struct gyre_peer_counts *peers,
                                                  bool is_proxied_inside, bool by_rdma,
                                                  uint64_t buffer_bytes, uint32_t max_channels)
{
    const bool is_cuda = kind == GYRE_DEVICE_CUDA;
    const uint64_t all = is_cuda ? GYRE_FIFO_BUDGET_ACROSS_BYTES : GYRE_FIFO_BUDGET_BYTES;
    const uint32_t n_near = 2 * peers->n_near + (is_proxied_inside ? 2 : 1) * peers->n_inside;
    const uint64_t channels = gyre_min_u64((uint64_t)max_channels * MAX_SUB_FIFOS, 64);
    struct gyre_fifo_size most = {
        .n_fifos = is_cuda ? floor_to_power_of_two(gyre_max_u64(channels, 2)) : 4,
        .slot_bytes = is_cuda ? MOST_NEAR_BYTES : MAX_HOST_BYTES};
    /* GPUs alone on their hosts pass no data on inside a host, and a NIC takes its time for every
     * message: all-gathers of 4 MiB took 816 us with slots of 128 KiB and 367 with 512 KiB (2 H100,
     * 2026-11). */
    if (is_cuda && by_rdma && peers->n_inside == 0)
        most = (struct gyre_fifo_size){.n_fifos = gyre_min_u32(most.n_fifos, MOST_ALONE_FIFOS),
                                       .slot_bytes = MAX_SIMPLE_BYTES};
    struct gyre_fifo_spec spec = {.depth = GYRE_COMM_DEPTH};
    const bool has_lines = is_cuda && !is_proxied_inside && peers->n_inside > 0;
    const uint64_t lines_bytes =
        has_lines ? size_lines(peers->n_inside, spec.depth, most.n_fifos, all) : 0;
    const uint64_t budget = all - lines_bytes; /* of SIMPLE */
    /* Many FIFOs beat long slots: 1 GiB on 2048 hosts of 8 GPUs and 8 NICs is predicted to take 6.2
     * ms in 32 channels with slots of 12 KiB, 9.5 in 16 with 24 KiB (2026-11). On the host device
     * only GYRE_BUFFSIZE changes the number of FIFOs. */
    const uint32_t depth = spec.depth;
    const uint64_t share_bytes = peers->n_far > 0 ? budget / 4 * 3 : budget;
    const uint32_t least_bytes = is_cuda ? LEAST_NEAR_BYTES : 0;
    struct gyre_fifo_size near = most;
    const uint64_t wanted_bytes = gyre_min_u64(buffer_bytes / depth / 16 * 16, MAX_SIMPLE_BYTES);
    uint64_t slot_bytes = 0;
    for (;; near.n_fifos /= 2) {
        const uint64_t n_slots = (uint64_t)gyre_max_u64(n_near, 1) * depth * near.n_fifos;
        slot_bytes = share_bytes / n_slots / MIN_SLOT_BYTES * MIN_SLOT_BYTES;
        if (slot_bytes >= gyre_max_u64(least_bytes, wanted_bytes) || near.n_fifos <= 2)
            break;
    }
    near.slot_bytes = gyre_clamp_u32(buffer_bytes > 0 ? wanted_bytes : slot_bytes, MIN_SLOT_BYTES,
                                     buffer_bytes > 0 ? MAX_SIMPLE_BYTES : most.slot_bytes);
    spec.n_fifos = near.n_fifos;
    spec.slot_bytes[GYRE_PROTO_SIMPLE] = near.slot_bytes;
    if (lines_bytes > 0)
        divide_between_lines(&spec,
                             lines_bytes / ((uint64_t)peers->n_inside * spec.depth * spec.n_fifos));
    if (peers->n_far > 0) {
        const uint64_t near_bytes = (uint64_t)n_near * spec.depth * near.n_fifos * near.slot_bytes;
        /* far pairs keep their part whatever GYRE_BUFFSIZE takes */
        const uint64_t rest_bytes = budget - gyre_min_u64(budget, near_bytes);
        spec.far =
            size_far(2 * peers->n_far, spec.depth, gyre_max_u64(rest_bytes, budget / 4), near);
    }
    return spec;
}

uint32_t gyre_net_line_bytes(gyre_device_kind kind, const struct gyre_fifo_spec *spec,
                             uint32_t n_near, uint32_t n_far)
{
    const uint64_t n_fifos =
        (uint64_t)n_near * spec->n_fifos + (uint64_t)n_far * gyre_fifo_size_of(spec, true).n_fifos;
    if (n_fifos == 0)
        return 0;
    const uint64_t budget =
        kind == GYRE_DEVICE_CUDA ? GYRE_FIFO_BUDGET_ACROSS_BYTES / 8 : GYRE_FIFO_BUDGET_BYTES / 16;
    const uint64_t share = budget / (2 * n_fifos * spec->depth);
    return share < MIN_NET_LINE_BYTES
               ? 0
               : gyre_min_u32(floor_to_power_of_two(share), MAX_NET_LINE_BYTES);
}

void gyre_fifo_spec_add_net_lines(struct gyre_fifo_spec *spec, gyre_device_kind kind,
                                  const struct gyre_peer_counts *peers, bool is_proxied_inside)
{
    const bool is_cuda = kind == GYRE_DEVICE_CUDA;
    if (is_cuda && peers->n_inside > 0 && spec->slot_bytes[GYRE_PROTO_LL] == 0)
        return;
    spec->net_line_bytes = gyre_net_line_bytes(
        kind, spec, peers->n_near + (is_proxied_inside ? peers->n_inside : 0), peers->n_far);
    /* Kernels of LL have one size of slot for all connections but proxies'. */
    if (is_cuda && peers->n_inside == 0)
        spec->slot_bytes[GYRE_PROTO_LL] = spec->net_line_bytes;
}
