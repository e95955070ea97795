/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP in place of rails, for slots in host memory (docs/failover.md).
 */
#include "transport/ib/ib_path.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define BYE_NS          500000000ULL
#define BATCH_BYTES     262144
#define READS_PER_ROUND 64
#define LOST_NS         100000000ULL
/* Longer than the kernel takes to find that nothing is acknowledged. */
#define IN_VAIN_NS 15000000000ULL

void gyre_ib_socket_drop(struct gyre_ib_transport *ib, struct gyre_ib_socket *socket)
{
    if (socket->fd < 0)
        return;
    (void)epoll_ctl(ib->nap_fd, EPOLL_CTL_DEL, socket->fd, NULL);
    gyre_sock_close(socket->fd);
    socket->fd = -1;
}

void gyre_ib_socket_stop(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    struct gyre_ib_socket *socket = peer->move.socket;
    if (socket == NULL)
        return;
    pthread_mutex_lock(&ib->mail_lock);
    socket->is_wanted = false;
    if (socket->made_fd >= 0)
        gyre_sock_close(socket->made_fd);
    socket->made_fd = -1;
    pthread_mutex_unlock(&ib->mail_lock);
    gyre_ib_socket_drop(ib, socket);
    socket->n_frames = socket->n_parts = socket->first_part = 0;
    socket->n_taken = socket->batch_bytes = socket->tried_ns = 0;
}

gyre_status gyre_ib_socket_run(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                               char *text_out)
{
    struct gyre_ib_socket *socket = peer->move.socket;
    struct epoll_event event = {.events = EPOLLIN};
    struct gyre_sock_address address = {0};
    pthread_mutex_lock(&ib->mail_lock);
    socket->is_wanted = false;
    socket->fd = socket->made_fd;
    socket->made_fd = -1;
    socket->cause[0] = '\0';
    pthread_mutex_unlock(&ib->mail_lock);
    socket->has_bye = socket->waits_for_room = false;
    socket->lost_ns = 0;
    (void)gyre_sock_peer_address(socket->fd, &address);
    (void)gyre_sock_to_text(&address, text_out, GYRE_IB_SOCKET_TEXT_BYTES);
    if (epoll_ctl(ib->nap_fd, EPOLL_CTL_ADD, socket->fd, &event) != 0)
        return gyre_fail_errno(errno, "epoll_ctl");
    return GYRE_SUCCESS;
}

/* A connection that carried nothing, because nothing was to be sent, is no failure; one that was
 * soon lost is, and the next one may fare alike. */
uint64_t gyre_ib_socket_since(struct gyre_ib_peer *peer, uint64_t now_ns)
{
    const struct gyre_ib_move *move = &peer->move;
    struct gyre_ib_socket *socket = move->socket;
    const bool was_in_vain = socket->lost_ns != 0 && peer->n_completions == move->n_run &&
                             now_ns - move->run_ns < IN_VAIN_NS;
    if (!was_in_vain)
        socket->vain_ns = 0;
    else if (socket->vain_ns == 0)
        socket->vain_ns = now_ns;
    return was_in_vain ? socket->vain_ns : now_ns;
}

static void lose(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, int error)
{
    struct gyre_ib_socket *socket = peer->move.socket;
    gyre_ib_socket_drop(ib, socket);
    socket->error = error;
    socket->lost_ns = socket->has_bye ? 0 : gyre_now_ns();
}

/* A peer that moves to rails closes the connection, too, and its STATE may come later. */
static void look_at_lost(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    struct gyre_ib_move *move = &peer->move;
    struct gyre_ib_socket *socket = move->socket;
    bool is_behind = false;
    char text[160];
    for (uint32_t fifo = 0; socket->lost_ns == 0 && fifo < peer->size.n_fifos; fifo++)
        is_behind = is_behind || gyre_ib_has_slot(ib, &peer->sends[fifo], false);
    if (ib->is_closing || (socket->lost_ns == 0 && !is_behind) ||
        gyre_now_ns() - socket->lost_ns < LOST_NS)
        return;
    snprintf(text, sizeof(text), "the socket in place of rails: %s",
             is_behind            ? "the peer has left"
             : socket->error == 0 ? "end of stream"
                                  : gyre_text_error(socket->error));
    pthread_mutex_lock(&ib->mail_lock);
    snprintf(socket->cause, sizeof(socket->cause), "%s", text);
    pthread_mutex_unlock(&ib->mail_lock);
    gyre_transport_tell(&ib->config, peer->rank, GYRE_CONNECTION_BROKE, text);
    gyre_ib_want_epoch(ib, move, text);
}

