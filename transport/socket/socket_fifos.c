/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of the socket transport's FIFOs: slots of SIMPLE and of LL, the data of lines on their
 * way, and the connectors that give executors access.
 */
#include "transport/socket/socket.h"

#include <stdlib.h>

static bool has_lines(const struct socket_transport *transport)
{
    return transport->config.spec.net_line_bytes > 0;
}

/* Fill in who the peers are and what FIFOs they have. Returns how many FIFOs these are. */
static uint32_t fill_peers(struct socket_transport *transport)
{
    uint32_t n_fifos = 0;
    for (int i = 0; i < transport->n_peers; i++) {
        struct socket_peer *peer = &transport->peers[i];
        peer->transport = transport;
        peer->rank = transport->config.peers[i];
        peer->size = gyre_transport_fifos(&transport->config, peer->rank);
        peer->n_fifos = peer->size.n_fifos * (has_lines(transport) ? 2 : 1);
        n_fifos += peer->n_fifos;
    }
    return n_fifos;
}

static void size_ends(const struct socket_transport *transport, struct gyre_proxy_fifo *ends)
{
    for (int i = 0; i < transport->n_peers; i++) {
        const struct socket_peer *peer = &transport->peers[i];
        for (uint32_t f = 0; f < peer->n_fifos; f++) {
            const uint32_t slot_bytes = f < peer->size.n_fifos
                                            ? peer->size.slot_bytes
                                            : transport->config.spec.net_line_bytes;
            ends++->slot_bytes = slot_bytes;
            ends++->slot_bytes = slot_bytes;
        }
    }
}

/* Executors know one inbox and one credit for both protocols of a FIFO. */
static void share_words(struct socket_peer *peer)
{
    for (uint32_t f = 0; f < peer->n_fifos; f++) {
        const struct socket_fifo *simple = &peer->fifos[f % peer->size.n_fifos];
        struct socket_fifo *own = &peer->fifos[f];
        own->proto = f < peer->size.n_fifos ? GYRE_PROTO_SIMPLE : GYRE_PROTO_LL;
        own->send.inbox = simple->send.inbox;
        own->send.credit = simple->send.credit;
        own->recv.inbox = simple->recv.inbox;
        own->recv.credit = simple->recv.credit;
    }
}

gyre_status socket_alloc_fifos(struct socket_transport *transport)
{
    const struct gyre_transport_config *config = &transport->config;
    const uint32_t n_ends = 2 * fill_peers(transport);
    struct gyre_proxy_fifo *ends = calloc((size_t)n_ends + 1, sizeof(*ends));
    if (ends == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%u FIFO ends", n_ends);
    gyre_status status;
    uint32_t n = 0;
    size_ends(transport, ends);
    GYRE_TRY_GOTO(status,
                  gyre_proxy_fifos_alloc(config->device, config->spec.depth, ends, n_ends,
                                         &transport->memory, &transport->memory_bytes),
                  free_ends);
    for (int i = 0; i < transport->n_peers; i++) {
        struct socket_peer *peer = &transport->peers[i];
        peer->fifos = calloc((size_t)peer->n_fifos, sizeof(*peer->fifos));
        if (peer->fifos == NULL) {
            status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "FIFOs of rank %d", peer->rank);
            goto free_ends;
        }
        for (uint32_t f = 0; f < peer->n_fifos; f++) {
            peer->fifos[f].send = ends[n++];
            peer->fifos[f].recv = ends[n++];
        }
        share_words(peer);
    }

free_ends:
    free(ends);
    return status;
}

uint32_t socket_line_batch_bytes(const struct gyre_fifo_spec *spec)
{
    return spec->depth * gyre_slot_payload_bytes(GYRE_PROTO_LL, spec->net_line_bytes);
}

gyre_status socket_alloc_line_data(struct socket_link *link)
{
    const uint32_t n_bytes = socket_line_batch_bytes(&link->peer->transport->config.spec);
    link->landing = malloc(n_bytes);
    link->unpacked = malloc(n_bytes);
    if (link->landing == NULL || link->unpacked == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "lines of rank %d", link->peer->rank);
    return GYRE_SUCCESS;
}

void socket_fill_connectors(const struct socket_transport *transport,
                            struct gyre_connector *connectors)
{
    const struct gyre_fifo_spec *spec = &transport->config.spec;
    for (int i = 0; i < transport->n_peers; i++) {
        const struct socket_peer *peer = &transport->peers[i];
        const uint32_t rank = (uint32_t)peer->rank;
        const uint32_t n_simple = peer->size.n_fifos;
        for (uint32_t f = 0; f < n_simple; f++) {
            struct gyre_connector *to = &connectors[gyre_connector_index(spec, rank, f, true)];
            struct gyre_connector *from = &connectors[gyre_connector_index(spec, rank, f, false)];
            *to = gyre_proxy_connector(&peer->fifos[f].send, spec->depth);
            *from = gyre_proxy_connector(&peer->fifos[f].recv, spec->depth);
            if (!has_lines(transport))
                continue;
            to->slots[GYRE_PROTO_LL] = peer->fifos[n_simple + f].send.slots;
            from->slots[GYRE_PROTO_LL] = peer->fifos[n_simple + f].recv.slots;
        }
    }
}
