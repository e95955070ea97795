/* SPDX-License-Identifier: Apache-2.0
 *
 * Payloads are read directly into their slots, except bytes that come together with a header. Lines
 * land outside their slot, and are stored by word when the whole slot has come.
 */
#include "transport/socket/socket.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static void advance_arrivals(struct socket_link *link, uint64_t n_bytes)
{
    while (link->first_arrival < link->n_arrivals) {
        struct socket_arrival *arrival = &link->arrivals[link->first_arrival];
        const uint32_t n = (uint32_t)gyre_min_u64(n_bytes, arrival->left_bytes);
        arrival->at += n;
        arrival->left_bytes -= n;
        n_bytes -= n;
        if (arrival->left_bytes > 0)
            return;
        link->first_arrival++;
        struct socket_fifo *fifo = arrival->fifo;
        struct gyre_inbox *inbox = fifo->recv.inbox;
        socket_record_slot(link, fifo, fifo->n_arrived, false);
        if (fifo->proto == GYRE_PROTO_LL) {
            const uint32_t n_lines = (uint32_t)arrival->info;
            const struct gyre_line_slots slots = socket_lines(&fifo->recv);
            gyre_lines_pack(&slots, fifo->n_arrived, n_lines,
                            arrival->at - (size_t)n_lines * GYRE_LL_DATA_BYTES);
            gyre_lines_clean(&slots, fifo->n_arrived++, n_lines);
        } else {
            gyre_store_relaxed_u64(&inbox->slot_info[fifo->n_arrived % socket_depth(link)],
                                   arrival->info);
            gyre_store_release_u64(&inbox->tail[GYRE_PROTO_SIMPLE], ++fifo->n_arrived);
        }
    }
    link->n_arrivals = 0;
    link->first_arrival = 0;
    link->line_arrival_bytes = 0;
}

/* False while the text is incomplete, or after the link's end. */
static bool take_fault(struct socket_link *link, const struct socket_header *header,
                       const unsigned char *text, uint32_t n_arrived)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    if (header->value >= sizeof(cause))
        return socket_refuse(link, header, "a cause that long");
    if (n_arrived < header->value)
        return false;
    memcpy(cause, text, header->value);
    cause[header->value] = '\0';
    link->has_bye = true;
    gyre_fault_raise(link->peer->transport->config.fault, GYRE_ERROR_REMOTE, cause);
    return true;
}

/* False after the link's end. */
static bool take_header(struct socket_link *link, const struct socket_header *header)
{
    if (link->n_following > 0 ? header->n_following != link->n_following - 1
                              : header->n_following >= SOCKET_BATCH_FRAMES)
        return socket_refuse(link, header, "another header of its batch was due");
    link->n_following = header->n_following;
    if (header->kind == SOCKET_FRAME_BYE) {
        link->has_bye = true;
        return true;
    }
    const struct socket_peer *peer = link->peer;
    if (header->fifo < peer->size.n_fifos ? header->fifo % peer->n_links != link->index
                                          : header->fifo >= peer->n_fifos || link->index != 0)
        return socket_refuse(link, header, "no such FIFO on this connection");
    if (header->kind == SOCKET_FRAME_DATA) {
        const struct gyre_fifo_spec *spec = &link->peer->transport->config.spec;
        struct socket_fifo *fifo = &link->peer->fifos[header->fifo];
        const bool is_lines = fifo->proto == GYRE_PROTO_LL;
        const uint32_t n_units = (uint32_t)header->value;
        if (n_units > fifo->recv.slot_bytes / (is_lines ? GYRE_LL_LINE_BYTES : 1))
            return socket_refuse(link, header, "larger than a slot");
        if (fifo->n_announced - fifo->n_returned >= spec->depth)
            return socket_refuse(link, header, "there was no credit for it");
        const uint32_t n_bytes = n_units * (is_lines ? GYRE_LL_DATA_BYTES : 1);
        unsigned char *at =
            fifo->recv.slots + fifo->n_announced % spec->depth * fifo->recv.slot_bytes;
        if (is_lines) {
            if (n_bytes > socket_line_batch_bytes(spec) - link->line_arrival_bytes)
                return socket_refuse(link, header, "more lines than a batch has");
            at = link->line_arrivals + link->line_arrival_bytes;
            link->line_arrival_bytes += n_bytes;
        }
        fifo->n_announced++;
        link->arrivals[link->n_arrivals++] = (struct socket_arrival){
            .fifo = fifo, .info = header->value, .at = at, .left_bytes = n_bytes};
        return true;
    }
    if (header->kind != SOCKET_FRAME_CREDIT)
        return socket_refuse(link, header, "no such kind");
    struct socket_fifo *fifo = &peer->fifos[header->fifo];
    if (header->value < fifo->n_credited || header->value > fifo->n_batched)
        return socket_refuse(link, header, "credit for slots that were not sent");
    fifo->n_credited = header->value;
    socket_release_slots(link, fifo);
    return true;
}

