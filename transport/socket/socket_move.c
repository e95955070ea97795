/* SPDX-License-Identifier: Apache-2.0
 *
 * The data path of the socket transport. It sends published slots and credit as frames, and turns
 * received frames into slots and credit. It runs on the proxy thread. Bytes go directly between
 * sockets and slots; only bytes that are read together with a header (at most
 * SOCKET_STAGING_BYTES) are copied.
 */
#include "transport/socket/socket.h"

#include "core/base/log.h"
#include "core/base/sync.h"
#include "core/base/util.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

/* How often one link is read before the other links are served. */
#define READS_PER_TURN  4
#define EVENTS_PER_TURN 32

/* ---- failures ----------------------------------------------------------------------------- */

/* Counts published slots that are not completely sent. */
static uint64_t count_unsent(const struct socket_link *link)
{
    const struct socket_peer *peer = link->peer;
    uint64_t n_unsent = 0;
    for (uint32_t f = link->index; f < peer->transport->config.spec.n_fifos; f += peer->n_links) {
        const struct socket_fifo *fifo = &peer->fifos[f];
        n_unsent +=
            gyre_load_acquire_u64(&fifo->send.inbox->tail[GYRE_PROTO_SIMPLE]) - fifo->n_sent;
    }
    return n_unsent;
}

static void blame(const struct socket_link *link, gyre_status status, const char *words)
{
    const struct socket_peer *peer = link->peer;
    const struct gyre_transport_config *config = &peer->transport->config;
    char text[GYRE_CAUSE_MAX_BYTES];
    char address[64];
    snprintf(text, sizeof(text), "rank %d: peer rank %d (%s, pid %u) over socket %s at %s: %s",
             config->rank, peer->rank, config->infos[peer->rank].host_name,
             config->infos[peer->rank].pid, link->interface,
             gyre_sock_to_text(&link->remote, address, sizeof(address)), words);
    gyre_fault_raise(config->fault, status, text);
}

