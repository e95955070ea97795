/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the calls of middle size that fused kernels carry out in protocol SIMPLE, and their
 * channels and tiles. The executor knows whether a fused kernel can run a call. Measurements say
 * between which sizes a fused kernel is the fastest choice. Pure; every rank chooses the same.
 */
#include "core/plan/tuner/tuner.h"

#include "core/base/util.h"
#include "kernels/executor.h"

#define LEAST_CHANNELS 48
#define CHANNELS       64

/* Do the measurements hold here? They were made on GPUs of one host that are joined by NVLink. */
static bool is_measured(const struct gyre_tuner_facts *facts)
{
    return facts->device_kind == GYRE_DEVICE_CUDA && !facts->is_proxied && facts->is_ll128_safe &&
           facts->n_ranks >= 2 && facts->max_channels >= LEAST_CHANNELS;
}

static uint32_t most_tile_bytes(const struct gyre_tuner_facts *facts,
                                const struct gyre_choice *choice, enum gyre_collective coll,
                                bool is_placed)
{
    return gyre_tuner_payload_bytes(facts, choice->algorithm, coll, choice->proto, is_placed) / 16 *
           16;
}

/* The call as an executor will see it, if the buffers are aligned. */
static struct gyre_fused_call expect_call(const struct gyre_tuner_facts *facts, uint64_t n_bytes,
                                          enum gyre_fused_pattern pattern, bool is_placed)
{
    return (struct gyre_fused_call){
        .proto = GYRE_PROTO_SIMPLE,
        .pattern = pattern,
        .arithmetic = !gyre_fused_patterns[pattern].reduces ? GYRE_FUSED_COPY
                      : facts->has_lamport                  ? GYRE_FUSED_FLOAT_SUM
                                                            : GYRE_FUSED_OTHER,
        .is_placed = is_placed,
        .is_aligned = n_bytes % 16 == 0,
        .is_unscaled = !gyre_fused_patterns[pattern].reduces || facts->is_unscaled,
        .n_peers = facts->n_ranks - 1,
        .n_tiles = 1,
        .depth = facts->spec.depth,
        .most_shared_bytes = UINT32_MAX,
    };
}

/* All-gathers whose blocks are written directly into the windows of all ranks. Measured, 2026-11:
 * 16 MiB take 42.5 us over 4 H200 (ring 47.0) and 29.3 us over 2 (ring 32.7); 8 MiB take 24.6 us
 * over 4 (LL128 27.9) and 17.2 us over 2 (LL128 18.7). */
static bool choose_gather(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                          uint64_t n_bytes, struct gyre_choice *choice)
{
    const enum gyre_collective coll = GYRE_COLL_ALL_GATHER;
    const uint64_t total = gyre_tuner_all_bytes(facts, coll, n_bytes);
    const uint64_t most_bytes = facts->n_ranks == 2 ? 24 << 20 : 20 << 20;
    struct gyre_fused_call call = expect_call(facts, n_bytes, GYRE_FUSED_ALL_GATHER, true);
    call.places_blocks = n_bytes * (facts->n_ranks - 1) >= GYRE_BLOCK_PLACEMENT_BYTES;
    choice->algorithm = &gyre_algorithm_direct;
    if (!gyre_tuner_may_place(facts, filter, coll, GYRE_PROTO_SIMPLE) ||
        !gyre_filter_allows(filter, coll, choice->algorithm) || total < 6 << 20 ||
        total > most_bytes || gyre_executor_fused_tiles(facts->device_kind, &call) == 0)
        return false;
    choice->tile_bytes =
        gyre_clamp_u32(gyre_round_up(gyre_div_round_up(n_bytes, choice->n_channels), 512), 512,
                       most_tile_bytes(facts, choice, GYRE_COLL_ALL_GATHER, true));
    return true;
}

/* All-reduces of sums of floating point, in as many tiles as the kernel takes. Measured in us
 * between processes, with the fused kernel and with the next best choice (2026-11):
 *   4 H200, in windows: 5 MiB 32.8, by LAMPORT 33.0; 6 MiB 35.6, 37.8; 16 MiB 78.7, by ring 83.6
 *           staged: 8 MiB 48.9, by LAMPORT 48.8; 16 MiB 81.8, by ring 87.3
 *   3 H200, 16 MiB: in windows 71.7, by ring 75.2; staged 74.1, 79.8
 * With two ranks a ring takes as long. With more than four ranks the slots are too short. */
static bool choose_twoshot(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                           uint64_t n_bytes, struct gyre_choice *choice)
{
    const enum gyre_collective coll = GYRE_COLL_ALL_REDUCE;
    const struct gyre_split split = {.count = n_bytes,
                                     .n_channels = choice->n_channels,
                                     .n_chunks = facts->n_ranks,
                                     .tile_elems = UINT32_MAX,
                                     .unit_elems = 16};
    const bool is_placed = gyre_tuner_may_place(facts, filter, coll, choice->proto);
    const uint64_t least_bytes = is_placed ? 5 << 20 : 8 << 20;
    const struct gyre_fused_call call = expect_call(facts, n_bytes, GYRE_FUSED_TWO_SHOT, is_placed);
    choice->algorithm = &gyre_algorithm_twoshot;
    if (facts->n_ranks == 2 || facts->n_ranks > 4 || n_bytes <= least_bytes || n_bytes > 16 << 20 ||
        (filter->protos[coll] >> GYRE_PROTO_SIMPLE & 1U) == 0 ||
        !gyre_filter_allows(filter, coll, choice->algorithm))
        return false;
    const uint32_t most_tiles = gyre_executor_fused_tiles(facts->device_kind, &call);
    if (most_tiles == 0)
        return false;
    const uint64_t part = gyre_chunk_range(&split, 0, 0).n_elems; /* the longest */
    const uint64_t tile_bytes = gyre_round_up(gyre_div_round_up(part, most_tiles), 16);
    if (tile_bytes > most_tile_bytes(facts, choice, coll, is_placed))
        return false;
    choice->tile_bytes = (uint32_t)tile_bytes;
    return true;
}

bool gyre_tuner_choose_fused(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                             enum gyre_collective coll, uint64_t n_bytes,
                             struct gyre_choice *choice_out)
{
    struct gyre_choice choice = {
        .proto = GYRE_PROTO_SIMPLE,
        .n_channels = gyre_clamp_u32(CHANNELS, facts->min_channels, facts->max_channels)};
    const bool is_one =
        is_measured(facts) &&
        ((coll == GYRE_COLL_ALL_GATHER && choose_gather(facts, filter, n_bytes, &choice)) ||
         (coll == GYRE_COLL_ALL_REDUCE && choose_twoshot(facts, filter, n_bytes, &choice)));
    if (is_one)
        *choice_out = choice;
    return is_one;
}
