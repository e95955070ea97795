/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/host/lower.h"

#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

struct lowering {
    const struct gyre_fifo_spec *spec;
    const struct gyre_connector *connectors;
    uint32_t n_ranks;
    const struct gyre_load_config *config;
    uint32_t n_variants;
    uint32_t n_workers;         /* of the largest variant */
    uint32_t n_all_steps;       /* of all variants */
    uint32_t n_all_connections; /* likewise */
    uint32_t variant;           /* being lowered */
    const struct gyre_program *program;
    struct gyre_cuda_program *blob;
    struct gyre_cuda_worker *workers;
    struct gyre_cuda_connection *connections;
    struct gyre_cuda_step *steps;
    /* The smallest slots so far, of all connections and with a proxy. */
    uint32_t slot_bytes;
    uint32_t proxied_bytes;
    bool is_proxied;      /* so far */
    uint16_t *own_number; /* by connection: its number in its worker, or NONE */
};

#define NONE UINT16_MAX

static uint32_t peer_of(const struct lowering *lower, const struct gyre_connection *connection)
{
    const uint16_t *rank_of = lower->config->rank_of;
    return rank_of != NULL ? rank_of[connection->peer] : connection->peer;
}

static bool has_net_lines(const struct lowering *lower)
{
    return lower->config->net_proto == GYRE_PROTO_LL;
}

/* The slots hold a tile, because some data is not placed. @least_bytes: the smallest so far. */
static void use_slots(const struct lowering *lower, uint32_t i, uint32_t *least_bytes)
{
    const struct gyre_program *program = lower->program;
    const struct gyre_connection *connection = &program->connections[i];
    const uint32_t peer = peer_of(lower, connection);
    for (uint32_t channel = lower->variant; channel < lower->config->n_channels;
         channel += lower->n_variants) {
        const uint32_t fifo = channel * program->n_lanes + connection->lane;
        const struct gyre_connector *end = &lower->connectors[gyre_connector_index(
            lower->spec, peer, fifo, connection->is_send != 0)];
        *least_bytes = (uint32_t)gyre_min_u64(*least_bytes, end->slot_bytes);
    }
}

static gyre_status use_connection(struct lowering *lower, struct gyre_cuda_worker *worker,
                                  const struct gyre_operand *operand,
                                  struct gyre_cuda_operand *operand_out)
{
    const uint16_t i = operand->index;
    if (operand->is_placed != 0 && lower->config->proto != GYRE_PROTO_SIMPLE)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "algorithm %s places data: only by protocol %s",
                         lower->program->algorithm, gyre_proto_names[GYRE_PROTO_SIMPLE]);
    if (lower->own_number[i] == NONE) {
        struct gyre_cuda_connection *added =
            &lower->connections[worker->first_connection + worker->n_connections];
        /* In all channels. @is_simple_out: it has a proxy and goes by SIMPLE within a line
         * protocol. */
        const struct gyre_program *program = lower->program;
        const struct gyre_connection *connection = &program->connections[i];
        const uint32_t peer = peer_of(lower, connection);
        const enum gyre_proto proto = lower->config->proto;
        bool is_proxied = false;
        for (uint32_t channel = lower->variant; channel < lower->config->n_channels;
             channel += lower->n_variants) {
            const uint32_t fifo = channel * program->n_lanes + connection->lane;
            const struct gyre_connector *end = NULL;
            if (peer < lower->n_ranks && fifo < lower->spec->n_fifos)
                end = &lower->connectors[gyre_connector_index(lower->spec, peer, fifo,
                                                              connection->is_send != 0)];
            if (end == NULL || end->inbox == NULL)
                return gyre_fail(
                    GYRE_ERROR_INVALID_USAGE, "no connection %s rank %u (FIFO %u) for algorithm %s",
                    connection->is_send ? "to" : "from", peer, fifo, program->algorithm);
            is_proxied = end->is_proxied != 0;
            const enum gyre_proto slots =
                is_proxied ? lower->config->net_proto : gyre_proto_slots(proto);
            const uint32_t slot_bytes = is_proxied && has_net_lines(lower)
                                            ? lower->spec->net_line_bytes
                                            : lower->spec->slot_bytes[slots];
            if (end->slots[slots] == NULL || slot_bytes == 0)
                return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                                 "the connection %s rank %u has no slots for protocol %s",
                                 connection->is_send ? "to" : "from", peer,
                                 gyre_proto_names[proto]);
            if (end->is_proxied && program->is_placed != 0)
                return gyre_fail(
                    GYRE_ERROR_UNSUPPORTED,
                    "the connection %s rank %u goes through a proxy: nothing can be placed",
                    connection->is_send ? "to" : "from", peer);
        }
        lower->is_proxied = lower->is_proxied || is_proxied;
        added->index =
            gyre_connector_index(lower->spec, peer, connection->lane, connection->is_send != 0);
        added->is_simple = is_proxied && proto != GYRE_PROTO_SIMPLE && !has_net_lines(lower);
        lower->own_number[i] = (uint16_t)worker->n_connections++;
    }
    struct gyre_cuda_connection *own =
        &lower->connections[worker->first_connection + lower->own_number[i]];
    if (lower->config->proto == GYRE_PROTO_SIMPLE && operand->is_placed == 0)
        use_slots(lower, i, &lower->slot_bytes);
    if (own->is_simple != 0)
        use_slots(lower, i, &lower->proxied_bytes);
    own->is_placed = (uint8_t)(own->is_placed | operand->is_placed);
    operand_out->ref =
        (uint16_t)(lower->own_number[i] | (operand->is_placed != 0 ? GYRE_CUDA_REF_PLACED : 0));
    operand_out->use = own->n_uses++;
    return GYRE_SUCCESS;
}