static void drop(struct socket_link *link)
{
    epoll_ctl(link->peer->transport->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
    gyre_sock_close(link->fd);
    link->fd = -1;
    link->is_readable = false;
    link->is_writable = false;
}

/* Handles the end of the stream. The end is regular after a goodbye, unless a frame is
 * incomplete. */
static void end_stream(struct socket_link *link, int error)
{
    char words[160];
    char reason[64] = "", number[16] = "";
    const uint64_t n_unsent = count_unsent(link);
    const bool is_cut = link->into != NULL || link->staged_bytes > 0;
    const bool has_bye = link->has_bye;
    drop(link);
    if (has_bye && !is_cut && n_unsent == 0)
        return;
    const char *why = error != 0 ? strerror_r(error, reason, sizeof(reason)) : "end of stream";
    if (error != 0)
        snprintf(number, sizeof(number), " (errno %d)", error);
    snprintf(words, sizeof(words), "%s: %s%s; %s%llu slots to it were not sent",
             has_bye ? "it left too early" : "it died or was cut off", why, number,
             is_cut ? "a slot from it had begun, " : "", (unsigned long long)n_unsent);
    blame(link, GYRE_ERROR_REMOTE, words);
}

static void refuse(struct socket_link *link, const struct socket_header *header, const char *why)
{
    char words[160];
    snprintf(words, sizeof(words), "broke the protocol: frame kind %u of FIFO %u, value %llx: %s",
             header->kind, header->fifo, (unsigned long long)header->value, why);
    drop(link);
    blame(link, GYRE_ERROR_REMOTE, words);
}

/* ---- receiving ---------------------------------------------------------------------------- */

static void finish_slot(struct socket_link *link)
{
    struct socket_fifo *fifo = link->into;
    struct gyre_inbox *inbox = fifo->recv.inbox;
    const uint32_t depth = link->peer->transport->config.spec.depth;
    gyre_store_relaxed_u64(&inbox->slot_info[fifo->n_arrived % depth], link->into_info);
    gyre_store_release_u64(&inbox->tail[GYRE_PROTO_SIMPLE], ++fifo->n_arrived);
    link->into = NULL;
}

static bool begin_slot(struct socket_link *link, const struct socket_header *header)
{
    const struct gyre_fifo_spec *spec = &link->peer->transport->config.spec;
    struct socket_fifo *fifo = &link->peer->fifos[header->fifo];
    const uint32_t n_bytes = (uint32_t)header->value;
    const uint32_t slot_bytes = spec->slot_bytes[GYRE_PROTO_SIMPLE];
    if (n_bytes > slot_bytes) {
        refuse(link, header, "larger than a slot");
        return false;
    }
    if (fifo->n_arrived - fifo->n_returned >= spec->depth) {
        refuse(link, header, "there was no credit for it");
        return false;
    }
    link->into = fifo;
    link->into_info = header->value;
    link->into_at = fifo->recv.slots + fifo->n_arrived % spec->depth * slot_bytes;
    link->into_left_bytes = n_bytes;
    if (n_bytes == 0)
        finish_slot(link);
    return true;
}

static bool take_credit(struct socket_link *link, const struct socket_header *header)
{
    struct socket_fifo *fifo = &link->peer->fifos[header->fifo];
    if (header->value < fifo->n_credited || header->value > fifo->n_batched) {
        refuse(link, header, "credit for slots that were not sent");
        return false;
    }
    fifo->n_credited = header->value;
    return true;
}

/* Takes the cause of a peer that ends because of a fault. It becomes this rank's cause too. Returns
 * false while the text is incomplete, or when the link has ended. */
static bool take_fault(struct socket_link *link, const struct socket_header *header,
                       const unsigned char *text, uint32_t n_arrived)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    if (header->value >= sizeof(cause)) {
        refuse(link, header, "a cause that long");
        return false;
    }
    if (n_arrived < header->value)
        return false;
    memcpy(cause, text, header->value);
    cause[header->value] = '\0';
    link->has_bye = true;
    gyre_fault_raise(link->peer->transport->config.fault, GYRE_ERROR_REMOTE, cause);
    return true;
}

/* Returns false when the link has ended. */
static bool take_header(struct socket_link *link, const struct socket_header *header)
{
    const struct socket_peer *peer = link->peer;
    if (header->kind == SOCKET_FRAME_BYE) {
        link->has_bye = true;
        return true;
    }
    if (header->fifo >= peer->transport->config.spec.n_fifos ||
        header->fifo % peer->n_links != link->index) {
        refuse(link, header, "no such FIFO on this connection");
        return false;
    }
    if (header->kind == SOCKET_FRAME_DATA)
        return begin_slot(link, header);
    if (header->kind == SOCKET_FRAME_CREDIT)
        return take_credit(link, header);
    refuse(link, header, "no such kind");
    return false;
}

/* Counts n_bytes more bytes of the slot that is arriving. */
static void advance_slot(struct socket_link *link, uint32_t n_bytes)
{
    link->into_at += n_bytes;
    link->into_left_bytes -= n_bytes;
    if (link->into_left_bytes == 0)
        finish_slot(link);
}

