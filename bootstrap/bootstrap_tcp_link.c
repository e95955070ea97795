/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/bootstrap_wire.h"

#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY_NS 250000000ULL

static const char no_memory[] = "no memory";

gyre_status gyre_tcp_send(struct gyre_tcp *tcp, const struct gyre_frame *frame, const void *payload,
                          uint64_t deadline_ns)
{
    gyre_status status = GYRE_SUCCESS;
    pthread_mutex_lock(&tcp->send_lock);
    if (tcp->is_send_broken)
        status = gyre_fail(GYRE_ERROR_REMOTE, "the link to the rendezvous is broken");
    if (status == GYRE_SUCCESS)
        status = gyre_sock_send(tcp->fd, frame, sizeof(*frame), deadline_ns);
    if (status == GYRE_SUCCESS && frame->n_bytes > 0)
        status = gyre_sock_send(tcp->fd, payload, frame->n_bytes, deadline_ns);
    if (status != GYRE_SUCCESS)
        tcp->is_send_broken = true; /* later bytes would count as this frame's */
    pthread_mutex_unlock(&tcp->send_lock);
    return status;
}

void gyre_tcp_set_broken(struct gyre_tcp *tcp, gyre_status status, const char *text)
{
    if (tcp->broken != GYRE_SUCCESS)
        return;
    tcp->broken = status;
    snprintf(tcp->broken_text, sizeof(tcp->broken_text), "%s", text);
}

static void on_lost(struct gyre_tcp *tcp, int rank, const char *text)
{
    char cause[GYRE_TEXT_MAX_BYTES];
    snprintf(cause, sizeof(cause), "rank %d is gone: %.740s", rank, text);
    gyre_tcp_set_broken(tcp, GYRE_ERROR_REMOTE, cause);
    gyre_events_push(&tcp->events, GYRE_EVENT_LOST, rank, text, strlen(text));
}

static void on_server_closed(struct gyre_tcp *tcp, const char *how)
{
    char text[GYRE_TEXT_MAX_BYTES];
    const struct gyre_frame_joined *joined = &tcp->joined;
    if (tcp->is_closed)
        return;
    tcp->is_closed = true;
    if (tcp->is_joined && joined->server_rank == tcp->base.rank) {
        snprintf(text, sizeof(text), "rank %d's own rendezvous at %s %s", tcp->base.rank,
                 tcp->server_text, how);
        gyre_tcp_set_broken(tcp, GYRE_ERROR_REMOTE, text);
    } else if (!tcp->is_joined) {
        snprintf(text, sizeof(text), "the rendezvous at %s %s before all ranks had joined",
                 tcp->server_text, how);
        gyre_tcp_set_broken(tcp, GYRE_ERROR_REMOTE, text);
    } else if (!tcp->server_rank_left) {
        snprintf(text, sizeof(text), "pid %d on %.64s, which carries the rendezvous, %s",
                 joined->server_pid, joined->server_host, how);
        if (joined->server_rank >= 0)
            on_lost(tcp, joined->server_rank, text);
        else
            gyre_tcp_set_broken(tcp, GYRE_ERROR_REMOTE, text);
    } else {
        gyre_tcp_set_broken(tcp, GYRE_ERROR_REMOTE, "the rendezvous has ended");
        /* The server's process may have ended while it passed goodbyes on. */
        for (int rank = 0; rank < tcp->base.n_ranks; rank++)
            if (rank != tcp->base.rank)
                gyre_events_push(&tcp->events, GYRE_EVENT_LEFT, rank, "", 0);
    }
}

static void on_frame(struct gyre_tcp *tcp)
{
    const struct gyre_frame *frame = &tcp->frame;
    const char *text = (const char *)tcp->payload;
    char cause[GYRE_TEXT_MAX_BYTES];
    switch (frame->type) {
    case GYRE_FRAME_JOINED:
        if (frame->n_bytes == sizeof(tcp->joined)) {
            memcpy(&tcp->joined, tcp->payload, sizeof(tcp->joined));
            tcp->joined.server_host[sizeof(tcp->joined.server_host) - 1] = '\0';
            tcp->is_joined = true;
        }
        break;
    case GYRE_FRAME_GATHERED:
        if (frame->sequence == tcp->sequence && tcp->result == NULL) {
            tcp->result = tcp->payload;
            tcp->n_result = frame->n_bytes;
            tcp->payload = NULL;
        }
        break;
    case GYRE_FRAME_POST:
        gyre_events_push(&tcp->events, GYRE_EVENT_MESSAGE, frame->rank, tcp->payload,
                         frame->n_bytes);
        break;
    case GYRE_FRAME_FAIL:
        snprintf(cause, sizeof(cause), "rank %d gave up: %s", frame->rank, text);
        gyre_tcp_set_broken(tcp, GYRE_ERROR_REMOTE, cause);
        break;
    case GYRE_FRAME_LEFT:
        tcp->server_rank_left |= frame->rank == tcp->joined.server_rank;
        snprintf(cause, sizeof(cause), "rank %d has left the communicator", frame->rank);
        gyre_tcp_set_broken(tcp, GYRE_ERROR_REMOTE, cause);
        gyre_events_push(&tcp->events, GYRE_EVENT_LEFT, frame->rank, "", 0);
        break;
    case GYRE_FRAME_LOST:
        on_lost(tcp, frame->rank, text);
        break;
    case GYRE_FRAME_ERROR:
        gyre_tcp_set_broken(tcp,
                            frame->sequence > 0 && frame->sequence < GYRE_IN_PROGRESS
                                ? (gyre_status)frame->sequence
                                : GYRE_ERROR_REMOTE,
                            text);
        tcp->is_closed = true;
        break;
    default:
        on_server_closed(tcp, "sent a frame of unknown type");
        break;
    }
}

