/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of one connection to the server. Nothing blocks, a stranger costs a fixed buffer and
 * five seconds, and memory is only ever reserved for a proved link and up to its frame type's cap.
 */
#include "bootstrap/bootstrap_server.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define STRANGER_DEADLINE_NS 5000000000ULL
#define READS_PER_TURN       16 /* then the other links get their turn */

void gyre_server_link_kill(struct gyre_server_link *link, const char *death)
{
    if (!link->is_dead)
        snprintf(link->death, sizeof(link->death), "%s", death);
    link->is_dead = true;
}

/* 0 = the peer closed it */
static void kill_with(struct gyre_server_link *link, int error_number)
{
    char text[sizeof(link->death)];
    gyre_server_link_kill(
        link, gyre_wire_end_text(link->fd, error_number, &link->watch, text, sizeof(text)));
}

void gyre_server_link_kill_silent(struct gyre_server_link *link)
{
    kill_with(link, ETIMEDOUT);
    gyre_wire_reset(link->fd);
}

struct gyre_server_buffer *gyre_server_frame(enum gyre_frame_type type, int rank, uint32_t sequence,
                                             const void *payload, size_t n_payload)
{
    const struct gyre_frame frame = {
        .type = type, .rank = rank, .sequence = sequence, .n_bytes = (uint32_t)n_payload};
    struct gyre_server_buffer *buffer = malloc(sizeof(*buffer) + sizeof(frame) + n_payload);
    if (buffer == NULL)
        return NULL;
    buffer->n_users = 1;
    buffer->n_bytes = sizeof(frame) + n_payload;
    memcpy(buffer->bytes, &frame, sizeof(frame));
    if (payload != NULL)
        memcpy(buffer->bytes + sizeof(frame), payload, n_payload);
    return buffer;
}

void gyre_server_buffer_drop(struct gyre_server_buffer *buffer)
{
    if (buffer != NULL && --buffer->n_users == 0)
        free(buffer);
}

static void drop_first_out(struct gyre_server_link *link)
{
    struct gyre_server_out *out = link->first_out;
    link->first_out = out->next;
    if (link->first_out == NULL)
        link->last_out = NULL;
    link->n_out_offset = 0;
    link->n_queued_bytes -= out->buffer->n_bytes;
    gyre_server_buffer_drop(out->buffer);
    free(out);
}

static void watch_out(struct gyre_server *server, struct gyre_server_link *link, bool wants_out)
{
    struct epoll_event event = {.events = EPOLLIN | (wants_out ? (uint32_t)EPOLLOUT : 0U),
                                .data.ptr = link};
    if (link->wants_out != wants_out &&
        epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, link->fd, &event) != 0)
        gyre_server_link_kill(link, "could not be watched by the rendezvous");
    link->wants_out = wants_out;
}

void gyre_server_link_write(struct gyre_server *server, struct gyre_server_link *link)
{
    while (link->first_out != NULL && !link->is_dead) {
        const struct gyre_server_buffer *buffer = link->first_out->buffer;
        const ssize_t n_sent = send(link->fd, buffer->bytes + link->n_out_offset,
                                    buffer->n_bytes - link->n_out_offset, MSG_NOSIGNAL);
        if (n_sent >= 0) {
            link->n_out_offset += (size_t)n_sent;
            if (link->n_out_offset == buffer->n_bytes)
                drop_first_out(link);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno == EPIPE || errno == ECONNRESET) {
            /* It has closed, but what it said before, perhaps a goodbye, may not be read yet: the
             * end of what there is to read ends the link. */
            while (link->first_out != NULL)
                drop_first_out(link);
        } else if (errno != EINTR) {
            kill_with(link, errno);
        }
    }
    if (link->is_dead)
        return;
    watch_out(server, link, link->first_out != NULL);
    /* If this end closed first, the last frame could be lost. */
    if (link->first_out == NULL && link->phase == GYRE_LINK_FINISHING)
        shutdown(link->fd, SHUT_WR);
}

void gyre_server_link_send(struct gyre_server *server, struct gyre_server_link *link,
                           struct gyre_server_buffer *buffer)
{
    struct gyre_server_out *out = buffer == NULL ? NULL : calloc(1, sizeof(*out));
    if (out == NULL) {
        gyre_server_link_kill(link, "was given up: the rendezvous ran out of memory");
        return;
    }
    buffer->n_users++;
    out->buffer = buffer;
    if (link->last_out != NULL)
        link->last_out->next = out;
    else
        link->first_out = out;
    link->last_out = out;
    link->n_queued_bytes += buffer->n_bytes;
    gyre_server_link_write(server, link);
}