static bool parse_staging(struct socket_link *link)
{
    uint32_t at = 0;
    for (;;) {
        const uint32_t n_left = link->staged_bytes - at;
        if (link->into != NULL) {
            const uint32_t n_bytes = (uint32_t)gyre_min_u64(n_left, link->into_left_bytes);
            if (n_bytes == 0)
                break;
            memcpy(link->into_at, link->staging + at, n_bytes);
            advance_slot(link, n_bytes);
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
    }
    link->staged_bytes -= at;
    memmove(link->staging, link->staging + at, link->staged_bytes);
    return true;
}

/* Reads once. Returns false when there is no more to read now. */
static bool read_some(struct socket_link *link)
{
    struct iovec parts[2];
    int n_parts = 0;
    const uint32_t left_bytes = link->into != NULL ? link->into_left_bytes : 0;
    if (left_bytes > 0)
        parts[n_parts++] = (struct iovec){link->into_at, left_bytes};
    const uint32_t room_bytes = SOCKET_STAGING_BYTES - link->staged_bytes;
    parts[n_parts++] = (struct iovec){link->staging + link->staged_bytes, room_bytes};
    const ssize_t n_read = readv(link->fd, parts, n_parts);
    if (n_read < 0 && (errno == EAGAIN || errno == EINTR)) {
        link->is_readable = errno == EINTR;
        return false;
    }
    if (n_read <= 0) {
        end_stream(link, n_read < 0 ? errno : 0);
        return false;
    }
    const uint32_t n_direct = (uint32_t)gyre_min_u64((uint64_t)n_read, left_bytes);
    if (n_direct > 0)
        advance_slot(link, n_direct);
    link->staged_bytes += (uint32_t)n_read - n_direct;
    if (!parse_staging(link))
        return true;
    /* A short read has emptied the socket. If the stream ends after it, there is another event,
     * unless this is that event (is_ending). */
    if ((size_t)n_read < (size_t)left_bytes + room_bytes && !link->is_ending)
        link->is_readable = false;
    return true;
}

/* ---- sending ------------------------------------------------------------------------------ */

static void add_frame(struct socket_link *link, uint16_t kind, uint32_t fifo, uint64_t value)
{
    link->batch[link->n_batch++] =
        (struct socket_frame){.header = {.kind = kind, .fifo = fifo, .value = value}};
}

/* Should the peer be told of credit now? The credit of a few slots may wait for data that goes to
 * the same peer, because the peer does not run out of credit before it has used half of it. */
static bool owes_credit(const struct socket_link *link, const struct socket_fifo *fifo,
                        uint64_t n_consumed, bool has_data)
{
    const uint64_t n_owed = n_consumed - fifo->n_returned;
    return n_owed > 0 && (n_owed >= link->peer->transport->config.spec.depth / 2 || has_data ||
                          link->n_batch > 0);
}

/* Is there a published slot that may be sent? */
static bool has_slot(const struct socket_link *link, const struct socket_fifo *fifo, uint64_t tail)
{
    return tail > fifo->n_batched &&
           fifo->n_batched - fifo->n_credited < link->peer->transport->config.spec.depth;
}

/* Appends the frames of one FIFO to the batch: its credit, then its published slots as far as there
 * is credit for them. Returns the payload bytes. */
static uint32_t batch_fifo(struct socket_link *link, uint32_t index, uint32_t room_bytes)
{
    const struct gyre_fifo_spec *spec = &link->peer->transport->config.spec;
    struct socket_fifo *fifo = &link->peer->fifos[index];
    const uint64_t tail = gyre_load_acquire_u64(&fifo->send.inbox->tail[GYRE_PROTO_SIMPLE]);
    const uint64_t n_consumed = gyre_load_acquire_u64(&fifo->recv.credit->head[GYRE_PROTO_SIMPLE]);
    const bool has_data = has_slot(link, fifo, tail);
    if (owes_credit(link, fifo, n_consumed, has_data)) {
        fifo->n_returned = n_consumed;
        add_frame(link, SOCKET_FRAME_CREDIT, index, n_consumed);
    }
    uint32_t n_bytes = 0;
    while (has_slot(link, fifo, tail) && link->n_batch < SOCKET_BATCH_FRAMES &&
           n_bytes < room_bytes) {
        const uint64_t slot = fifo->n_batched++ % spec->depth;
        const uint64_t info = gyre_load_relaxed_u64(&fifo->send.inbox->slot_info[slot]);
        add_frame(link, SOCKET_FRAME_DATA, index, info);
        struct socket_frame *frame = &link->batch[link->n_batch - 1];
        frame->payload = fifo->send.slots + slot * spec->slot_bytes[GYRE_PROTO_SIMPLE];
        frame->payload_bytes = (uint32_t)info;
        n_bytes += frame->payload_bytes;
    }
    return n_bytes;
}

static void make_batch(struct socket_link *link)
{
    const struct socket_peer *peer = link->peer;
    const uint32_t n_fifos = peer->transport->config.spec.n_fifos;
    const uint32_t n_mine = (n_fifos - link->index + peer->n_links - 1) / peer->n_links;
    uint32_t n_bytes = 0;
    link->n_batch = 0;
    link->first = 0;
    link->first_sent_bytes = 0;
    for (uint32_t i = 0; i < n_mine; i++) {
        /* Each FIFO needs room for one credit and one slot. */
        if (link->n_batch + 2 > SOCKET_BATCH_FRAMES || n_bytes >= SOCKET_BATCH_BYTES)
            break;
        const uint32_t index = link->index + link->next_fifo * peer->n_links;
        n_bytes += batch_fifo(link, index, SOCKET_BATCH_BYTES - n_bytes);
        link->next_fifo = (link->next_fifo + 1) % n_mine;
    }
}

/* The kernel has taken n_bytes bytes of the batch. Gives back the slots that are completely
 * sent. */
static void advance_batch(struct socket_link *link, size_t n_bytes)
{
    while (n_bytes > 0) {
        const struct socket_frame *frame = &link->batch[link->first];
        const size_t n_left = sizeof(frame->header) + frame->payload_bytes - link->first_sent_bytes;
        if (n_bytes < n_left) {
            link->first_sent_bytes += (uint32_t)n_bytes;
            return;
        }
        n_bytes -= n_left;
        link->first++;
        link->first_sent_bytes = 0;
        if (frame->header.kind == SOCKET_FRAME_DATA) {
            struct socket_fifo *fifo = &link->peer->fifos[frame->header.fifo];
            gyre_store_release_u64(&fifo->send.credit->head[GYRE_PROTO_SIMPLE], ++fifo->n_sent);
        }
    }
}

/* Hands the rest of the batch to the kernel. Returns true if the kernel took any bytes. */
static bool send_batch(struct socket_link *link)
{
    struct iovec parts[2 * SOCKET_BATCH_FRAMES];
    size_t n_parts = 0, n_bytes = 0;
    size_t skip_bytes = link->first_sent_bytes;
    for (uint32_t i = link->first; i < link->n_batch; i++) {
        struct socket_frame *frame = &link->batch[i];
        const struct iovec pieces[2] = {
            {&frame->header, sizeof(frame->header)},
            {(void *)(uintptr_t)frame->payload, frame->payload_bytes},
        };
        for (int p = 0; p < 2; p++) {
            const size_t n_skip = gyre_min_u64(skip_bytes, pieces[p].iov_len);
            skip_bytes -= n_skip;
            if (pieces[p].iov_len == n_skip)
                continue;
            parts[n_parts++] = (struct iovec){(unsigned char *)pieces[p].iov_base + n_skip,
                                              pieces[p].iov_len - n_skip};
            n_bytes += pieces[p].iov_len - n_skip;
        }
    }
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = n_parts};
    const ssize_t n_sent = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n_sent < 0) {
        /* After an error the receiving side decides how the connection ended, because it may still
         * read a goodbye. */
        link->is_writable = errno != EAGAIN;
        link->is_readable = link->is_readable || errno != EAGAIN;
        return false;
    }
    link->is_writable = (size_t)n_sent == n_bytes;
    advance_batch(link, (size_t)n_sent);
    return true;
}

