/* SPDX-License-Identifier: Apache-2.0
 *
 * How a link of the socket transport ends: by the peer's goodbye, by an error of the connection, or
 * because the peer broke the protocol. A failure is raised on the fault with a text that names the
 * peer and the connection.
 */
#include "transport/socket/socket_move.h"

#include "core/foundation/base/text.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

uint64_t socket_count_unsent(const struct socket_link *link)
{
    const struct socket_peer *peer = link->peer;
    uint64_t n_unsent = 0;
    for (uint32_t i = 0; i < link->n_fifos; i++) {
        const struct socket_fifo *fifo = &peer->fifos[socket_link_fifo(link, i)];
        uint64_t info, number = fifo->n_sent;
        while (socket_is_published(link, fifo, number, &info))
            number++;
        n_unsent += number - fifo->n_sent;
    }
    return n_unsent;
}

void socket_blame(const struct socket_link *link, gyre_status status, const char *words)
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
    epoll_ctl(link->thread->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
    gyre_sock_close(link->fd);
    link->fd = -1;
    link->is_readable = false;
    link->is_writable = false;
}

void socket_end_stream(struct socket_link *link, int error)
{
    char words[160];
    char number[16] = "";
    const uint64_t n_unsent = socket_count_unsent(link);
    const bool is_cut = link->n_arrivals > 0 || link->n_following > 0 || link->staged_bytes > 0;
    const bool has_bye = link->has_bye;
    drop(link);
    if (has_bye && !is_cut && n_unsent == 0)
        return;
    const char *why = error != 0 ? gyre_text_error(error) : "end of stream";
    if (error != 0)
        snprintf(number, sizeof(number), " (errno %d)", error);
    snprintf(words, sizeof(words), "%s: %s%s; %s%llu slots to it were not sent",
             has_bye ? "it left too early" : "it died or was cut off", why, number,
             is_cut ? "a slot from it had begun, " : "", (unsigned long long)n_unsent);
    socket_blame(link, GYRE_ERROR_REMOTE, words);
}

void socket_refuse(struct socket_link *link, const struct socket_header *header, const char *why)
{
    char words[160];
    snprintf(words, sizeof(words), "broke the protocol: frame kind %u of FIFO %u, value %llx: %s",
             header->kind, header->fifo, (unsigned long long)header->value, why);
    drop(link);
    socket_blame(link, GYRE_ERROR_REMOTE, words);
}
