/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/socket/socket.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

static void add_frame(struct socket_link *link, enum socket_frame_kind kind, uint32_t fifo,
                      uint64_t value, struct socket_payload payload)
{
    link->headers[link->n_batch] =
        (struct socket_header){.kind = (uint16_t)kind, .fifo = fifo, .value = value};
    link->payloads[link->n_batch++] = payload;
}

void socket_clear_batch(struct socket_link *link)
{
    link->n_batch = 0;
    link->headers_sent_bytes = 0;
    link->first = 0;
    link->first_sent_bytes = 0;
    link->unpacked_bytes = 0;
}

/* With all slots before it. @info_out: slot_info, or the number of lines. */
static bool is_published(const struct socket_fifo *fifo, uint64_t number, uint64_t *info_out)
{
    const struct gyre_inbox *inbox = fifo->send.inbox;
    if (fifo->proto == GYRE_PROTO_LL) {
        const struct gyre_line_slots slots = socket_lines(&fifo->send);
        uint32_t n_lines;
        const bool is_announced = gyre_lines_announced(&slots, inbox, number, &n_lines);
        *info_out = n_lines;
        return is_announced;
    }
    if (gyre_load_acquire_u64(&inbox->tail[GYRE_PROTO_SIMPLE]) <= number)
        return false;
    *info_out = gyre_load_relaxed_u64(&inbox->slot_info[number % fifo->send.depth]);
    return true;
}

static bool has_slot(const struct socket_link *link, const struct socket_fifo *fifo,
                     uint64_t *info_out)
{
    return fifo->n_batched - fifo->n_credited < socket_depth(link) &&
           is_published(fifo, fifo->n_batched, info_out);
}

static bool find_payload(struct socket_link *link, const struct socket_fifo *fifo, uint64_t info,
                         struct socket_payload *payload_out)
{
    const struct gyre_fifo_spec *spec = &link->peer->transport->config.spec;
    if (fifo->proto == GYRE_PROTO_SIMPLE) {
        *payload_out = (struct socket_payload){
            fifo->send.slots + fifo->n_batched % fifo->send.depth * fifo->send.slot_bytes,
            (uint32_t)info};
        return true;
    }
    const struct gyre_line_slots slots = socket_lines(&fifo->send);
    const uint32_t n_bytes = (uint32_t)info * GYRE_LL_DATA_BYTES;
    if (n_bytes > socket_line_batch_bytes(spec) - link->unpacked_bytes)
        return false;
    *payload_out = (struct socket_payload){link->unpacked + link->unpacked_bytes, n_bytes};
    gyre_lines_unpack(&slots, fifo->n_batched, (uint32_t)info,
                      link->unpacked + link->unpacked_bytes);
    gyre_lines_clean(&slots, fifo->n_batched, (uint32_t)info);
    link->unpacked_bytes += n_bytes;
    return true;
}

/* Returns the payload bytes. */
static uint32_t batch_fifo(struct socket_link *link, uint32_t index, uint32_t room_bytes)
{
    struct socket_fifo *fifo = &link->peer->fifos[index];
    const uint32_t depth = socket_depth(link);
    uint64_t info, n_consumed = fifo->n_returned;
    /* A GPU may return an empty slot of LL before it has arrived, which the peer must not learn
     * before it has sent the slot. */
    if (fifo->n_arrived != fifo->n_returned)
        n_consumed = gyre_min_u64(gyre_load_acquire_u64(&fifo->recv.credit->head[fifo->proto]),
                                  fifo->n_arrived);
    const uint64_t n_owed = n_consumed - fifo->n_returned;
    bool has_data = has_slot(link, fifo, &info);
    /* Credit of a few slots may wait for data to the peer while the peer has credit left: it has
     * none once a whole FIFO has arrived of which it was not told. A GPU gives the credit of lines
     * late, so it may wait for the very slot that the peer cannot send. */
    if (n_owed > 0 && (n_owed >= depth / 2 || fifo->n_arrived - fifo->n_returned >= depth ||
                       has_data || link->n_batch > 0)) {
        fifo->n_returned = n_consumed;
        add_frame(link, SOCKET_FRAME_CREDIT, index, n_consumed, (struct socket_payload){0});
    }
    struct socket_payload payload;
    uint32_t n_bytes = 0;
    while (has_data && link->n_batch < SOCKET_BATCH_FRAMES && n_bytes < room_bytes &&
           find_payload(link, fifo, info, &payload)) {
        add_frame(link, SOCKET_FRAME_DATA, index, info, payload);
        n_bytes += payload.n_bytes;
        fifo->n_batched++;
        has_data = has_slot(link, fifo, &info);
    }
    return n_bytes;
}

static void make_batch(struct socket_link *link)
{
    uint32_t n_bytes = 0;
    socket_clear_batch(link);
    for (uint32_t i = 0; i < link->n_fifos; i++) {
        if (link->n_batch + 2 > SOCKET_BATCH_FRAMES || n_bytes >= SOCKET_BATCH_BYTES)
            break;
        n_bytes +=
            batch_fifo(link, socket_nth_fifo(link, link->next_fifo), SOCKET_BATCH_BYTES - n_bytes);
        link->next_fifo = (link->next_fifo + 1) % link->n_fifos;
    }
    for (uint32_t i = 0; i < link->n_batch; i++)
        link->headers[i].n_following = (uint16_t)(link->n_batch - 1 - i);
}

