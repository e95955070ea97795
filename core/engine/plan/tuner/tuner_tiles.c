/* SPDX-License-Identifier: Apache-2.0
 *
 * The number of channels and the tile of a call whose algorithm and protocol are given, as rows
 * say. Pure.
 */
#include "core/engine/plan/tuner/tuner.h"

#include "core/foundation/base/util.h"
#include "core/foundation/model/tile.h"
#include "kernels/executor.h"

/* The most bytes of a tile of copy engines, which use no slots. */
#define MOST_COPY_TILE_BYTES (1U << 30)

struct gyre_fifo_size gyre_tuner_fifos(const struct gyre_tuner_facts *facts,
                                       const struct gyre_algorithm *algorithm,
                                       enum gyre_collective coll)
{
    const bool keeps_near =
        coll == GYRE_COLL_SEND_RECV ? facts->is_near : (algorithm->keeps_near >> coll & 1U) != 0;
    return gyre_fifo_size_of(&facts->spec, !keeps_near);
}

uint32_t gyre_tuner_payload_bytes(const struct gyre_tuner_facts *facts,
                                  const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                                  enum gyre_proto proto, bool is_placed)
{
    const struct gyre_fifo_spec *spec = &facts->spec;
    const uint32_t bytes = proto == GYRE_PROTO_SIMPLE
                               ? gyre_tuner_fifos(facts, algorithm, coll).slot_bytes
                               : spec->slot_bytes[gyre_proto_slots(proto)];
    const bool is_ring = algorithm->follows_ring || (is_placed && algorithm->stages_in_ring);
    uint32_t payload_bytes = proto == GYRE_PROTO_SIMPLE && is_ring && spec->ring_slot_bytes > 0
                                 ? spec->ring_slot_bytes
                                 : gyre_slot_payload_bytes(proto, bytes);
    if (proto != GYRE_PROTO_SIMPLE &&
        facts->is_proxied) /* a tile goes through both kinds of slot */
        payload_bytes =
            gyre_min_u32(payload_bytes, gyre_tuner_fifos(facts, algorithm, coll).slot_bytes);
    return facts->device_kind == GYRE_DEVICE_CUDA && algorithm->keeps_sums &&
                   gyre_cuda_has_small_areas(facts->n_ranks)
               ? gyre_min_u32(payload_bytes, GYRE_CUDA_SMALL_AREA_BYTES)
               : payload_bytes;
}

uint32_t gyre_tuner_net_payload_bytes(const struct gyre_tuner_facts *facts, enum gyre_proto proto)
{
    return proto == GYRE_PROTO_SIMPLE
               ? UINT32_MAX
               : gyre_slot_payload_bytes(proto, facts->spec.net_line_bytes) / 16 * 16;
}

static uint64_t square_root(uint64_t value)
{
    uint64_t root = 0;
    for (uint64_t bit = 1ULL << 31; bit > 0; bit >>= 1)
        if ((root + bit) * (root + bit) <= value)
            root += bit;
    return root;
}

/* The tile of LL128 and LAMPORT between all pairs of ranks. There are as few tiles as possible, and
 * each is a multiple of the bytes that the threads of a block move in one round; otherwise the last
 * tile takes one round more. In LL128 the 512 threads are divided among the peers, and a warp moves
 * 480 bytes in a round. */
static uint64_t rounds_tile(const struct gyre_tuner_facts *facts, const struct gyre_choice *choice,
                            enum gyre_collective coll, uint64_t n_bytes, uint32_t most_bytes)
{
    const uint64_t n_peers = facts->n_ranks > 1 ? facts->n_ranks - 1 : 1;
    const uint64_t round_bytes =
        choice->proto == GYRE_PROTO_LAMPORT ? 512 * 16 : gyre_max_u64(512 / n_peers / 32, 1) * 480;
    const bool is_cut = (choice->algorithm->cuts_vector >> coll & 1U) != 0;
    const struct gyre_split split = {.count = n_bytes,
                                     .n_channels = choice->n_channels,
                                     .n_chunks = is_cut ? facts->n_ranks : 1,
                                     .tile_elems = most_bytes,
                                     .unit_elems = 16};
    const uint64_t part = gyre_chunk_range(&split, 0, 0).n_elems; /* the longest */
    const uint64_t n_tiles = gyre_max_u64(gyre_div_round_up(part, most_bytes), 1);
    return gyre_round_up(gyre_max_u64(gyre_div_round_up(part, n_tiles), 1), round_bytes);
}

/* The bytes that the form of a rule divides. */
static uint64_t bytes_of(const struct gyre_rule *rule, const struct gyre_tuner_facts *facts,
                         enum gyre_collective coll, uint64_t n_bytes)
{
    return rule->form == GYRE_RULE_BYTES ? gyre_tuner_all_bytes(facts, coll, n_bytes) : n_bytes;
}

uint64_t gyre_tuner_row_channels(const struct gyre_rule *rule, const struct gyre_tuner_facts *facts,
                                 enum gyre_collective coll, uint64_t n_bytes, uint32_t slot_bytes)
{
    const uint64_t of_tile = rule->one_tile ? gyre_min_u64(rule->number, slot_bytes) : rule->number;
    const uint64_t divisor = of_tile * (rule->by_ranks ? facts->n_ranks : 1);
    const uint64_t bytes = bytes_of(rule, facts, coll, n_bytes);
    const uint64_t n_channels = rule->form == GYRE_RULE_NUMBER ? rule->number
                                : rule->rounds_down            ? bytes / divisor
                                                               : gyre_div_round_up(bytes, divisor);
    return gyre_min_u64(gyre_max_u64(n_channels, rule->least), rule->most);
}