static gyre_status lower_operand(struct lowering *lower, struct gyre_cuda_worker *worker,
                                 const struct gyre_operand *operand,
                                 struct gyre_cuda_operand *operand_out)
{
    if (operand->kind == GYRE_OPERAND_CONNECTION)
        return use_connection(lower, worker, operand, operand_out);
    const struct gyre_program *program = lower->program;
    const bool is_block =
        gyre_program_n_parts(program, (enum gyre_operand_kind)operand->kind) > program->n_chunks;
    const uint32_t index = operand->kind != GYRE_OPERAND_SCRATCH && is_block
                               ? gyre_program_block(program, operand->index)
                               : operand->index;
    if (index > GYRE_CUDA_REF_INDEX_MASK)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "algorithm %s: chunk %u is beyond %u",
                         program->algorithm, index, GYRE_CUDA_REF_INDEX_MASK);
    operand_out->ref = (uint16_t)((unsigned)operand->kind << GYRE_CUDA_REF_KIND_SHIFT | index);
    operand_out->use = 0;
    return GYRE_SUCCESS;
}

static gyre_status lower_step(struct lowering *lower, struct gyre_cuda_worker *worker,
                              const struct gyre_step *step, struct gyre_cuda_step *own)
{
    own->n_ins = step->n_ins;
    own->n_outs = step->n_outs;
    own->is_final = (step->flags & GYRE_STEP_FINAL) != 0;
    own->n_pieces = (uint8_t)step->n_chunks;
    own->chunk = step->chunk;
    own->run = step->run;
    own->stride = step->stride;
    own->n_parts = (uint16_t)gyre_program_n_parts(lower->program, GYRE_OPERAND_SCRATCH);
    for (unsigned i = 0; i < step->n_ins; i++) {
        const unsigned kind = step->ins[i].kind;
        GYRE_TRY(lower_operand(lower, worker, &step->ins[i], &own->ins[i]));
        if (kind == GYRE_OPERAND_CONNECTION)
            own->recv_mask = (uint16_t)(own->recv_mask | 1U << i);
        if (kind == GYRE_OPERAND_IN)
            own->caller_mask = (uint16_t)(own->caller_mask | 1U << i);
    }
    for (unsigned i = 0; i < step->n_outs; i++) {
        GYRE_TRY(lower_operand(lower, worker, &step->outs[i], &own->outs[i]));
        if (step->outs[i].kind == GYRE_OPERAND_CONNECTION)
            own->send_mask = (uint16_t)(own->send_mask | 1U << i);
    }
    return GYRE_SUCCESS;
}