static uint32_t count_header_bytes(const struct socket_link *link)
{
    return link->n_batch * (uint32_t)sizeof(struct socket_header) - link->headers_sent_bytes;
}

void socket_release_slots(const struct socket_link *link, const struct socket_fifo *fifo)
{
    gyre_store_release_u64(&fifo->send.credit->head[fifo->proto],
                           link->peer->transport->survives_resets
                               ? gyre_min_u64(fifo->n_sent, fifo->n_credited)
                               : fifo->n_sent);
}

static void advance_batch(struct socket_link *link, size_t n_bytes)
{
    const uint32_t n_of_headers = (uint32_t)gyre_min_u64(n_bytes, count_header_bytes(link));
    link->headers_sent_bytes += n_of_headers;
    n_bytes -= n_of_headers;
    if (count_header_bytes(link) > 0)
        return;
    for (; link->first < link->n_batch; link->first++) {
        const struct socket_header *header = &link->headers[link->first];
        const size_t n_left = link->payloads[link->first].n_bytes - link->first_sent_bytes;
        if (n_bytes < n_left) {
            link->first_sent_bytes += (uint32_t)n_bytes;
            return;
        }
        n_bytes -= n_left;
        link->first_sent_bytes = 0;
        if (header->kind == SOCKET_FRAME_DATA) {
            struct socket_fifo *fifo = &link->peer->fifos[header->fifo];
            socket_record_slot(link, fifo, fifo->n_sent++, true);
            socket_release_slots(link, fifo);
        }
    }
}

static bool send_batch(struct socket_link *link)
{
    struct iovec parts[SOCKET_BATCH_FRAMES + 1];
    size_t n_parts = 0;
    size_t n_bytes = count_header_bytes(link);
    size_t skip_bytes = link->first_sent_bytes;
    if (n_bytes > 0)
        parts[n_parts++] =
            (struct iovec){(unsigned char *)link->headers + link->headers_sent_bytes, n_bytes};
    for (uint32_t i = link->first; i < link->n_batch; i++) {
        const struct socket_payload *payload = &link->payloads[i];
        if (payload->n_bytes > skip_bytes)
            parts[n_parts++] =
                (struct iovec){(unsigned char *)(uintptr_t)payload->bytes + skip_bytes,
                               payload->n_bytes - skip_bytes};
        n_bytes += payload->n_bytes - skip_bytes;
        skip_bytes = 0;
    }
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = n_parts};
    socket_record_begin(link->thread, GYRE_TRACE_SEND);
    const ssize_t n_sent = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n_sent < 0) {
        /* The receiving side decides: it may still read a goodbye. */
        link->is_writable = errno != EAGAIN;
        link->is_readable = link->is_readable || errno != EAGAIN;
        socket_record_end(link->thread, 0);
        return false;
    }
    link->is_writable = (size_t)n_sent == n_bytes;
    advance_batch(link, (size_t)n_sent);
    socket_record_end(link->thread, (size_t)n_sent);
    return true;
}

bool socket_send(struct socket_link *link)
{
    if (link->first == link->n_batch)
        make_batch(link);
    return link->first < link->n_batch && link->is_writable && send_batch(link);
}

uint64_t socket_count_unsent(const struct socket_link *link)
{
    uint64_t n_unsent = 0;
    for (uint32_t i = 0; i < link->n_fifos; i++) {
        const struct socket_fifo *fifo = &link->peer->fifos[socket_nth_fifo(link, i)];
        uint64_t info, number = fifo->n_sent;
        while (is_published(fifo, number, &info))
            number++;
        n_unsent += number - fifo->n_sent;
    }
    return n_unsent;
}

bool socket_is_link_behind(const struct socket_link *link, bool has_credit)
{
    const struct socket_peer *peer = link->peer;
    if (link->fd < 0)
        return false;
    if (link->first < link->n_batch)
        return true;
    for (uint32_t i = 0; i < link->n_fifos; i++) {
        const struct socket_fifo *fifo = &peer->fifos[socket_nth_fifo(link, i)];
        uint64_t info;
        if (has_credit ? has_slot(link, fifo, &info) : is_published(fifo, fifo->n_batched, &info))
            return true;
    }
    return false;
}

void socket_say_bye(struct socket_link *link, const char *cause, uint64_t deadline_ns)
{
    const uint32_t n_bytes = cause == NULL ? 0 : (uint32_t)strlen(cause);
    bool is_said = false;
    if (link->fd < 0)
        return;
    while (link->first < link->n_batch || !is_said) {
        if (link->first == link->n_batch) {
            if (cause == NULL)
                make_batch(link);
            if (cause != NULL || link->n_batch == 0) {
                socket_clear_batch(link);
                add_frame(link, cause == NULL ? SOCKET_FRAME_BYE : SOCKET_FRAME_FAULT, 0, n_bytes,
                          (struct socket_payload){(const unsigned char *)cause, n_bytes});
                is_said = true;
            }
        }
        if (send_batch(link))
            continue;
        struct pollfd writable = {.fd = link->fd, .events = POLLOUT};
        /* Each link gets an attempt. */
        if (gyre_now_ns() >= deadline_ns ||
            (poll(&writable, 1, 10) > 0 && (writable.revents & (POLLHUP | POLLERR)) != 0))
            break;
    }
    /* Unread bytes would make the end a reset. */
    shutdown(link->fd, SHUT_WR);
    while (recv(link->fd, link->staging, sizeof(link->staging), MSG_DONTWAIT) > 0)
        ;
}