/* NULL, or why the link can be used no more. */
static const char *read_target(struct gyre_tcp *tcp, uint8_t **target_out, size_t *n_wanted_out)
{
    if (tcp->n_read < sizeof(tcp->frame)) {
        *target_out = (uint8_t *)&tcp->frame + tcp->n_read;
        *n_wanted_out = sizeof(tcp->frame) - tcp->n_read;
        return NULL;
    }
    if (tcp->payload == NULL) {
        if (tcp->frame.n_bytes > GYRE_FRAME_MAX_BYTES)
            return "sent a frame that is too large";
        tcp->payload = malloc((size_t)tcp->frame.n_bytes + 1);
        if (tcp->payload == NULL)
            return no_memory;
        tcp->payload[tcp->frame.n_bytes] = '\0';
    }
    *target_out = tcp->payload + (tcp->n_read - sizeof(tcp->frame));
    *n_wanted_out = sizeof(tcp->frame) + tcp->frame.n_bytes - tcp->n_read;
    return NULL;
}

static void read_some(struct gyre_tcp *tcp)
{
    for (;;) {
        uint8_t *target = NULL;
        size_t n_wanted = 0;
        const char *const unusable = read_target(tcp, &target, &n_wanted);
        const ssize_t n_got =
            unusable == NULL && n_wanted > 0 ? recv(tcp->fd, target, n_wanted, 0) : 0;
        if (n_got < 0 && errno == EINTR)
            continue;
        if (n_got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        char how[160] = "";
        if (n_got <= 0 && n_wanted > 0)
            gyre_wire_end_text(tcp->fd, n_got < 0 ? errno : 0, &tcp->watch, how, sizeof(how));
        pthread_mutex_lock(&tcp->lock);
        if (unusable == no_memory) {
            /* This rank's own failure: the link can still tell the others. */
            char text[GYRE_TEXT_MAX_BYTES];
            snprintf(text, sizeof(text), "rank %d has no memory for %u bytes from the rendezvous",
                     tcp->base.rank, (unsigned)tcp->frame.n_bytes);
            gyre_tcp_set_broken(tcp, GYRE_ERROR_OUT_OF_MEMORY, text);
            tcp->is_closed = true;
        } else if (unusable != NULL || (n_got <= 0 && n_wanted > 0)) {
            on_server_closed(tcp, unusable != NULL ? unusable : how);
        }
        const bool is_closed = tcp->is_closed;
        if (!is_closed) {
            tcp->n_read += (size_t)n_got;
            if (tcp->n_read >= sizeof(tcp->frame) &&
                tcp->n_read == sizeof(tcp->frame) + tcp->frame.n_bytes && tcp->payload != NULL) {
                on_frame(tcp);
                free(tcp->payload);
                tcp->payload = NULL;
                tcp->n_read = 0;
            }
        }
        pthread_mutex_unlock(&tcp->lock);
        if (is_closed)
            return;
    }
}

void gyre_tcp_wait(struct gyre_tcp *tcp, uint64_t deadline_ns)
{
    if (tcp->is_reading || tcp->is_closed) {
        gyre_cond_wait_until(&tcp->changed, &tcp->lock, deadline_ns);
        return;
    }
    tcp->is_reading = true;
    pthread_mutex_unlock(&tcp->lock);
    const uint64_t now_ns = gyre_now_ns();
    const uint64_t left_ms =
        now_ns >= deadline_ns ? 0 : gyre_div_round_up(deadline_ns - now_ns, 1000000);
    struct pollfd entries[2] = {{.fd = tcp->fd, .events = POLLIN},
                                {.fd = tcp->wake_fd, .events = POLLIN}};
    uint64_t n_wakes = 0;
    const int n_ready = poll(entries, 2, (int)gyre_min_u64(left_ms, 1000));
    if (n_ready > 0 && entries[1].revents != 0 && read(tcp->wake_fd, &n_wakes, sizeof(n_wakes)) < 0)
        n_wakes = 0;
    if (n_ready > 0 && entries[0].revents != 0)
        read_some(tcp);
    char how[160] = "";
    bool is_silent = false;
    if (gyre_now_ns() >= tcp->next_look_ns) {
        tcp->next_look_ns = gyre_now_ns() + LOOK_EVERY_NS;
        is_silent = gyre_wire_is_silent(tcp->fd, &tcp->watch);
    }
    if (is_silent) {
        gyre_wire_end_text(tcp->fd, ETIMEDOUT, &tcp->watch, how, sizeof(how));
        gyre_wire_reset(tcp->fd);
    }
    pthread_mutex_lock(&tcp->lock);
    if (is_silent)
        on_server_closed(tcp, how);
    tcp->is_reading = false;
    pthread_cond_broadcast(&tcp->changed);
}