static gyre_status lower_all(struct lowering *lower, struct gyre_cuda_shape *shape_out)
{
    struct gyre_cuda_shape shape = {0};
    uint32_t n_steps = 0, n_connections = 0;
    for (lower->variant = 0; lower->variant < lower->n_variants; lower->variant++) {
        lower->program = gyre_load_program(lower->config, lower->variant);
        if (lower->program->max_range > gyre_cuda_most_range(lower->program, lower->config->proto))
            return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                             "a step of algorithm %s moves up to %u chunks: too many for a GPU",
                             lower->program->algorithm, lower->program->max_range);
        if (lower->program->n_chunks > 1 && (gyre_collectives[lower->program->coll].in_blocks ||
                                             gyre_collectives[lower->program->coll].out_blocks))
            return gyre_fail(
                GYRE_ERROR_UNSUPPORTED,
                "algorithm %s cuts blocks into chunks; such programs run on the host device only",
                lower->program->algorithm);
        const struct gyre_program *program = lower->program;
        memset(lower->own_number, 0xff, (program->n_connections + 1U) * sizeof(*lower->own_number));
        for (uint32_t w = 0; w < program->n_workers; w++) {
            const struct gyre_worker *from = &program->workers[w];
            struct gyre_cuda_worker *worker =
                &lower->workers[lower->variant * lower->n_workers + w];
            worker->first_step = n_steps + from->first_step;
            worker->n_steps = from->n_steps;
            worker->first_connection = n_connections;
            for (uint32_t s = 0; s < from->n_steps; s++)
                GYRE_TRY(lower_step(lower, worker, &program->steps[from->first_step + s],
                                    &lower->steps[worker->first_step + s]));
            for (uint32_t c = 0; c < worker->n_connections; c++)
                shape.max_uses = (uint32_t)gyre_max_u64(
                    shape.max_uses, lower->connections[worker->first_connection + c].n_uses);
            n_connections += worker->n_connections;
            if (worker->n_connections > shape.max_connections)
                shape.max_connections = worker->n_connections;
            if (worker->n_steps > shape.max_steps)
                shape.max_steps = worker->n_steps;
        }
        n_steps += program->n_steps;
    }
    shape.slot_bytes = lower->slot_bytes;
    shape.proxied_bytes = lower->proxied_bytes;
    shape.is_proxied = lower->is_proxied;
    *shape_out = shape;
    return GYRE_SUCCESS;
}

static void *blob_at(const struct gyre_cuda_program *blob, uint32_t offset)
{
    return (unsigned char *)(uintptr_t)blob + offset;
}

