/* SPDX-License-Identifier: Apache-2.0
 *
 * Which programs are exchanges, which exchange.cuh runs as one macro-step. Pure.
 */
#include "kernels/cuda/host/program.h"

#include <string.h>

struct finder {
    const struct gyre_fifo_spec *spec;
    const struct gyre_connector *connectors;
    const struct gyre_load_config *config;
    const struct gyre_cuda_connection *connections; /* of the only worker */
    struct gyre_cuda_exchange exchange;
};

static uint32_t rank_of_end(const struct finder *finder, uint32_t index)
{
    return index / (finder->spec->n_fifos * 2);
}

/* A peer by its rank; NULL if it is none so far. */
static struct gyre_cuda_peer *find_peer(struct finder *finder, uint32_t end)
{
    for (unsigned p = 0; p < finder->exchange.n_peers; p++)
        if (rank_of_end(finder, finder->exchange.peers[p].recv_end) == rank_of_end(finder, end))
            return &finder->exchange.peers[p];
    return NULL;
}

static bool add_peer(struct finder *finder, const struct gyre_cuda_operand *from)
{
    struct gyre_cuda_exchange *exchange = &finder->exchange;
    const uint32_t end = finder->connections[from->ref & GYRE_CUDA_REF_INDEX_MASK].index;
    if (exchange->n_peers == GYRE_CUDA_MAX_PEERS || find_peer(finder, end) != NULL)
        return false;
    exchange->peers[exchange->n_peers].send_end = UINT32_MAX;
    exchange->peers[exchange->n_peers++].recv_end = end;
    return true;
}

/* The chunk's number where a vector is cut into chunks. */
static uint32_t part_of(const struct finder *finder, const struct gyre_cuda_step *step)
{
    return finder->config->program->n_chunks == 1 ? 0 : step->chunk;
}

/* A chunk of IN or OUT: a whole block, or a piece of the vector that has the step's number. Offsets
 * are in blocks until the launch. */
static bool find_chunk(const struct finder *finder, const struct gyre_cuda_step *step, uint16_t ref,
                       enum gyre_operand_kind kind, uint64_t *block_out)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[finder->config->program->coll];
    const uint32_t index = ref & GYRE_CUDA_REF_INDEX_MASK;
    const bool in_blocks = kind == GYRE_OPERAND_IN ? traits->in_blocks : traits->out_blocks;
    *block_out = in_blocks ? index : 0;
    return ref >> GYRE_CUDA_REF_KIND_SHIFT == kind && (in_blocks || index == part_of(finder, step));
}

/* Of a program that places, all results are placed and nothing else is; of others nothing is. */
static bool is_placed_as_due(const struct finder *finder, uint16_t ref, bool is_result)
{
    return ((ref & GYRE_CUDA_REF_PLACED) != 0) ==
           (is_result && finder->config->program->is_placed != 0);
}

static bool is_send(const struct gyre_cuda_step *step, unsigned o)
{
    return (step->send_mask >> o & 1) != 0;
}

/* An output that is a send to a peer, its connection's `use`-th in the tile. */
static struct gyre_cuda_peer *find_send(struct finder *finder, const struct gyre_cuda_operand *to,
                                        unsigned use, bool is_result)
{
    const uint32_t end = finder->connections[to->ref & GYRE_CUDA_REF_INDEX_MASK].index;
    if (!is_placed_as_due(finder, to->ref, is_result))
        return NULL;
    struct gyre_cuda_peer *peer = find_peer(finder, end);
    if (peer == NULL || to->use != use || (peer->send_end != UINT32_MAX && peer->send_end != end))
        return NULL;
    peer->send_end = end;
    return peer;
}

/* What the result is made of: peers' slots in its order, the own chunk of IN once. */
static bool find_inputs(struct finder *finder, const struct gyre_cuda_step *step)
{
    struct gyre_cuda_exchange *exchange = &finder->exchange;
    bool has_own = false;
    for (unsigned i = 0; i < step->n_ins; i++) {
        if ((step->recv_mask >> i & 1) != 0) {
            if (step->ins[i].use != 0 || !is_placed_as_due(finder, step->ins[i].ref, false) ||
                !add_peer(finder, &step->ins[i]))
                return false;
            continue;
        }
        if (has_own ||
            !find_chunk(finder, step, step->ins[i].ref, GYRE_OPERAND_IN, &exchange->own_offset))
            return false;
        has_own = true;
        exchange->own_place = exchange->n_peers;
    }
    exchange->reduces = exchange->n_peers > 0;
    exchange->own_chunk = part_of(finder, step);
    return has_own && (exchange->reduces == 0 || step->is_final != 0);
}