static void add_frame(struct gyre_ib_socket *socket, const struct gyre_ib_frame *frame, void *bytes)
{
    struct gyre_ib_frame *added = &socket->frames[socket->n_frames++];
    *added = *frame;
    socket->parts[socket->n_parts++] = (struct iovec){added, sizeof(*added)};
    if (frame->n_bytes > 0)
        socket->parts[socket->n_parts++] = (struct iovec){bytes, frame->n_bytes};
    socket->batch_bytes += frame->n_bytes;
}

static bool has_place(const struct gyre_ib_socket *socket)
{
    return socket->n_frames < GYRE_IB_SOCKET_FRAMES && socket->batch_bytes < BATCH_BYTES;
}

static void trace(struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                  enum gyre_trace_kind kind, const struct gyre_ib_frame *frame, uint64_t number)
{
    const struct gyre_ib_moved moved = {.kind = kind,
                                        .fifo = frame->fifo,
                                        .first = number,
                                        .end = number + 1,
                                        .n_bytes = frame->n_bytes,
                                        .is_lines = frame->kind == GYRE_IB_FRAME_LINES};
    gyre_ib_trace(ib, peer, &moved);
}

static void add_credit(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint32_t fifo)
{
    struct gyre_ib_recv *recv = &peer->recvs[fifo];
    const uint64_t head = gyre_load_acquire_u64(&recv->fifo.credit->head[GYRE_PROTO_SIMPLE]);
    const uint64_t line_head = gyre_load_acquire_u64(&recv->fifo.credit->head[GYRE_PROTO_LL]);
    struct gyre_ib_frame frame = {
        .kind = GYRE_IB_FRAME_CREDIT, .fifo = (uint16_t)fifo, .value = head};
    if (head != recv->returned && has_place(peer->move.socket)) {
        recv->returned = head;
        add_frame(peer->move.socket, &frame, NULL);
    }
    if (ib->recv_lines != NULL && line_head != recv->lines.returned &&
        has_place(peer->move.socket)) {
        recv->lines.returned = line_head;
        frame.kind = GYRE_IB_FRAME_LINE_CREDIT;
        frame.value = line_head;
        add_frame(peer->move.socket, &frame, NULL);
    }
}

static void add_slots(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint32_t fifo)
{
    struct gyre_ib_socket *socket = peer->move.socket;
    struct gyre_ib_send *send = &peer->sends[fifo];
    const struct gyre_line_slots slots = {send->lines.slots, ib->config.spec.net_line_bytes,
                                          send->fifo.depth};
    uint32_t n_lines;
    while (has_place(socket) && gyre_ib_has_lines(ib, send, true, &n_lines)) {
        const uint64_t number = send->lines.posted++;
        const uint32_t n_sent = gyre_lines_clean(&slots, number, n_lines);
        const struct gyre_ib_frame frame = {.kind = GYRE_IB_FRAME_LINES,
                                            .fifo = (uint16_t)fifo,
                                            .n_bytes =
                                                (n_sent > 0 ? n_sent : 1) * GYRE_LL_LINE_BYTES,
                                            .value = number};
        add_frame(socket, &frame, send->lines.slots + number % send->fifo.depth * slots.slot_bytes);
        trace(ib, peer, GYRE_TRACE_POST, &frame, number);
    }
    while (has_place(socket) && gyre_ib_has_simple(ib, send, true)) {
        const uint64_t number = send->posted++;
        const uint64_t slot = number % send->fifo.depth;
        const uint64_t info = gyre_load_relaxed_u64(&send->fifo.inbox->slot_info[slot]);
        const struct gyre_ib_frame frame = {.kind = GYRE_IB_FRAME_SLOT,
                                            .fifo = (uint16_t)fifo,
                                            .n_bytes = (uint32_t)(info & 0xffffffff),
                                            .value = info};
        add_frame(socket, &frame, send->fifo.slots + slot * peer->size.slot_bytes);
        trace(ib, peer, GYRE_TRACE_POST, &frame, number);
    }
}

static void end_batch(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    struct gyre_ib_socket *socket = peer->move.socket;
    for (int i = 0; i < socket->n_frames; i++) {
        const struct gyre_ib_frame *frame = &socket->frames[i];
        const bool is_lines = frame->kind == GYRE_IB_FRAME_LINES;
        if (frame->kind != GYRE_IB_FRAME_SLOT && !is_lines)
            continue;
        struct gyre_ib_send *send = &peer->sends[frame->fifo];
        uint64_t *released = is_lines ? &send->lines.released : &send->released;
        trace(ib, peer, GYRE_TRACE_COMPLETE, frame, (*released)++);
        gyre_ib_release_slots(peer, send, is_lines);
    }
    socket->n_frames = socket->n_parts = socket->first_part = 0;
    socket->batch_bytes = 0;
}