gyre_status gyre_cuda_lower(const struct gyre_fifo_spec *spec,
                            const struct gyre_connector *connectors, int n_ranks,
                            const struct gyre_load_config *config,
                            struct gyre_cuda_program **blob_out, struct gyre_cuda_shape *shape_out)
{
    struct gyre_cuda_program layout;
    struct lowering lower = {
        .spec = spec, .connectors = connectors, .n_ranks = (uint32_t)n_ranks, .config = config};
    /* A launch's kernels know one line protocol. */
    if (has_net_lines(&lower) && config->proto != GYRE_PROTO_LL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "ll between hosts goes with ll inside hosts, not %s",
                         gyre_proto_names[config->proto]);
    uint32_t most_connections = 0;
    lower.n_variants = gyre_load_variants(lower.config);
    for (uint32_t v = 0; v < lower.n_variants; v++) {
        const struct gyre_program *program = gyre_load_program(lower.config, v);
        lower.n_workers = (uint32_t)gyre_max_u64(lower.n_workers, program->n_workers);
        lower.n_all_steps += program->n_steps;
        lower.n_all_connections += program->n_connections;
        most_connections = (uint32_t)gyre_max_u64(most_connections, program->n_connections);
    }
    /* A tile fits the lines between hosts, too. */
    lower.proxied_bytes = has_net_lines(&lower)
                              ? gyre_slot_payload_bytes(GYRE_PROTO_LL, spec->net_line_bytes)
                              : UINT32_MAX;
    lower.slot_bytes = spec->slot_bytes[gyre_proto_slots(config->proto)];
    if (config->proto == GYRE_PROTO_SIMPLE)
        lower.slot_bytes = (uint32_t)gyre_max_u64(lower.slot_bytes, spec->ring_slot_bytes);
    layout.workers_offset = sizeof(layout);
    layout.connections_offset =
        layout.workers_offset +
        lower.n_variants * lower.n_workers * (uint32_t)sizeof(struct gyre_cuda_worker);
    layout.steps_offset = (uint32_t)gyre_round_up(
        layout.connections_offset + lower.n_all_connections * sizeof(struct gyre_cuda_connection),
        16);
    layout.n_bytes =
        layout.steps_offset + lower.n_all_steps * (uint32_t)sizeof(struct gyre_cuda_step);
    lower.blob = calloc(1, layout.n_bytes);
    lower.own_number = malloc((most_connections + 1U) * sizeof(*lower.own_number));
    gyre_status status = GYRE_SUCCESS;
    if (lower.blob == NULL || lower.own_number == NULL) {
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot load algorithm %s: %u bytes",
                           config->program->algorithm, layout.n_bytes);
        goto out;
    }
    *lower.blob = layout;
    lower.workers = blob_at(lower.blob, layout.workers_offset);
    lower.connections = blob_at(lower.blob, layout.connections_offset);
    lower.steps = blob_at(lower.blob, layout.steps_offset);
    GYRE_TRY_GOTO(status, lower_all(&lower, shape_out), out);
    *blob_out = lower.blob;
    lower.blob = NULL;
out:
    free(lower.own_number);
    free(lower.blob);
    return status;
}

struct resolver {
    const struct gyre_fifo_spec *spec;
    const struct gyre_connector *connectors;
    const struct gyre_load_config *config;
    uint32_t channel_stride;
};

/* The connector in channel 0. */
static uint32_t end_of(const struct resolver *resolver, uint16_t connection, bool is_send)
{
    const struct gyre_connection *own = &resolver->config->program->connections[connection];
    const uint16_t *rank_of = resolver->config->rank_of;
    const uint32_t peer = rank_of != NULL ? rank_of[own->peer] : own->peer;
    return gyre_connector_index(resolver->spec, peer, own->lane, is_send);
}

/* The slots, in SIMPLE the inbox, because its kernels read slots' addresses from the connector. */
static uintptr_t place_of(const struct resolver *resolver, const struct gyre_connector *end)
{
    const enum gyre_proto proto = gyre_proto_slots(resolver->config->proto);
    return proto == GYRE_PROTO_SIMPLE ? (uintptr_t)end->inbox : (uintptr_t)end->slots[proto];
}

