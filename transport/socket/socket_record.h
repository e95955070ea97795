/* SPDX-License-Identifier: Apache-2.0
 *
 * Records the reads and sends of the socket transport's threads for a trace. A thread fills in one
 * event while it moves bytes and keeps the event if any bytes moved. Without a recording each
 * function ends after one test.
 */
#ifndef GYRE_TRANSPORT_SOCKET_RECORD_H
#define GYRE_TRANSPORT_SOCKET_RECORD_H

#include "core/foundation/base/util.h"
#include "transport/socket/socket.h"

/* Begins to record a system call. */
static inline void socket_record_begin(struct socket_thread *thread, enum gyre_trace_kind kind)
{
    if (thread->transport->recorded == NULL)
        return;
    thread->moving.kind = (uint8_t)kind;
    thread->moving.begin_ns = gyre_now_ns();
    thread->moving.n_ins = 0;
    thread->moving.n_outs = 0;
}

/* Adds a slot that the system call has completed. */
static inline void socket_record_slot(const struct socket_link *link,
                                      const struct socket_fifo *fifo, uint64_t number, bool is_out)
{
    const struct socket_peer *peer = link->peer;
    const struct gyre_trace_slot slot = {
        .peer = (uint16_t)peer->rank,
        .fifo = (uint16_t)((uint32_t)(fifo - peer->fifos) % peer->size.n_fifos),
        .number = gyre_trace_number(number, fifo->proto == GYRE_PROTO_LL)};
    if (peer->transport->recorded != NULL)
        gyre_trace_add_slot(&link->thread->moving, &slot, is_out);
}

/* Keeps the event if bytes have moved. */
static inline void socket_record_end(struct socket_thread *thread, size_t n_bytes)
{
    struct socket_transport *transport = thread->transport;
    if (transport->recorded == NULL || n_bytes == 0)
        return;
    thread->moving.end_ns = gyre_now_ns();
    thread->moving.n_bytes = n_bytes;
    pthread_mutex_lock(&transport->recording);
    *gyre_trace_next(transport->recorded) = thread->moving;
    pthread_mutex_unlock(&transport->recording);
}

#endif
