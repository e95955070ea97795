/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the data path of the socket transport: how the parts of a link, which receive
 * (socket_receive.c), send (socket_send.c) and end it (socket_end.c), serve the proxy's client
 * (socket_move.c). Only the link's thread calls these functions.
 */
#ifndef GYRE_TRANSPORT_SOCKET_MOVE_H
#define GYRE_TRANSPORT_SOCKET_MOVE_H

#include "transport/socket/socket.h"

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
