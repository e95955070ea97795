/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds which protocols, algorithms and paths the facts and the filter rule out. Pure.
 */
#include "core/engine/plan/tuner/tuner.h"

#include "core/foundation/base/util.h"

uint64_t gyre_tuner_all_bytes(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                              uint64_t n_bytes)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[coll];
    return traits->in_blocks || traits->out_blocks ? n_bytes * facts->n_ranks : n_bytes;
}

const struct gyre_rows *gyre_tuner_rows(const struct gyre_tuner_facts *facts)
{
    return gyre_rows_of(facts->device_kind != GYRE_DEVICE_CUDA ? GYRE_ROWS_HOST
                        : facts->in_host_memory                ? GYRE_ROWS_GPU_HOST_MEMORY
                                                               : GYRE_ROWS_H200);
}

struct gyre_row_call gyre_tuner_row_call(const struct gyre_tuner_facts *facts,
                                         enum gyre_row_kind kind, enum gyre_collective coll,
                                         uint64_t n_bytes)
{
    const bool adds_lines = gyre_tuner_proto_obstacle(facts, GYRE_PROTO_LAMPORT) == NULL;
    return (struct gyre_row_call){
        .kind = kind,
        .coll = coll,
        .facts = (uint32_t)(facts->device_kind == GYRE_DEVICE_CUDA) << GYRE_ROW_FACT_GPUS |
                 (uint32_t)facts->is_ll128_safe << GYRE_ROW_FACT_NVLINK |
                 (uint32_t)facts->is_tcp << GYRE_ROW_FACT_TCP |
                 (uint32_t)facts->is_proxied << GYRE_ROW_FACT_PROXIED |
                 (uint32_t)adds_lines << GYRE_ROW_FACT_FLOAT_SUM,
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

const struct gyre_row *gyre_tuner_find_row(const struct gyre_tuner_facts *facts,
                                           const struct gyre_row_call *call)
{
    return gyre_rows_find(gyre_tuner_rows(facts), call, NULL);
}

uint32_t gyre_tuner_algorithm_facts(const struct gyre_algorithm *algorithm,
                                    enum gyre_collective coll)
{
    return (uint32_t)algorithm->is_one_shot << GYRE_ROW_FACT_ONE_HOP |
           (uint32_t)algorithm->follows_ring << GYRE_ROW_FACT_RING |
           (algorithm->chains >> coll & 1U) << GYRE_ROW_FACT_CHAIN |
           (uint32_t)algorithm->is_two_level << GYRE_ROW_FACT_TWO_LEVEL |
           (algorithm->fans_in >> coll & 1U) << GYRE_ROW_FACT_FANS_IN;
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
    const bool has_ranges = facts->n_ranks > 1 && (algorithm->ranges >> coll & 1U) != 0;
    return has_ranges && facts->device_kind == GYRE_DEVICE_CUDA
               ? "its steps move ranges of chunks; range steps run on the host device only"
               : NULL;
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
           gyre_tuner_find_row(facts, &call) == NULL;
}