static uint32_t row_tile(const struct gyre_rule *rule, const struct gyre_tuner_facts *facts,
                         const struct gyre_choice *choice, enum gyre_collective coll,
                         uint64_t n_bytes, uint32_t most_bytes)
{
    const uint64_t hops = facts->n_ranks > 1 ? facts->n_ranks - 1 : 1;
    const uint64_t bytes = bytes_of(rule, facts, coll, n_bytes) /
                           (rule->by_ranks ? facts->n_ranks : 1) / choice->n_channels;
    const uint64_t wanted =
        rule->form == GYRE_RULE_SLOT     ? most_bytes
        : rule->form == GYRE_RULE_ROUNDS ? rounds_tile(facts, choice, coll, n_bytes, most_bytes)
        : rule->form == GYRE_RULE_CHAIN
            ? gyre_round_up(square_root(bytes * rule->number / hops), rule->unit_bytes)
            : gyre_round_up(bytes / rule->number, rule->unit_bytes);
    return gyre_clamp_u32(wanted, gyre_min_u64(rule->least, most_bytes) & ~15U, most_bytes);
}

/* A call as rows of sizes see it. */
static struct gyre_row_call sizes_call(const struct gyre_tuner_facts *facts,
                                       enum gyre_row_kind kind, const struct gyre_choice *choice,
                                       enum gyre_collective coll, uint64_t n_bytes)
{
    const struct gyre_row *way = choice->won[GYRE_WON_WAY];
    struct gyre_row_call call = gyre_tuner_row_call(facts, kind, coll, n_bytes);
    call.facts |= gyre_tuner_algorithm_facts(choice->algorithm, coll) |
                  gyre_tuner_proto_facts(choice->proto) |
                  (uint32_t)(choice->path != GYRE_PATH_STAGED) << GYRE_ROW_FACT_PLACED |
                  (uint32_t)(choice->path == GYRE_PATH_COPY_ENGINE) << GYRE_ROW_FACT_COPIES |
                  (uint32_t)(way != NULL && way->kind == GYRE_ROW_FUSED) << GYRE_ROW_FACT_FUSED;
    return call;
}

void gyre_tuner_choose_channels(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                                uint64_t n_bytes, struct gyre_choice *choice)
{
    const struct gyre_row_call call = sizes_call(facts, GYRE_ROW_CHANNELS, choice, coll, n_bytes);
    const struct gyre_row *row = gyre_tuner_find_row(facts, &call);
    const uint32_t slot_bytes =
        gyre_tuner_payload_bytes(facts, choice->algorithm, coll, choice->proto, false);
    const uint64_t wanted = gyre_tuner_row_channels(&row->rule, facts, coll, n_bytes, slot_bytes);
    /* Copy engines need no thread blocks, except for sums. */
    choice->n_channels = choice->path == GYRE_PATH_COPY_ENGINE && !gyre_collectives[coll].reduces
                             ? (uint32_t)wanted
                             : gyre_clamp_u32(wanted, facts->min_channels, facts->max_channels);
    choice->won[GYRE_WON_CHANNELS] = row;
}

void gyre_tuner_choose_tile(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                            uint64_t n_bytes, struct gyre_choice *choice)
{
    const struct gyre_row_call call = sizes_call(facts, GYRE_ROW_TILE, choice, coll, n_bytes);
    const struct gyre_row *row = gyre_tuner_find_row(facts, &call);
    const bool uses_slots = choice->path != GYRE_PATH_COPY_ENGINE || gyre_collectives[coll].reduces;
    const uint32_t most_bytes =
        !uses_slots ? MOST_COPY_TILE_BYTES
                    : gyre_tuner_payload_bytes(facts, choice->algorithm, coll, choice->proto,
                                               choice->path != GYRE_PATH_STAGED) /
                          16 * 16;
    choice->tile_bytes =
        gyre_min_u32(row_tile(&row->rule, facts, choice, coll, n_bytes, most_bytes),
                     gyre_tuner_net_payload_bytes(facts, choice->net_proto));
    choice->won[GYRE_WON_TILE] = row;
}

uint32_t gyre_tuner_pair_channels(const struct gyre_tuner_facts *facts, enum gyre_proto proto)
{
    struct gyre_row_call call = gyre_tuner_row_call(facts, GYRE_ROW_PAIR, GYRE_COLL_SEND_RECV, 0);
    call.facts |= gyre_tuner_proto_facts(proto);
    const struct gyre_row *row = gyre_tuner_find_row(facts, &call);
    if (row == NULL)
        return UINT32_MAX;
    const uint32_t most = (uint32_t)row->rule.number;
    if (!row->rule.by_ranks)
        return most;
    /* a send and a receive with every other rank, and a copy to the own rank */
    const uint32_t n_calls = 2 * facts->n_ranks - 1;
    return (uint32_t)gyre_max_u64(
        gyre_min_u32(most / gyre_min_u32(most, facts->n_ranks), facts->least_sms / n_calls), 1);
}
