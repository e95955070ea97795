/* SPDX-License-Identifier: Apache-2.0
 *
 * Which programs are the one-shot pattern that exchange.cuh runs as one macro-step. Pure.
 */
#include "kernels/cuda/cuda_program.h"

#include <string.h>

struct finder {
    const struct gyre_fifo_spec *spec;
    const struct gyre_connector *connectors;
    const struct gyre_load_config *config;
    const struct gyre_cuda_connection *connections; /* of the only worker */
    struct gyre_cuda_exchange exchange;
    uint16_t n_sends;
};

static uint32_t rank_of_end(const struct finder *finder, uint32_t index)
{
    return index / (finder->spec->n_fifos * 2);
}

/* IN's chunks are whole blocks or there is one chunk: offsets are in blocks until the launch. */
static bool find_in_block(const struct finder *finder, uint16_t ref, uint64_t *block_out)
{
    const uint32_t index = ref & GYRE_CUDA_REF_INDEX_MASK;
    const bool in_blocks = gyre_collectives[finder->config->program->coll].in_blocks;
    *block_out = in_blocks ? index : 0;
    return ref >> GYRE_CUDA_REF_KIND_SHIFT == GYRE_OPERAND_IN && (in_blocks || index == 0);
}

/* The step that reduces: peers in its order, the own input once. */
static bool find_peers(struct finder *finder, const struct gyre_cuda_step *step)
{
    struct gyre_cuda_exchange *exchange = &finder->exchange;
    bool has_own = false;
    if (step->n_outs != 1 || step->send_mask != 0 || step->n_ins < 2)
        return false;
    const uint32_t out = step->outs[0].ref;
    if (out >> GYRE_CUDA_REF_KIND_SHIFT != GYRE_OPERAND_OUT ||
        (out & GYRE_CUDA_REF_INDEX_MASK) != 0)
        return false;
    for (unsigned i = 0; i < step->n_ins; i++) {
        if ((step->recv_mask >> i & 1) != 0) {
            if (exchange->n_peers == GYRE_CUDA_MAX_PEERS)
                return false;
            exchange->peers[exchange->n_peers++].recv_end =
                finder->connections[step->ins[i].ref].index;
            continue;
        }
        if (has_own || !find_in_block(finder, step->ins[i].ref, &exchange->own_offset))
            return false;
        has_own = true;
        exchange->own_place = exchange->n_peers;
    }
    return has_own;
}

/* A step that only sends IN. */
static bool find_sends(struct finder *finder, const struct gyre_cuda_step *step)
{
    uint64_t block;
    if (step->n_ins != 1 || step->recv_mask != 0 || step->send_mask + 1U != 1U << step->n_outs ||
        !find_in_block(finder, step->ins[0].ref, &block))
        return false;
    for (unsigned o = 0; o < step->n_outs; o++) {
        const uint32_t end = finder->connections[step->outs[o].ref].index;
        unsigned p = 0;
        while (p < finder->exchange.n_peers &&
               rank_of_end(finder, finder->exchange.peers[p].recv_end) != rank_of_end(finder, end))
            p++;
        if (p == finder->exchange.n_peers)
            return false;
        finder->exchange.peers[p].send_end = end;
        finder->exchange.peers[p].in_offset = block;
        finder->n_sends++;
    }
    return true;
}

/* The ends of one peer; channels must follow each other at the same distance everywhere. */
static bool resolve_peer(struct finder *finder, unsigned p, uint32_t channel_stride)
{
    struct gyre_cuda_exchange *exchange = &finder->exchange;
    struct gyre_cuda_peer *peer = &exchange->peers[p];
    const struct gyre_connector *send = &finder->connectors[peer->send_end];
    const struct gyre_connector *recv = &finder->connectors[peer->recv_end];
    peer->to = send->slots[GYRE_PROTO_LL];
    peer->from = recv->slots[GYRE_PROTO_LL];
    peer->head = &send->credit->head[GYRE_PROTO_LL];
    peer->posted = &recv->credit->head[GYRE_PROTO_LL];
    for (uint32_t c = 1; c < finder->config->n_channels; c++) {
        const struct gyre_connector *send_c = &send[c * channel_stride];
        const struct gyre_connector *recv_c = &recv[c * channel_stride];
        if (p == 0 && c == 1) {
            exchange->slots_stride = (uintptr_t)send_c->slots[GYRE_PROTO_LL] - (uintptr_t)peer->to;
            exchange->credit_stride =
                (uint32_t)((uintptr_t)send_c->credit - (uintptr_t)send->credit);
        }
        if ((uintptr_t)send_c->slots[GYRE_PROTO_LL] !=
                (uintptr_t)peer->to + c * exchange->slots_stride ||
            (uintptr_t)recv_c->slots[GYRE_PROTO_LL] !=
                (uintptr_t)peer->from + c * exchange->slots_stride ||
            (uintptr_t)send_c->credit != (uintptr_t)send->credit + c * exchange->credit_stride ||
            (uintptr_t)recv_c->credit != (uintptr_t)recv->credit + c * exchange->credit_stride)
            return false;
    }
    return true;
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
    if (finder->config->proto != GYRE_PROTO_LL || program->n_workers != 1 ||
        program->n_chunks != 1 || worker->n_steps < 2 || (depth & (depth - 1)) != 0)
        return false;
    finder->connections =
        (const struct gyre_cuda_connection *)(const void *)(base + blob->connections_offset);
    finder->exchange.depth = depth;
    if (!find_peers(finder, &steps[worker->n_steps - 1]))
        return false;
    for (uint32_t s = 0; s + 1 < worker->n_steps; s++)
        if (!find_sends(finder, &steps[s]))
            return false;
    if (finder->n_sends != finder->exchange.n_peers ||
        worker->n_connections != 2U * finder->exchange.n_peers)
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