static bool awaits_payload(const struct socket_link *link)
{
    return link->n_following == 0 && link->n_arrivals > 0;
}

static bool parse_staging(struct socket_link *link)
{
    uint32_t at = 0;
    for (;;) {
        const uint32_t n_left = link->staged_bytes - at;
        if (awaits_payload(link)) {
            const struct socket_arrival *arrival = &link->arrivals[link->first_arrival];
            const uint32_t n_bytes = (uint32_t)gyre_min_u64(n_left, arrival->left_bytes);
            if (n_bytes == 0)
                break;
            memcpy(arrival->at, link->staging + at, n_bytes);
            advance_arrivals(link, n_bytes);
            at += n_bytes;
            continue;
        }
        struct socket_header header;
        if (n_left < sizeof(header))
            break;
        memcpy(&header, link->staging + at, sizeof(header));
        if (header.kind == SOCKET_FRAME_FAULT) {
            if (!take_fault(link, &header, link->staging + at + sizeof(header),
                            n_left - (uint32_t)sizeof(header)))
                break;
            at += (uint32_t)header.value;
        } else if (!take_header(link, &header)) {
            return false;
        }
        at += (uint32_t)sizeof(header);
        if (link->n_following == 0)
            advance_arrivals(link, 0); /* completes empty slots */
    }
    link->staged_bytes -= at;
    memmove(link->staging, link->staging + at, link->staged_bytes);
    return true;
}

/* False when nothing is left to read now. */
static bool read_once(struct socket_link *link, size_t *n_bytes_out)
{
    struct iovec parts[SOCKET_BATCH_FRAMES + 1];
    int n_parts = 0;
    size_t left_bytes = 0;
    for (uint32_t i = link->first_arrival; awaits_payload(link) && i < link->n_arrivals; i++) {
        const struct socket_arrival *arrival = &link->arrivals[i];
        if (arrival->left_bytes > 0)
            parts[n_parts++] = (struct iovec){arrival->at, arrival->left_bytes};
        left_bytes += arrival->left_bytes;
    }
    const uint32_t room_bytes = SOCKET_STAGING_BYTES - link->staged_bytes;
    parts[n_parts++] = (struct iovec){link->staging + link->staged_bytes, room_bytes};
    const ssize_t n_read = readv(link->fd, parts, n_parts);
    if (n_read < 0 && (errno == EAGAIN || errno == EINTR)) {
        link->is_readable = errno == EINTR;
        return false;
    }
    if (n_read <= 0) {
        socket_end_stream(link, n_read < 0 ? errno : 0);
        return false;
    }
    *n_bytes_out = (size_t)n_read;
    const size_t n_direct = gyre_min_u64((size_t)n_read, left_bytes);
    if (n_direct > 0)
        advance_arrivals(link, n_direct);
    link->staged_bytes += (uint32_t)((size_t)n_read - n_direct);
    if (!parse_staging(link))
        return true;
    /* A short read has emptied the socket. A later end of the stream is another event, unless this
     * is it (is_ending). */
    if ((size_t)n_read < left_bytes + room_bytes && !link->is_ending)
        link->is_readable = false;
    return true;
}

bool socket_receive(struct socket_link *link)
{
    size_t n_bytes = 0;
    socket_record_begin(link->thread, GYRE_TRACE_RECEIVE);
    const bool has_more = read_once(link, &n_bytes);
    socket_record_end(link->thread, n_bytes);
    return has_more;
}