/* ---- the proxy's client ------------------------------------------------------------------- */

static void take_events(struct socket_transport *transport)
{
    struct epoll_event events[EVENTS_PER_TURN];
    const int n_events = epoll_wait(transport->epoll_fd, events, EVENTS_PER_TURN, 0);
    for (int i = 0; i < n_events; i++) {
        struct socket_link *link = events[i].data.ptr;
        const uint32_t mask = events[i].events;
        link->is_ending = link->is_ending || (mask & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
        link->is_readable = link->is_readable || (mask & EPOLLIN) != 0 || link->is_ending;
        link->is_writable = link->is_writable || (mask & EPOLLOUT) != 0;
    }
}

static bool move_link(struct socket_link *link)
{
    bool has_moved = false;
    for (int i = 0; i < READS_PER_TURN && link->is_readable; i++)
        has_moved = read_some(link) || has_moved;
    if (link->fd < 0) {
        /* The peer has left, so a rank that still sends to it would wait for ever. */
        if (link->has_bye && count_unsent(link) > 0)
            blame(link, GYRE_ERROR_REMOTE, "it left before slots to it were sent");
        return has_moved;
    }
    if (link->first == link->n_batch)
        make_batch(link);
    if (link->first < link->n_batch && link->is_writable)
        has_moved = send_batch(link) || has_moved;
    return has_moved;
}

bool socket_move(void *context)
{
    struct socket_transport *transport = context;
    bool has_moved = false;
    take_events(transport);
    for (int i = 0; i < transport->n_peers; i++)
        for (uint32_t l = 0; l < transport->peers[i].n_links; l++)
            has_moved = move_link(&transport->peers[i].links[l]) || has_moved;
    if (!has_moved)
        socket_watch(transport);
    return has_moved;
}

static bool is_link_behind(const struct socket_link *link, bool has_credit)
{
    const struct socket_peer *peer = link->peer;
    if (link->fd < 0)
        return false;
    if (link->first < link->n_batch)
        return true;
    for (uint32_t f = link->index; f < peer->transport->config.spec.n_fifos; f += peer->n_links) {
        const struct socket_fifo *fifo = &peer->fifos[f];
        const uint64_t tail = gyre_load_acquire_u64(&fifo->send.inbox->tail[GYRE_PROTO_SIMPLE]);
        if (has_credit ? has_slot(link, fifo, tail) : tail > fifo->n_batched)
            return true;
    }
    return false;
}

bool socket_is_behind(const void *context, bool has_credit)
{
    const struct socket_transport *transport = context;
    for (int i = 0; i < transport->n_peers; i++)
        for (uint32_t l = 0; l < transport->peers[i].n_links; l++)
            if (is_link_behind(&transport->peers[i].links[l], has_credit))
                return true;
    return false;
}

static void add_last_frame(struct socket_link *link, const char *cause)
{
    link->n_batch = 0;
    link->first = 0;
    link->first_sent_bytes = 0;
    if (cause == NULL) {
        add_frame(link, SOCKET_FRAME_BYE, 0, 0);
        return;
    }
    add_frame(link, SOCKET_FRAME_FAULT, 0, strlen(cause));
    link->batch[0].payload = (const unsigned char *)cause;
    link->batch[0].payload_bytes = (uint32_t)strlen(cause);
}

void socket_say_bye(struct socket_link *link, const char *cause, uint64_t deadline_ns)
{
    bool is_said = false;
    while (link->fd >= 0) {
        if (link->first == link->n_batch && is_said)
            break;
        if (link->first == link->n_batch) {
            if (cause == NULL)
                make_batch(link); /* credit for the slots that were consumed last */
            if (cause != NULL || link->n_batch == 0) {
                add_last_frame(link, cause);
                is_said = true;
            }
        }
        if (send_batch(link))
            continue;
        if (gyre_now_ns() >=
            deadline_ns) /* all links share the deadline, and each gets at least one attempt */
            break;
        struct pollfd writable = {.fd = link->fd, .events = POLLOUT};
        if (poll(&writable, 1, 10) > 0 && (writable.revents & (POLLHUP | POLLERR)) != 0)
            break; /* the peer has closed already */
    }
    if (link->fd < 0)
        return;
    /* Unread bytes would turn the end of the stream into a reset, so read them first. */
    shutdown(link->fd, SHUT_WR);
    while (recv(link->fd, link->staging, sizeof(link->staging), MSG_DONTWAIT) > 0)
        ;
}
