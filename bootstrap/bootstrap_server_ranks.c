/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/bootstrap_server.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_NS      (5 * GYRE_SECOND_NS)
#define PROGRESS_MAX_NS  (60 * GYRE_SECOND_NS)
#define FINISH_NS        (5 * GYRE_SECOND_NS)
#define LINGER_NS        (60 * GYRE_SECOND_NS) /* late ranks of a failed job learn why */
#define MAX_POSTED_BYTES (4u << 20)            /* for one rank */

/* NULL = no memory. */
static struct gyre_server_buffer *frame_of(enum gyre_frame_type type, int rank, uint32_t sequence,
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

static void finish_link(struct gyre_server *server, struct gyre_server_link *link,
                        gyre_status status, const char *text)
{
    if (link->is_dead || link->phase == GYRE_LINK_FINISHING)
        return;
    struct gyre_server_buffer *buffer =
        frame_of(GYRE_FRAME_ERROR, -1, (uint32_t)status, text, strlen(text));
    link->phase = GYRE_LINK_FINISHING;
    link->deadline_ns = gyre_now_ns() + FINISH_NS;
    gyre_server_link_send(server, link, buffer);
    gyre_server_buffer_drop(buffer);
}

void gyre_server_fail(struct gyre_server *server, gyre_status status, const char *format, ...)
{
    if (server->has_failed)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(server->failure_text, sizeof(server->failure_text), format, args);
    va_end(args);
    server->has_failed = true;
    server->failure = status;
    server->deadline_ns = gyre_now_ns() + LINGER_NS;
    for (int rank = 0; rank < server->n_ranks; rank++) {
        if (server->ranks[rank] != NULL)
            finish_link(server, server->ranks[rank], status, server->failure_text);
    }
}

static void broadcast(struct gyre_server *server, int except, struct gyre_server_buffer *buffer)
{
    for (int rank = 0; rank < server->n_ranks; rank++) {
        if (rank != except && server->ranks[rank] != NULL && !server->ranks[rank]->is_dead)
            gyre_server_link_send(server, server->ranks[rank], buffer);
    }
}

static void name_missing(const struct gyre_server *server, bool of_gather, char *text_out,
                         size_t text_bytes)
{
    int n_named = 0;
    int n_more = 0;
    text_out[0] = '\0';
    for (int rank = 0; rank < server->n_ranks; rank++) {
        const struct gyre_server_link *link = server->ranks[rank];
        if (link != NULL && (!of_gather || link->has_gathered))
            continue;
        if (n_named == 32) {
            n_more++;
            continue;
        }
        gyre_text_append(text_out, text_bytes, "%s%d", n_named == 0 ? "" : ", ", rank);
        n_named++;
    }
    if (n_more > 0)
        gyre_text_append(text_out, text_bytes, " and %d more", n_more);
}

/* A rank that may not join has been told why, and the others if it concerns them. */
static bool admit(struct gyre_server *server, struct gyre_server_link *link)
{
    const struct gyre_frame_join *who = &link->who;
    if (server->has_failed) {
        finish_link(server, link, server->failure, server->failure_text);
        return false;
    }
    if (who->wire_version != GYRE_WIRE_VERSION)
        gyre_server_fail(
            server, GYRE_ERROR_INVALID_USAGE,
            "init: rank %d (pid %d on %s) uses library %u / wire %u, the rendezvous uses %u / "
            "wire %u: load the same library on all ranks",
            who->rank, who->pid, who->host, who->library_version, who->wire_version,
            (unsigned)GYRE_VERSION, (unsigned)GYRE_WIRE_VERSION);
    else if (who->n_ranks < 1 || who->n_ranks > GYRE_WIRE_MAX_RANKS || who->rank < 0 ||
             who->rank >= who->n_ranks)
        gyre_server_fail(server, GYRE_ERROR_INVALID_ARGUMENT,
                         "init: rank %d of %d (pid %d on %s) is out of range", who->rank,
                         who->n_ranks, who->pid, who->host);
    else if (server->n_ranks != 0 && who->n_ranks != server->n_ranks)
        gyre_server_fail(
            server, GYRE_ERROR_INVALID_USAGE,
            "init: rank %d (pid %d on %s) says n_ranks is %d, the ranks before it said %d",
            who->rank, who->pid, who->host, who->n_ranks, server->n_ranks);
    else if (server->n_ranks != 0 && server->ranks[who->rank] != NULL)
        gyre_server_fail(server, GYRE_ERROR_INVALID_USAGE,
                         "init: rank %d joined twice: pid %d on %s and pid %d on %s", who->rank,
                         server->ranks[who->rank]->who.pid, server->ranks[who->rank]->who.host,
                         who->pid, who->host);
    if (server->has_failed)
        finish_link(server, link, server->failure, server->failure_text);
    return !server->has_failed;
}

static void on_join(struct gyre_server *server, struct gyre_server_link *link)
{
    if (link->frame.n_bytes != sizeof(link->who)) {
        gyre_server_link_kill(link, "sent a malformed frame");
        return;
    }
    memcpy(&link->who, link->payload, sizeof(link->who));
    link->who.host[sizeof(link->who.host) - 1] = '\0';
    if (!admit(server, link))
        return;
    if (server->n_ranks == 0) {
        server->ranks = calloc((size_t)link->who.n_ranks, sizeof(struct gyre_server_link *));
        if (server->ranks == NULL) {
            gyre_server_link_kill(link, "was given up: the rendezvous ran out of memory");
            return;
        }
        server->n_ranks = link->who.n_ranks;
        server->first_join_ns = gyre_now_ns();
        server->next_progress_ns = server->first_join_ns + PROGRESS_NS;
        server->progress_ns = PROGRESS_NS;
        server->deadline_ns = server->first_join_ns + server->timeout_ns;
    }
    link->phase = GYRE_LINK_RANK;
    server->ranks[link->who.rank] = link;
    if (++server->n_joined == server->n_ranks) {
        struct gyre_frame_joined joined = {.server_rank = -1, .server_pid = getpid()};
        gethostname(joined.server_host, sizeof(joined.server_host) - 1);
        for (int rank = server->n_ranks - 1; rank >= 0; rank--) {
            const struct gyre_frame_join *who = &server->ranks[rank]->who;
            if (who->pid == joined.server_pid &&
                strncmp(who->host, joined.server_host, sizeof(who->host)) == 0)
                joined.server_rank = rank;
        }
        server->is_complete = true;
        gyre_sock_close_all(&server->listeners);
        struct gyre_server_buffer *buffer =
            frame_of(GYRE_FRAME_JOINED, -1, 0, &joined, sizeof(joined));
        broadcast(server, -1, buffer);
        gyre_server_buffer_drop(buffer);
        if (server->n_dropped > 0)
            GYRE_INFO(BOOTSTRAP, "init: %llu connections without this job's secret were dropped",
                      (unsigned long long)server->n_dropped);
    }
}

static void on_gather(struct gyre_server *server, struct gyre_server_link *link)
{
    if (link->has_gathered || link->frame.sequence != server->sequence) {
        gyre_server_link_kill(link, "closed its connection after a gather out of turn");
        return;
    }
    if (server->n_gathered++ == 0)
        server->gather_started_ns = gyre_now_ns();
    link->has_gathered = true;
    link->gathered = link->payload;
    link->n_gathered = link->frame.n_bytes;
    link->payload = NULL;
    server->n_gathered_bytes += link->n_gathered;
    if (server->n_gathered != server->n_ranks)
        return;
    const size_t n_sizes = (size_t)server->n_ranks * sizeof(uint32_t);
    if (n_sizes + server->n_gathered_bytes > GYRE_FRAME_MAX_BYTES) {
        gyre_server_fail(
            server, GYRE_ERROR_UNSUPPORTED,
            "%d ranks tell each other %zu bytes to connect; the rendezvous carries up to %u",
            server->n_ranks, server->n_gathered_bytes, GYRE_FRAME_MAX_BYTES);
        return;
    }
    struct gyre_server_buffer *buffer = frame_of(GYRE_FRAME_GATHERED, -1, server->sequence, NULL,
                                                 n_sizes + server->n_gathered_bytes);
    if (buffer == NULL) {
        gyre_server_fail(server, GYRE_ERROR_OUT_OF_MEMORY,
                         "the rendezvous has no memory for %zu bytes", server->n_gathered_bytes);
        return;
    }
    uint8_t *sizes = buffer->bytes + sizeof(struct gyre_frame);
    uint8_t *at = sizes + n_sizes;
    for (int rank = 0; rank < server->n_ranks; rank++) {
        struct gyre_server_link *peer = server->ranks[rank];
        const uint32_t n_bytes = (uint32_t)peer->n_gathered;
        memcpy(sizes + (size_t)rank * sizeof(n_bytes), &n_bytes, sizeof(n_bytes));
        memcpy(at, peer->gathered, n_bytes);
        at += n_bytes;
        free(peer->gathered);
        peer->gathered = NULL;
        peer->has_gathered = false;
    }
    server->sequence++;
    server->n_gathered = 0;
    server->n_gathered_bytes = 0;
    broadcast(server, -1, buffer);
    gyre_server_buffer_drop(buffer);
}

static void tell_all(struct gyre_server *server, struct gyre_server_link *link,
                     enum gyre_frame_type type, const char *text)
{
    struct gyre_server_buffer *buffer = frame_of(type, link->who.rank, 0, text, strlen(text));
    broadcast(server, link->who.rank, buffer);
    gyre_server_buffer_drop(buffer);
}

void gyre_server_on_frame(struct gyre_server *server, struct gyre_server_link *link)
{
    if (!server->is_complete && link->frame.type == GYRE_FRAME_FAIL) {
        gyre_server_fail(server, GYRE_ERROR_REMOTE, "init: rank %d failed: %s", link->frame.rank,
                         (const char *)link->payload);
        gyre_server_link_kill(link, "gave up");
        return;
    }
    if (link->phase == GYRE_LINK_PROVED) {
        on_join(server, link);
        return;
    }
    if (!server->is_complete) {
        gyre_server_link_kill(link, "closed its connection after a frame before its time");
        return;
    }
    switch (link->frame.type) {
    case GYRE_FRAME_GATHER:
        on_gather(server, link);
        break;
    case GYRE_FRAME_POST: {
        const int to = link->frame.rank;
        struct gyre_server_buffer *buffer =
            frame_of(GYRE_FRAME_POST, link->who.rank, 0, link->payload, link->frame.n_bytes);
        if (buffer != NULL) {
            for (int rank = 0; rank < server->n_ranks; rank++) {
                struct gyre_server_link *peer = server->ranks[rank];
                const bool is_meant = to == -1 ? rank != link->who.rank : rank == to;
                if (!is_meant || peer == NULL || peer->is_dead)
                    continue;
                /* A stopped process reads nothing. */
                if (peer->n_queued_bytes + buffer->n_bytes > MAX_POSTED_BYTES)
                    GYRE_INFO(BOOTSTRAP, "a message to rank %d is dropped: it does not read", rank);
                else
                    gyre_server_link_send(server, peer, buffer);
            }
            gyre_server_buffer_drop(buffer);
        }
        break;
    }
    case GYRE_FRAME_FAIL:
        tell_all(server, link, GYRE_FRAME_FAIL, (const char *)link->payload);
        break;
    case GYRE_FRAME_LEAVE:
        if (!link->has_left)
            tell_all(server, link, GYRE_FRAME_LEFT, "");
        link->has_left = true;
        break;
    default:
        break;
    }
}

void gyre_server_on_end(struct gyre_server *server, struct gyre_server_link *link)
{
    char text[256];
    const int rank = link->who.rank;
    if (server->n_ranks == 0 || rank < 0 || rank >= server->n_ranks || server->ranks[rank] != link)
        return;
    server->ranks[rank] = NULL;
    if (link->has_gathered) { /* a gather without it never completes */
        server->n_gathered--;
        server->n_gathered_bytes -= link->n_gathered;
    }
    if (link->phase != GYRE_LINK_RANK || link->has_left || server->has_failed)
        return;
    snprintf(text, sizeof(text), "pid %d on %s %s", link->who.pid, link->who.host, link->death);
    if (server->is_complete)
        tell_all(server, link, GYRE_FRAME_LOST, text);
    else
        gyre_server_fail(server, GYRE_ERROR_REMOTE, "init: rank %d ended before all had joined: %s",
                         rank, text);
}

void gyre_server_check_deadlines(struct gyre_server *server, uint64_t now_ns)
{
    char missing[400];
    if (server->has_failed || server->n_ranks == 0)
        return;
    if (!server->is_complete) {
        const unsigned long long waited_s = (now_ns - server->first_join_ns) / GYRE_SECOND_NS;
        name_missing(server, false, missing, sizeof(missing));
        if (now_ns >= server->deadline_ns) {
            gyre_server_fail(
                server, GYRE_ERROR_TIMEOUT,
                "init: after %llu s %d of %d ranks have not joined: %s (they never reached the "
                "rendezvous at %s)",
                waited_s, server->n_ranks - server->n_joined, server->n_ranks, missing,
                server->address_text);
        } else if (now_ns >= server->next_progress_ns) {
            GYRE_WARN(
                "init: waiting %llu s for %d of %d ranks: %s (they never reached the rendezvous "
                "at %s; check the launcher and that their hosts reach it)",
                waited_s, server->n_ranks - server->n_joined, server->n_ranks, missing,
                server->address_text);
            server->next_progress_ns += server->progress_ns;
            server->progress_ns = gyre_min_u64(2 * server->progress_ns, PROGRESS_MAX_NS);
        }
    } else if (server->n_gathered > 0 && now_ns - server->gather_started_ns >= server->timeout_ns) {
        name_missing(server, true, missing, sizeof(missing));
        gyre_server_fail(server, GYRE_ERROR_TIMEOUT,
                         "init: after %llu s an all-gather still waits for ranks: %s",
                         (unsigned long long)(server->timeout_ns / GYRE_SECOND_NS), missing);
    }
}
