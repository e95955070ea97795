/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/plan/tuner/tuner.h"

#include "core/foundation/base/util.h"
#include "core/foundation/model/tile.h"
#include "kernels/executor.h"

uint64_t gyre_tuner_all_bytes(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                              uint64_t n_bytes)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[coll];
    return traits->in_blocks || traits->out_blocks ? n_bytes * facts->n_ranks : n_bytes;
}

struct gyre_row_call gyre_tuner_row_call(const struct gyre_tuner_facts *facts,
                                         enum gyre_row_kind kind, enum gyre_collective coll,
                                         uint64_t n_bytes)
{
    const bool is_gpu = facts->device_kind == GYRE_DEVICE_CUDA;
    const bool is_float_sum =
        is_gpu ? gyre_tuner_proto_obstacle(facts, GYRE_PROTO_LAMPORT) == NULL : facts->has_lamport;
    return (struct gyre_row_call){
        .kind = kind,
        .coll = coll,
        .facts = (uint32_t)is_gpu << GYRE_ROW_FACT_GPUS |
                 (uint32_t)facts->is_ll128_safe << GYRE_ROW_FACT_NVLINK |
                 (uint32_t)facts->is_tcp << GYRE_ROW_FACT_TCP |
                 (uint32_t)facts->is_proxied << GYRE_ROW_FACT_PROXIED |
                 (uint32_t)is_float_sum << GYRE_ROW_FACT_FLOAT_SUM,
        .ranks = facts->n_ranks,
        .hosts = facts->n_hosts,
        .sms = facts->least_sms,
        .channels = facts->max_channels,
        .bytes = gyre_tuner_all_bytes(facts, coll, n_bytes),
        .block = n_bytes,
        .protos = UINT32_MAX,
        .why = facts->why,
    };
}

bool gyre_tuner_is_users(const struct gyre_tuner_facts *facts, const struct gyre_row *row)
{
    return row != NULL && facts->user_rows != NULL && row->file == facts->user_rows->file;
}

const struct gyre_row *gyre_tuner_next_row(const struct gyre_tuner_facts *facts,
                                           const struct gyre_row_call *call,
                                           const struct gyre_row *after)
{
    const bool begins = after == NULL || gyre_tuner_is_users(facts, after);
    const struct gyre_row *row = NULL;
    if (begins && facts->user_rows != NULL)
        row = gyre_rows_find(facts->user_rows, call, after);
    /* All GPUs that address each other's memory use the H200's. */
    return row != NULL
               ? row
               : gyre_rows_find(
                     call->kind >= GYRE_ROW_ONLY
                         ? gyre_rows_of(GYRE_ROWS_HOSTS)
                         : gyre_rows_of(facts->device_kind != GYRE_DEVICE_CUDA ? GYRE_ROWS_HOST
                                        : facts->in_host_memory ? GYRE_ROWS_GPU_HOST_MEMORY
                                                                : GYRE_ROWS_H200),
                     call, begins ? NULL : after);
}

static const char *find_obstacle(const struct gyre_tuner_facts *facts,
                                 const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                                 bool is_placed, struct gyre_ability *can_out)
{
    const struct gyre_given_programs *given = algorithm->from != NULL ? NULL : algorithm->given;
    const bool is_message = coll == GYRE_COLL_SEND_RECV;
    const struct gyre_shape shape = {
        .coll = coll,
        .n_ranks = (uint16_t)(is_message ? gyre_min_u32(facts->n_ranks, 2) : facts->n_ranks),
        .root = given != NULL ? given->root : 0,
        .grouping = is_message ? NULL : facts->grouping,
        .is_placed = given != NULL ? given->is_placed : is_placed};
    return gyre_algorithm_obstacle(algorithm, &shape, can_out);
}

struct gyre_ability gyre_tuner_ability(const struct gyre_tuner_facts *facts,
                                       const struct gyre_algorithm *algorithm,
                                       enum gyre_collective coll, bool is_placed)
{
    struct gyre_ability can;
    find_obstacle(facts, algorithm, coll, is_placed, &can);
    return can;
}

/* In one hop with a root, the root sends or receives the whole vector as in a chain. */
uint32_t gyre_tuner_algorithm_facts(const struct gyre_tuner_facts *facts,
                                    const struct gyre_algorithm *algorithm,
                                    enum gyre_collective coll)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[coll];
    const struct gyre_ability can = gyre_tuner_ability(facts, algorithm, coll, false);
    const bool is_one_hop = can.flow == GYRE_FLOW_ONE_HOP;
    const bool is_chain =
        can.flow == GYRE_FLOW_CHAIN ||
        (is_one_hop && traits->has_root && !traits->in_blocks && !traits->out_blocks);
    return (uint32_t)is_one_hop << GYRE_ROW_FACT_ONE_HOP |
           (uint32_t)(can.reach == GYRE_REACH_RING) << GYRE_ROW_FACT_RING |
           (uint32_t)is_chain << GYRE_ROW_FACT_CHAIN |
           (uint32_t)can.two_level << GYRE_ROW_FACT_TWO_LEVEL |
           (uint32_t)can.fans_in << GYRE_ROW_FACT_FANS_IN;
}