static void wait_for_room(struct gyre_ib_transport *ib, struct gyre_ib_socket *socket, bool waits)
{
    struct epoll_event event = {.events = EPOLLIN | (waits ? EPOLLOUT : 0U)};
    if (socket->waits_for_room != waits)
        (void)epoll_ctl(ib->nap_fd, EPOLL_CTL_MOD, socket->fd, &event);
    socket->waits_for_room = waits;
}

/* False: the kernel takes no more now, or the connection is lost. */
static bool send_batch(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    struct gyre_ib_socket *socket = peer->move.socket;
    while (socket->first_part < socket->n_parts) {
        const struct msghdr message = {.msg_iov = socket->parts + socket->first_part,
                                       .msg_iovlen =
                                           (size_t)(socket->n_parts - socket->first_part)};
        ssize_t n = sendmsg(socket->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            lose(ib, peer, errno);
        else if (n < 0)
            wait_for_room(ib, socket, true);
        if (n < 0)
            return false;
        for (; n > 0; socket->first_part++) {
            struct iovec *part = &socket->parts[socket->first_part];
            const size_t n_now = gyre_min_u64((size_t)n, part->iov_len);
            part->iov_base = (unsigned char *)part->iov_base + n_now;
            part->iov_len -= n_now;
            n -= (ssize_t)n_now;
            if (part->iov_len > 0)
                break;
        }
    }
    wait_for_room(ib, socket, false);
    end_batch(ib, peer);
    return true;
}

static bool push(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    struct gyre_ib_socket *socket = peer->move.socket;
    const uint32_t n_fifos = peer->size.n_fifos;
    bool has_moved = false;
    for (;;) {
        if (socket->n_frames == 0) {
            const uint32_t first = socket->next_fifo++ % n_fifos;
            for (uint32_t i = 0; i < n_fifos; i++)
                add_credit(ib, peer, (first + i) % n_fifos);
            for (uint32_t i = 0; i < n_fifos; i++)
                add_slots(ib, peer, (first + i) % n_fifos);
        }
        if (socket->n_frames == 0 || !send_batch(ib, peer))
            return has_moved;
        has_moved = true;
    }
}

static bool refuse(struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer)
{
    const struct gyre_ib_frame *frame = &peer->move.socket->frame;
    gyre_fail(GYRE_ERROR_REMOTE,
              "the socket from rank %d: frame kind %u of FIFO %u, %u bytes, value 0x%llx cannot be",
              peer->rank, frame->kind, frame->fifo, frame->n_bytes,
              (unsigned long long)frame->value);
    gyre_ib_raise(ib, GYRE_ERROR_REMOTE, gyre_cause());
    return false;
}

static bool begin_frame(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    struct gyre_ib_socket *socket = peer->move.socket;
    const struct gyre_ib_frame *frame = &socket->frame;
    const uint32_t depth = ib->config.spec.depth;
    if (frame->fifo >= peer->size.n_fifos)
        return refuse(ib, peer);
    const struct gyre_ib_recv *recv = &peer->recvs[frame->fifo];
    if (frame->kind == GYRE_IB_FRAME_SLOT) {
        socket->to = recv->fifo.slots + recv->arrived % depth * recv->fifo.slot_bytes;
        if (frame->n_bytes > recv->fifo.slot_bytes ||
            frame->n_bytes != (frame->value & 0xffffffff) ||
            recv->arrived - recv->returned >= depth)
            return refuse(ib, peer);
    } else if (frame->kind == GYRE_IB_FRAME_LINES) {
        socket->to = socket->lines;
        if (ib->recv_lines == NULL || frame->n_bytes > ib->config.spec.net_line_bytes ||
            frame->n_bytes % GYRE_LL_LINE_BYTES != 0)
            return refuse(ib, peer);
    } else if (frame->n_bytes != 0) {
        return refuse(ib, peer);
    }
    return true;
}

static bool end_frame(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    struct gyre_ib_socket *socket = peer->move.socket;
    const struct gyre_ib_frame *frame = &socket->frame;
    struct gyre_ib_send *send = &peer->sends[frame->fifo];
    struct gyre_ib_recv *recv = &peer->recvs[frame->fifo];
    const uint32_t depth = ib->config.spec.depth;
    peer->n_completions++;
    switch (frame->kind) {
    case GYRE_IB_FRAME_SLOT:
        gyre_store_relaxed_u64(&recv->fifo.inbox->slot_info[recv->arrived % depth], frame->value);
        trace(ib, peer, GYRE_TRACE_RECEIVE, frame, recv->arrived++);
        gyre_store_release_u64(&recv->fifo.inbox->tail[GYRE_PROTO_SIMPLE], recv->arrived);
        return true;
    case GYRE_IB_FRAME_LINES: {
        unsigned char *to =
            recv->lines.slots + frame->value % depth * ib->config.spec.net_line_bytes;
        for (uint32_t at = 0; at < frame->n_bytes; at += sizeof(uint64_t)) {
            uint64_t half;
            memcpy(&half, socket->lines + at, sizeof(half));
            gyre_store_relaxed_u64((uint64_t *)(void *)(to + at), half);
        }
        return true;
    }
    case GYRE_IB_FRAME_CREDIT:
        if (frame->value > send->posted)
            return refuse(ib, peer);
        send->credit = gyre_max_u64(send->credit, frame->value);
        gyre_ib_release_slots(peer, send, false);
        return true;
    case GYRE_IB_FRAME_LINE_CREDIT:
        send->lines.credit = gyre_max_u64(send->lines.credit, frame->value);
        gyre_ib_release_slots(peer, send, true);
        return true;
    case GYRE_IB_FRAME_GOODBYE:
        socket->has_bye = true;
        return true;
    default:
        return refuse(ib, peer);
    }
}

static bool take(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    struct gyre_ib_socket *socket = peer->move.socket;
    const size_t n_head = sizeof(socket->frame);
    for (int i = 0; i < READS_PER_ROUND; i++) {
        const bool is_head = socket->n_taken < n_head;
        unsigned char *at = is_head ? (unsigned char *)&socket->frame + socket->n_taken
                                    : socket->to + (socket->n_taken - n_head);
        const size_t left_bytes =
            (is_head ? n_head : n_head + socket->frame.n_bytes) - socket->n_taken;
        const ssize_t n = recv(socket->fd, at, left_bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return i > 0;
        if (n <= 0) {
            lose(ib, peer, n == 0 ? 0 : errno);
            return true;
        }
        socket->n_taken += (size_t)n;
        if (is_head && socket->n_taken == n_head && !begin_frame(ib, peer))
            return true;
        if (socket->n_taken < n_head || socket->n_taken < n_head + socket->frame.n_bytes)
            continue;
        socket->n_taken = 0;
        if (!end_frame(ib, peer))
            return true;
    }
    return true;
}

bool gyre_ib_socket_move(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    const struct gyre_ib_socket *socket = peer->move.socket;
    bool has_moved = false;
    if (peer->move.is_broken || ib->is_failed)
        return false;
    if (socket->fd >= 0)
        has_moved = take(ib, peer);
    if (socket->fd >= 0 && !ib->is_failed)
        has_moved = push(ib, peer) || has_moved;
    if (socket->fd < 0)
        look_at_lost(ib, peer);
    return has_moved;
}

void gyre_ib_sockets_leave(struct gyre_ib_transport *ib)
{
    static const struct gyre_ib_frame goodbye = {.kind = GYRE_IB_FRAME_GOODBYE};
    const uint64_t until_ns = gyre_now_ns() + BYE_NS;
    for (int i = 0; i < ib->config.n_peers; i++) {
        struct gyre_ib_peer *peer = &ib->peers[i];
        struct gyre_ib_socket *socket = peer->move.socket;
        if (socket == NULL || gyre_fault_is_raised(ib->config.fault))
            continue;
        while (socket->fd >= 0 && socket->n_frames > 0 && !send_batch(ib, peer)) {
            struct pollfd room = {.fd = socket->fd, .events = POLLOUT};
            if (socket->fd < 0 || gyre_now_ns() >= until_ns || poll(&room, 1, 10) < 0)
                break;
        }
        if (socket->fd < 0 || socket->n_frames > 0)
            continue;
        add_frame(socket, &goodbye, NULL);
        (void)send_batch(ib, peer);
        if (socket->fd < 0)
            continue;
        (void)shutdown(socket->fd, SHUT_WR);
        while (recv(socket->fd, socket->lines, sizeof(uint64_t), MSG_DONTWAIT) > 0)
            ;
    }
}