static bool resolve_peer(const struct resolver *resolver, const struct gyre_fused_peer *from,
                         struct gyre_cuda_fused *fused, struct gyre_cuda_peer *peer)
{
    const enum gyre_proto proto = gyre_proto_slots(resolver->config->proto);
    /* A send has no receiver side, and a receive no sender side. The end with the same rank serves,
     * where a send may give credit. */
    const bool has_send = from->send != GYRE_FUSED_NO_CONNECTION;
    const bool has_recv = from->recv != GYRE_FUSED_NO_CONNECTION;
    peer->send_end = end_of(resolver, has_send ? from->send : from->recv, true);
    peer->recv_end = end_of(resolver, has_recv ? from->recv : from->send, false);
    peer->in_offset = from->in_block;
    peer->out_offset = from->out_block;
    peer->chunk = from->chunk;
    const struct gyre_connector *send = &resolver->connectors[peer->send_end];
    const struct gyre_connector *recv = &resolver->connectors[peer->recv_end];
    if (send->is_proxied || recv->is_proxied)
        return false;
    peer->to = (unsigned char *)place_of(resolver, send);
    peer->from = (const unsigned char *)place_of(resolver, recv);
    peer->head = &send->credit->head[proto];
    peer->posted = &recv->credit->head[proto];
    if (peer == fused->peers && resolver->config->n_channels > 1) {
        const struct gyre_connector *next = &send[resolver->channel_stride];
        fused->slots_stride = place_of(resolver, next) - place_of(resolver, send);
        fused->credit_stride = (uint32_t)((uintptr_t)next->credit - (uintptr_t)send->credit);
    }
    /* Are both ends as far from channel 0's as the strides say? */
    const struct gyre_connector *const firsts[] = {send, recv};
    for (uint32_t c = 1; c < resolver->config->n_channels; c++)
        for (unsigned i = 0; i < 2; i++) {
            const struct gyre_connector *end = &firsts[i][c * resolver->channel_stride];
            if (place_of(resolver, end) !=
                    place_of(resolver, firsts[i]) + c * fused->slots_stride ||
                (uintptr_t)end->credit != (uintptr_t)firsts[i]->credit + c * fused->credit_stride)
                return false;
        }
    return true;
}

bool gyre_cuda_fused_resolve(const struct gyre_fifo_spec *spec,
                             const struct gyre_connector *connectors,
                             const struct gyre_load_config *config,
                             const struct gyre_fused_program *found,
                             struct gyre_cuda_fused *fused_out)
{
    const struct resolver resolver = {.spec = spec,
                                      .connectors = connectors,
                                      .config = config,
                                      .channel_stride = config->program->n_lanes * 2U};
    struct gyre_cuda_fused fused;
    if ((spec->depth & (spec->depth - 1)) != 0 || found->n_peers > GYRE_CUDA_MAX_PEERS)
        return false;
    memset(&fused, 0, sizeof(fused));
    fused.depth = spec->depth;
    fused.n_peers = found->n_peers;
    fused.scatters = gyre_fused_patterns[found->pattern].scatters;
    fused.reduces = gyre_fused_patterns[found->pattern].reduces;
    fused.gathers = gyre_fused_patterns[found->pattern].gathers;
    fused.own_place = found->own_place;
    fused.own_chunk = found->own_chunk;
    fused.own_offset = found->own_in_block;
    fused.own_out_offset = found->own_out_block;
    for (unsigned p = 0; p < found->n_peers; p++)
        if (!resolve_peer(&resolver, &found->peers[p], &fused, &fused.peers[p]))
            return false;
    *fused_out = fused;
    return true;
}

bool gyre_cuda_fused_joins(const struct gyre_cuda_fused *send,
                           const struct gyre_cuda_fused *receive)
{
    return send->slots_stride == receive->slots_stride &&
           send->credit_stride == receive->credit_stride && send->depth == receive->depth;
}

struct gyre_cuda_fused gyre_cuda_fused_join(const struct gyre_cuda_fused *send,
                                            const struct gyre_cuda_fused *receive)
{
    const struct gyre_cuda_peer *from = &receive->peers[0];
    struct gyre_cuda_fused both = *send;
    both.gathers = 1;
    both.peers[0].from = from->from;
    both.peers[0].posted = from->posted;
    both.peers[0].recv_end = from->recv_end;
    return both;
}

struct gyre_cuda_fused gyre_cuda_fused_before(const struct gyre_cuda_fused *send,
                                              const struct gyre_cuda_fused *receive,
                                              uint32_t n_channels)
{
    struct gyre_cuda_fused first = *send;
    first.n_channels_behind = (uint16_t)n_channels;
    first.peers[0].posted = receive->peers[0].posted;
    first.peers[0].recv_end = receive->peers[0].recv_end;
    return first;
}