uint32_t gyre_tuner_proto_facts(enum gyre_proto proto)
{
    return (uint32_t)(proto != GYRE_PROTO_SIMPLE) << GYRE_ROW_FACT_LINES |
           (uint32_t)(proto == GYRE_PROTO_LL) << GYRE_ROW_FACT_LL;
}

struct gyre_tuner_facts gyre_tuner_facts_of_pair(const struct gyre_tuner_facts *facts,
                                                 const struct gyre_tuner_pair *pair)
{
    struct gyre_tuner_facts own = *facts;
    own.is_near = pair->is_near;
    own.cost = NULL;
    own.is_proxied = pair->is_proxied;
    if (facts->n_ranks == 2)
        own.max_channels =
            gyre_min_u32(facts->max_channels, gyre_tuner_pair_channels(facts, GYRE_PROTO_LL128));
    if (pair->is_proxied || facts->n_hosts < 2)
        return own;
    own.n_hosts = 1;
    own.is_direct_inside = false;
    own.n_ranks = pair->n_ranks_inside;
    return own;
}

const char *gyre_tuner_proto_obstacle(const struct gyre_tuner_facts *facts, enum gyre_proto proto)
{
    if (proto == GYRE_PROTO_SIMPLE)
        return NULL;
    if (facts->device_kind != GYRE_DEVICE_CUDA)
        return "the host device has simple only";
    if (proto == GYRE_PROTO_LL && gyre_tuner_is_net_alone(facts))
        return gyre_tuner_net_proto_obstacle(facts, proto);
    if (facts->is_proxied && !facts->is_direct_inside)
        return "connections that a proxy serves have simple only";
    if (proto == GYRE_PROTO_LL128 && !facts->is_ll128_safe)
        return "ll128 needs NVLink between all ranks of a host: elsewhere 128-byte stores may "
               "arrive in parts";
    if (proto == GYRE_PROTO_LAMPORT && !facts->has_lamport)
        return "lamport is for sums of floating point, of 16 bits at least";
    if (facts->spec.slot_bytes[gyre_proto_slots(proto)] == 0)
        return "no memory was set aside for it";
    return NULL;
}

const char *gyre_tuner_net_proto_obstacle(const struct gyre_tuner_facts *facts,
                                          enum gyre_proto proto)
{
    if (proto == GYRE_PROTO_SIMPLE)
        return NULL;
    if (proto != GYRE_PROTO_LL)
        return "a network may write a line of another protocol than ll in parts";
    if (facts->spec.net_line_bytes == 0)
        return "the connections that a proxy serves have no slots for lines: over RDMA all GPUs "
               "need GPUDirect RDMA; more than two GPUs over RDMA, and host memory over TCP, need "
               "GYRE_PROTO=/ll from the start; hosts with several GPUs need slots of ll inside";
    return NULL;
}

const char *gyre_tuner_algorithm_obstacle(const struct gyre_tuner_facts *facts,
                                          const struct gyre_algorithm *algorithm,
                                          enum gyre_collective coll)
{
    struct gyre_ability can;
    return find_obstacle(facts, algorithm, coll, false, &can);
}

bool gyre_tuner_can_place(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                          enum gyre_collective coll)
{
    return facts->in_window && (filter->protos[coll] >> GYRE_PROTO_SIMPLE & 1U) != 0;
}

bool gyre_tuner_may_place(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                          enum gyre_collective coll, enum gyre_proto proto, uint64_t n_bytes)
{
    const struct gyre_row_call call = gyre_tuner_row_call(facts, GYRE_ROW_PATH, coll, n_bytes);
    if (proto != GYRE_PROTO_SIMPLE || !gyre_tuner_can_place(facts, filter, coll) ||
        (filter->paths[coll] >> GYRE_PATH_PLACED & 1U) == 0)
        return false;
    return (filter->paths[coll] >> GYRE_PATH_STAGED & 1U) == 0 ||
           gyre_tuner_next_row(facts, &call, NULL) == NULL;
}

/* Copy engines use no slots. */
#define MOST_COPY_TILE_BYTES (1U << 30)

