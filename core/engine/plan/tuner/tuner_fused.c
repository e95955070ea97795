/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the calls of middle size that fused kernels carry out in protocol SIMPLE, and their
 * channels and tiles. The executor knows whether a fused kernel can run a call, and rows of kind
 * FUSED say between which sizes it is the fastest choice. Pure; every rank chooses the same.
 */
#include "core/engine/plan/tuner/tuner.h"

#include "core/foundation/base/util.h"
#include "kernels/executor.h"

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

/* All-gathers whose blocks are written directly into the windows of all ranks. */
static bool size_gather(const struct gyre_tuner_facts *facts, uint64_t n_bytes,
                        struct gyre_choice *choice)
{
    struct gyre_fused_call call = expect_call(facts, n_bytes, GYRE_FUSED_ALL_GATHER, true);
    call.places_blocks = n_bytes * (facts->n_ranks - 1) >= GYRE_BLOCK_PLACEMENT_BYTES;
    if (gyre_executor_fused_tiles(facts->device_kind, &call) == 0)
        return false;
    choice->tile_bytes =
        gyre_clamp_u32(gyre_round_up(gyre_div_round_up(n_bytes, choice->n_channels), 512), 512,
                       most_tile_bytes(facts, choice, GYRE_COLL_ALL_GATHER, true));
    return true;
}

/* All-reduces of sums of floating point, in as many tiles as the kernel takes. */
static bool size_twoshot(const struct gyre_tuner_facts *facts, uint64_t n_bytes, bool is_placed,
                         struct gyre_choice *choice)
{
    const struct gyre_split split = {.count = n_bytes,
                                     .n_channels = choice->n_channels,
                                     .n_chunks = facts->n_ranks,
                                     .tile_elems = UINT32_MAX,
                                     .unit_elems = 16};
    const struct gyre_fused_call call = expect_call(facts, n_bytes, GYRE_FUSED_TWO_SHOT, is_placed);
    const uint32_t most_tiles = gyre_executor_fused_tiles(facts->device_kind, &call);
    if (most_tiles == 0)
        return false;
    const uint64_t part = gyre_chunk_range(&split, 0, 0).n_elems; /* the longest */
    const uint64_t tile_bytes = gyre_round_up(gyre_div_round_up(part, most_tiles), 16);
    if (tile_bytes > most_tile_bytes(facts, choice, GYRE_COLL_ALL_REDUCE, is_placed))
        return false;
    choice->tile_bytes = (uint32_t)tile_bytes;
    return true;
}

bool gyre_tuner_choose_fused(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                             enum gyre_collective coll, uint64_t n_bytes,
                             struct gyre_choice *choice_out)
{
    struct gyre_row_call call = gyre_tuner_row_call(facts, GYRE_ROW_FUSED, coll, n_bytes);
    const bool is_placed = gyre_tuner_may_place(facts, filter, coll, GYRE_PROTO_SIMPLE, n_bytes);
    const struct gyre_row *row = NULL;
    call.facts |= (uint32_t)is_placed << GYRE_ROW_FACT_PLACED;
    call.protos = filter->protos[coll];
    while ((row = gyre_rows_find(gyre_tuner_rows(facts), &call, row)) != NULL) {
        struct gyre_choice choice = {.algorithm = row->algorithm,
                                     .proto = row->proto,
                                     .path = is_placed ? GYRE_PATH_PLACED : GYRE_PATH_STAGED,
                                     .won = {[GYRE_WON_WAY] = row}};
        gyre_tuner_choose_channels(facts, coll, n_bytes, &choice);
        if (gyre_filter_allows(filter, coll, row->algorithm) &&
            (coll == GYRE_COLL_ALL_GATHER ? size_gather(facts, n_bytes, &choice)
                                          : size_twoshot(facts, n_bytes, is_placed, &choice))) {
            *choice_out = choice;
            return true;
        }
        gyre_why_add(call.why, row, "no kernel takes the call, or it is not allowed");
    }
    return false;
}