void gyre_server_link_add(struct gyre_server *server, int fd)
{
    struct gyre_server_link *link = calloc(1, sizeof(*link));
    if (link == NULL) {
        gyre_sock_close(fd);
        return;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    if (!gyre_stranger_greet(&link->stranger, fd) ||
        epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        gyre_sock_close(fd);
        free(link);
        return;
    }
    link->fd = fd;
    gyre_wire_watch_start(fd, &link->watch);
    link->phase = GYRE_LINK_STRANGER;
    link->deadline_ns = link->stranger.born_ns + STRANGER_DEADLINE_NS;
    link->next = server->links;
    server->links = link;
    server->n_strangers++;
}

void gyre_server_link_free(struct gyre_server *server, struct gyre_server_link *link)
{
    if (link->phase == GYRE_LINK_STRANGER) {
        server->n_strangers--;
        server->n_dropped++;
    }
    while (link->first_out != NULL)
        drop_first_out(link);
    /* A copy of the descriptor, in a child that is not yet what it will execute, would keep it in
     * the set. */
    epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
    gyre_sock_close(link->fd);
    free(link->payload);
    free(link->gathered);
    free(link);
}

static void read_stranger(struct gyre_server *server, struct gyre_server_link *link)
{
    const enum gyre_stranger_state state = gyre_stranger_read(&link->stranger, server->secret);
    if (state != GYRE_STRANGER_WAITS)
        gyre_authenticate_release();
    if (state == GYRE_STRANGER_REFUSED) {
        gyre_server_link_kill(link, "is a stranger");
    } else if (state == GYRE_STRANGER_PROVED) {
        server->n_strangers--;
        link->phase = GYRE_LINK_PROVED;
    }
}

/* Most bytes of a frame of this type from a link in this phase; -1 = none. */
static int64_t frame_cap(const struct gyre_server *server, const struct gyre_server_link *link)
{
    const uint32_t type = link->frame.type;
    if (link->phase == GYRE_LINK_PROVED && type == GYRE_FRAME_JOIN)
        return (int64_t)sizeof(struct gyre_frame_join);
    if (link->phase == GYRE_LINK_PROVED && type != GYRE_FRAME_FAIL)
        return -1;
    switch (type) {
    case GYRE_FRAME_GATHER:
        return (int64_t)gyre_gather_cap(server->n_ranks);
    case GYRE_FRAME_POST:
        return GYRE_MESSAGE_MAX_BYTES;
    case GYRE_FRAME_FAIL:
        return GYRE_TEXT_MAX_BYTES - 1;
    case GYRE_FRAME_LEAVE:
        return 0;
    default:
        return -1;
    }
}

static void on_header(struct gyre_server *server, struct gyre_server_link *link)
{
    const int64_t cap = frame_cap(server, link);
    if (cap < 0 || link->frame.n_bytes > cap) {
        gyre_server_link_kill(link, "closed its connection after a malformed frame");
        return;
    }
    /* one byte more, for the NUL of a text */
    link->payload = calloc(1, (size_t)link->frame.n_bytes + 1);
    if (link->payload == NULL)
        gyre_server_link_kill(link, "was given up: the rendezvous ran out of memory");
}

static void on_bytes(struct gyre_server *server, struct gyre_server_link *link, size_t n_bytes)
{
    link->n_read += n_bytes;
    if (link->n_read == sizeof(link->frame))
        on_header(server, link);
    if (link->is_dead || link->n_read < sizeof(link->frame) ||
        link->n_read < sizeof(link->frame) + link->frame.n_bytes)
        return;
    gyre_server_on_frame(server, link);
    free(link->payload);
    link->payload = NULL;
    link->n_read = 0;
}

static uint8_t *read_target(struct gyre_server_link *link, uint8_t *trash, size_t n_trash,
                            size_t *n_wanted_out)
{
    const size_t n_read = link->n_read;
    if (link->phase == GYRE_LINK_FINISHING) {
        *n_wanted_out = n_trash;
        return trash;
    }
    if (n_read < sizeof(link->frame)) {
        *n_wanted_out = sizeof(link->frame) - n_read;
        return (uint8_t *)&link->frame + n_read;
    }
    *n_wanted_out = sizeof(link->frame) + link->frame.n_bytes - n_read;
    return link->payload + (n_read - sizeof(link->frame));
}

void gyre_server_link_read(struct gyre_server *server, struct gyre_server_link *link)
{
    uint8_t trash[4096];
    if (link->phase == GYRE_LINK_STRANGER)
        read_stranger(server, link);
    for (int turn = 0; turn < READS_PER_TURN && !link->is_dead && link->phase != GYRE_LINK_STRANGER;
         turn++) {
        size_t n_wanted = 0;
        uint8_t *target = read_target(link, trash, sizeof(trash), &n_wanted);
        const ssize_t n_got = recv(link->fd, target, n_wanted, 0);
        if (n_got > 0) {
            if (link->phase != GYRE_LINK_FINISHING)
                on_bytes(server, link, (size_t)n_got);
        } else if (n_got == 0) {
            kill_with(link, 0);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            kill_with(link, errno);
        }
    }
}