struct gyre_fifo_size gyre_tuner_fifos(const struct gyre_tuner_facts *facts,
                                       const struct gyre_algorithm *algorithm,
                                       enum gyre_collective coll)
{
    const bool keeps_near =
        coll == GYRE_COLL_SEND_RECV
            ? facts->is_near
            : gyre_tuner_ability(facts, algorithm, coll, false).reach != GYRE_REACH_ALL;
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
    const struct gyre_ability can = gyre_tuner_ability(facts, algorithm, coll, is_placed);
    const bool is_ring = can.reach == GYRE_REACH_RING;
    uint32_t payload_bytes = proto == GYRE_PROTO_SIMPLE && is_ring && spec->ring_slot_bytes > 0
                                 ? spec->ring_slot_bytes
                                 : gyre_slot_payload_bytes(proto, bytes);
    if (proto != GYRE_PROTO_SIMPLE &&
        facts->is_proxied) /* a tile goes through both kinds of slot */
        payload_bytes =
            gyre_min_u32(payload_bytes, gyre_tuner_fifos(facts, algorithm, coll).slot_bytes);
    const bool has_areas = can.ranges && facts->n_ranks > 2 &&
                           (coll == GYRE_COLL_REDUCE_SCATTER || coll == GYRE_COLL_ALL_TO_ALL);
    if (facts->device_kind != GYRE_DEVICE_CUDA)
        return payload_bytes;
    return gyre_min_u32(payload_bytes, gyre_cuda_most_tile_bytes(
                                           facts->n_ranks, has_areas || can.keeps_sums, has_areas));
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

/* Tiles of LL128 and LAMPORT between all pairs are multiples of a round of the block's threads, or
 * the last one takes a round more. In LL128 the peers share 512 threads, and a warp moves 480 bytes
 * a round. */
static uint64_t rounds_tile(const struct gyre_tuner_facts *facts, const struct gyre_choice *choice,
                            enum gyre_collective coll, uint64_t n_bytes, uint32_t most_bytes)
{
    const uint64_t n_peers = facts->n_ranks > 1 ? facts->n_ranks - 1 : 1;
    const uint64_t round_bytes =
        choice->proto == GYRE_PROTO_LAMPORT ? 512 * 16 : gyre_max_u64(512 / n_peers / 32, 1) * 480;
    const bool is_cut =
        gyre_tuner_ability(facts, choice->algorithm, coll, false).flow == GYRE_FLOW_CUT;
    const struct gyre_split split = {.count = n_bytes,
                                     .n_channels = choice->n_channels,
                                     .n_chunks = is_cut ? facts->n_ranks : 1,
                                     .tile_elems = most_bytes,
                                     .unit_elems = 16};
    const uint64_t part = gyre_chunk_range(&split, 0, 0).n_elems; /* the longest */
    const uint64_t n_tiles = gyre_max_u64(gyre_div_round_up(part, most_bytes), 1);
    return gyre_round_up(gyre_max_u64(gyre_div_round_up(part, n_tiles), 1), round_bytes);
}

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

static struct gyre_row_call sizes_call(const struct gyre_tuner_facts *facts,
                                       enum gyre_row_kind kind, const struct gyre_choice *choice,
                                       enum gyre_collective coll, uint64_t n_bytes)
{
    const struct gyre_row *way = choice->won[GYRE_WON_WAY];
    struct gyre_row_call call = gyre_tuner_row_call(facts, kind, coll, n_bytes);
    call.facts |= gyre_tuner_algorithm_facts(facts, choice->algorithm, coll) |
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
    const struct gyre_row *row = gyre_tuner_next_row(facts, &call, NULL);
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
    const struct gyre_row *row = gyre_tuner_next_row(facts, &call, NULL);
    const bool uses_slots = choice->path != GYRE_PATH_COPY_ENGINE || gyre_collectives[coll].reduces;
    const uint32_t most_bytes =
        !uses_slots ? MOST_COPY_TILE_BYTES
                    : gyre_tuner_payload_bytes(facts, choice->algorithm, coll, choice->proto,
                                               choice->path != GYRE_PATH_STAGED) /
                          16 * 16;
    const uint64_t hops = facts->n_ranks > 1 ? facts->n_ranks - 1 : 1;
    const uint64_t bytes = bytes_of(&row->rule, facts, coll, n_bytes) /
                           (row->rule.by_ranks ? facts->n_ranks : 1) / choice->n_channels;
    const uint64_t wanted =
        row->rule.form == GYRE_RULE_SLOT     ? most_bytes
        : row->rule.form == GYRE_RULE_ROUNDS ? rounds_tile(facts, choice, coll, n_bytes, most_bytes)
        : row->rule.form == GYRE_RULE_CHAIN
            ? gyre_round_up(square_root(bytes * row->rule.number / hops), row->rule.unit_bytes)
            : gyre_round_up(bytes / row->rule.number, row->rule.unit_bytes);
    choice->tile_bytes = gyre_min_u32(
        gyre_clamp_u32(wanted, gyre_min_u64(row->rule.least, most_bytes) & ~15U, most_bytes),
        gyre_tuner_net_payload_bytes(facts, choice->net_proto));
    choice->won[GYRE_WON_TILE] = row;
}

uint32_t gyre_tuner_pair_channels(const struct gyre_tuner_facts *facts, enum gyre_proto proto)
{
    struct gyre_row_call call = gyre_tuner_row_call(facts, GYRE_ROW_PAIR, GYRE_COLL_SEND_RECV, 0);
    call.facts |= gyre_tuner_proto_facts(proto);
    const struct gyre_row *row = gyre_tuner_next_row(facts, &call, NULL);
    if (row == NULL)
        return UINT32_MAX;
    const uint32_t most = (uint32_t)row->rule.number;
    if (!row->rule.by_ranks)
        return most;
    /* a send and a receive with every other rank, and a copy */
    const uint32_t n_calls = 2 * facts->n_ranks - 1;
    return (uint32_t)gyre_max_u64(
        gyre_min_u32(most / gyre_min_u32(most, facts->n_ranks), facts->least_sms / n_calls), 1);
}