/* Where the result goes: OUT once, and all peers or none. */
static bool find_outputs(struct finder *finder, const struct gyre_cuda_step *step)
{
    struct gyre_cuda_exchange *exchange = &finder->exchange;
    unsigned n_sends = 0;
    for (unsigned o = 0; o < step->n_outs; o++) {
        if (is_send(step, o)) {
            if (find_send(finder, &step->outs[o], exchange->reduces, true) == NULL)
                return false;
            n_sends++;
        } else if (!find_chunk(finder, step, step->outs[o].ref, GYRE_OPERAND_OUT,
                               &exchange->own_out_offset)) {
            return false;
        }
    }
    exchange->gathers = n_sends > 0;
    return n_sends + 1 == step->n_outs && (n_sends == 0 || n_sends == exchange->n_peers);
}

/* A step that only sends IN, to peers that reduce it. Returns to how many, 0 if it is not. */
static unsigned find_scatter(struct finder *finder, const struct gyre_cuda_step *step)
{
    uint64_t block;
    if (step->n_ins != 1 || step->recv_mask != 0 ||
        !find_chunk(finder, step, step->ins[0].ref, GYRE_OPERAND_IN, &block))
        return 0;
    for (unsigned o = 0; o < step->n_outs; o++) {
        struct gyre_cuda_peer *peer =
            is_send(step, o) ? find_send(finder, &step->outs[o], 0, false) : NULL;
        if (peer == NULL)
            return 0;
        peer->in_offset = block;
        peer->chunk = part_of(finder, step);
    }
    return step->n_outs;
}

/* A step that only stores a peer's result; of placed data, that only waits for it. */
static bool find_gather(struct finder *finder, const struct gyre_cuda_step *step)
{
    const uint16_t reduces = finder->exchange.reduces;
    const bool is_placed = finder->config->program->is_placed != 0;
    if (step->n_ins != 1 || step->recv_mask != 1 || step->n_outs != (is_placed ? 0 : 1) ||
        step->ins[0].use != reduces || !is_placed_as_due(finder, step->ins[0].ref, true))
        return false;
    const uint32_t end = finder->connections[step->ins[0].ref & GYRE_CUDA_REF_INDEX_MASK].index;
    struct gyre_cuda_peer *peer = find_peer(finder, end);
    if (peer == NULL || peer->recv_end != end ||
        (reduces != 0 && peer->chunk != part_of(finder, step)))
        return false;
    peer->chunk = part_of(finder, step);
    return is_placed ||
           find_chunk(finder, step, step->outs[0].ref, GYRE_OPERAND_OUT, &peer->out_offset);
}

/* The steps before the first result, the result, the steps after it. */
static bool find_phases(struct finder *finder, const struct gyre_cuda_step *steps, uint32_t n_steps)
{
    struct gyre_cuda_exchange *exchange = &finder->exchange;
    uint32_t result = 0, n_scattered = 0;
    while (result < n_steps && steps[result].send_mask + 1U == 1U << steps[result].n_outs)
        result++;
    if (result == n_steps || !find_inputs(finder, &steps[result]))
        return false;
    for (uint32_t s = result + 1; s < n_steps && exchange->reduces == 0; s++)
        if (steps[s].recv_mask != 1 || !add_peer(finder, &steps[s].ins[0]))
            return false;
    for (uint32_t s = 0; s < result; s++) {
        const unsigned n = find_scatter(finder, &steps[s]);
        if (n == 0)
            return false;
        n_scattered += n;
    }
    if (!find_outputs(finder, &steps[result]))
        return false;
    for (uint32_t s = result + 1; s < n_steps; s++)
        if (!find_gather(finder, &steps[s]))
            return false;
    return exchange->n_peers > 0 &&
           n_scattered == (exchange->reduces != 0 ? exchange->n_peers : 0U) &&
           n_steps - result - 1 == (exchange->gathers != 0 ? exchange->n_peers : 0U);
}

