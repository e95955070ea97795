/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/host/kernel_rows.h"

#include <string.h>

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

/* Are both ends as far from channel 0's as the strides say? */
static bool is_regular(const struct resolver *resolver, const struct gyre_cuda_fused *fused,
                       const struct gyre_cuda_peer *peer, uint32_t c)
{
    const uint32_t indices[] = {peer->send_end, peer->recv_end};
    for (unsigned i = 0; i < 2; i++) {
        const struct gyre_connector *first = &resolver->connectors[indices[i]];
        const struct gyre_connector *end = &first[c * resolver->channel_stride];
        if (place_of(resolver, end) != place_of(resolver, first) + c * fused->slots_stride ||
            (uintptr_t)end->credit != (uintptr_t)first->credit + c * fused->credit_stride)
            return false;
    }
    return true;
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
    for (uint32_t c = 1; c < resolver->config->n_channels; c++)
        if (!is_regular(resolver, fused, peer, c))
            return false;
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
