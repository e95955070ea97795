/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the data path of the socket transport: how the parts of a link, which receive
 * (socket_receive.c), send (socket_send.c) and end it (socket_end.c), serve the proxy's client
 * (socket_move.c). Only the link's thread calls these functions.
 */
#ifndef GYRE_TRANSPORT_SOCKET_MOVE_H
#define GYRE_TRANSPORT_SOCKET_MOVE_H

#include "transport/lines.h"
#include "transport/socket/socket.h"

/** socket_link_fifo - the index in peer->fifos of a link's n-th FIFO. */
static inline uint32_t socket_link_fifo(const struct socket_link *link, uint32_t n)
{
    const struct socket_peer *peer = link->peer;
    return n < link->n_simple ? link->index + n * peer->n_links
                              : peer->size.n_fifos + n - link->n_simple;
}

/** socket_is_on_link - is it a FIFO of the link? @index: in peer->fifos. */
static inline bool socket_is_on_link(const struct socket_link *link, uint32_t index)
{
    const struct socket_peer *peer = link->peer;
    return index < peer->size.n_fifos ? index % peer->n_links == link->index
                                      : index < peer->n_fifos && link->index == 0;
}

/** socket_lines_of - the slots of one end of a FIFO of LL. */
static inline struct gyre_line_slots socket_lines_of(const struct socket_link *link,
                                                     const struct gyre_proxy_fifo *end)
{
    return (struct gyre_line_slots){end->slots, end->slot_bytes,
                                    link->peer->transport->config.spec.depth};
}

/** socket_is_published - has the executor published slot `number` of a sending end? It has not
 * before slot number - 1. @info_out: the slot's slot_info, or the number of its lines. */
bool socket_is_published(const struct socket_link *link, const struct socket_fifo *fifo,
                         uint64_t number, uint64_t *info_out);

/** socket_receive - read once from a readable link, and take the slots and the credit that came.
 * Returns true if bytes came. Clears is_readable when the socket is empty, and ends the link when
 * the stream ends or the peer breaks the protocol. */
bool socket_receive(struct socket_link *link);

/** socket_send - collect a batch if the last one is sent, and hand as much of it to the kernel as
 * the kernel takes. Returns true if the kernel took any bytes. */
bool socket_send(struct socket_link *link);

/** socket_is_link_behind - as socket_is_behind() for one link. */
bool socket_is_link_behind(const struct socket_link *link, bool has_credit);

/** socket_count_unsent - the number of published slots that are not completely sent. */
uint64_t socket_count_unsent(const struct socket_link *link);

/** socket_blame - raise the fault with a text that names the peer and the connection.
 * @words: what the peer did. */
void socket_blame(const struct socket_link *link, gyre_status status, const char *words);

/** socket_end_stream - close a link whose stream ended. The end is regular after a goodbye, unless
 * a frame is incomplete or slots to the peer were not sent. @error: errno of the read; 0 = the end
 * of the stream. */
void socket_end_stream(struct socket_link *link, int error);

/** socket_refuse - close a link because the peer sent this frame, and blame the peer.
 * @why: the rule that the frame breaks. */
void socket_refuse(struct socket_link *link, const struct socket_header *header, const char *why);

#endif