/* Lines: the slots. SIMPLE: the words that say how far they are; a connector knows its slots. */
static unsigned char *place_of(const struct finder *finder, const struct gyre_connector *end)
{
    const enum gyre_proto proto = gyre_proto_slots(finder->config->proto);
    return proto == GYRE_PROTO_SIMPLE ? (unsigned char *)end->inbox : end->slots[proto];
}

/* The ends of one peer; channels must follow each other at the same distance everywhere. */
static bool resolve_peer(struct finder *finder, unsigned p, uint32_t channel_stride)
{
    struct gyre_cuda_exchange *exchange = &finder->exchange;
    struct gyre_cuda_peer *peer = &exchange->peers[p];
    const enum gyre_proto proto = gyre_proto_slots(finder->config->proto);
    const struct gyre_connector *send = &finder->connectors[peer->send_end];
    const struct gyre_connector *recv = &finder->connectors[peer->recv_end];
    if (send->is_proxied || recv->is_proxied)
        return false;
    peer->to = place_of(finder, send);
    peer->from = place_of(finder, recv);
    peer->head = &send->credit->head[proto];
    peer->posted = &recv->credit->head[proto];
    for (uint32_t c = 1; c < finder->config->n_channels; c++) {
        const struct gyre_connector *send_c = &send[c * channel_stride];
        const struct gyre_connector *recv_c = &recv[c * channel_stride];
        const uintptr_t to_c = (uintptr_t)place_of(finder, send_c);
        const uintptr_t from_c = (uintptr_t)place_of(finder, recv_c);
        if (p == 0 && c == 1) {
            exchange->slots_stride = to_c - (uintptr_t)peer->to;
            exchange->credit_stride =
                (uint32_t)((uintptr_t)send_c->credit - (uintptr_t)send->credit);
        }
        if (to_c != (uintptr_t)peer->to + c * exchange->slots_stride ||
            from_c != (uintptr_t)peer->from + c * exchange->slots_stride ||
            (uintptr_t)send_c->credit != (uintptr_t)send->credit + c * exchange->credit_stride ||
            (uintptr_t)recv_c->credit != (uintptr_t)recv->credit + c * exchange->credit_stride)
            return false;
    }
    return true;
}

/* SIMPLE has all-gathers into windows and two-shots. */
static bool is_in_simple(const struct finder *finder)
{
    const struct gyre_cuda_exchange *exchange = &finder->exchange;
    return exchange->gathers != 0 &&
           (exchange->reduces != 0 || finder->config->program->is_placed != 0);
}

static bool find(struct finder *finder, const struct gyre_cuda_program *blob)
{
    const unsigned char *base = (const unsigned char *)blob;
    const struct gyre_program *program = finder->config->program;
    const struct gyre_cuda_worker *worker =
        (const struct gyre_cuda_worker *)(const void *)(base + blob->workers_offset);
    const struct gyre_cuda_step *steps =
        (const struct gyre_cuda_step *)(const void *)(base + blob->steps_offset);
    const uint32_t depth = finder->spec->depth;
    if (program->n_workers != 1 || (depth & (depth - 1)) != 0)
        return false;
    finder->connections =
        (const struct gyre_cuda_connection *)(const void *)(base + blob->connections_offset);
    finder->exchange.depth = depth;
    if (!find_phases(finder, steps, worker->n_steps) ||
        worker->n_connections != 2U * finder->exchange.n_peers ||
        (finder->config->proto == GYRE_PROTO_SIMPLE && !is_in_simple(finder)))
        return false;
    for (unsigned p = 0; p < finder->exchange.n_peers; p++)
        if (!resolve_peer(finder, p, program->n_lanes * 2U))
            return false;
    return true;
}

void gyre_cuda_exchange_find(const struct gyre_fifo_spec *spec,
                             const struct gyre_connector *connectors,
                             const struct gyre_load_config *config,
                             const struct gyre_cuda_program *blob,
                             struct gyre_cuda_exchange *exchange_out)
{
    struct finder finder = {.spec = spec, .connectors = connectors, .config = config};
    if (!find(&finder, blob))
        finder.exchange.n_peers = 0;
    *exchange_out = finder.exchange;
}
