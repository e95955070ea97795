/* SPDX-License-Identifier: Apache-2.0
 *
 * A firewall that lost its state can drop a single connection while the host lives, and the kernel
 * would go on sending for a quarter of an hour. So this rank asks its kernel since when sent data
 * wait for an acknowledgement, which the kernel of a slow or stopped peer sends. TCP_USER_TIMEOUT
 * cannot tell the two apart: since Linux 5.11 it also ends a connection whose window stays full
 * although every probe is answered.
 */
#include "transport/socket/socket.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

void socket_record_begin(struct socket_thread *thread, enum gyre_trace_kind kind)
{
    if (thread->transport->recorded == NULL)
        return;
    thread->moving.kind = (uint8_t)kind;
    thread->moving.begin_ns = gyre_now_ns();
    thread->moving.n_ins = 0;
    thread->moving.n_outs = 0;
}

void socket_record_slot(const struct socket_link *link, const struct socket_fifo *fifo,
                        uint64_t number, bool is_out)
{
    const struct socket_peer *peer = link->peer;
    const struct gyre_trace_slot slot = {
        .peer = (uint16_t)peer->rank,
        .fifo = (uint16_t)((uint32_t)(fifo - peer->fifos) % peer->size.n_fifos),
        .number = gyre_trace_number(number, fifo->proto == GYRE_PROTO_LL)};
    if (peer->transport->recorded != NULL)
        gyre_trace_add_slot(&link->thread->moving, &slot, is_out);
}

void socket_record_end(struct socket_thread *thread, size_t n_bytes)
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

void socket_drop_link(struct socket_link *link)
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
    socket_drop_link(link);
    if (has_bye && !is_cut && n_unsent == 0)
        return;
    const char *why = error != 0 ? gyre_text_error(error) : "end of stream";
    if (error != 0)
        snprintf(number, sizeof(number), " (errno %d)", error);
    snprintf(words, sizeof(words), "%s: %s%s; %s%llu slots to it were not sent",
             has_bye ? "it left too early" : "it died or was cut off", why, number,
             is_cut ? "a slot from it had begun, " : "", (unsigned long long)n_unsent);
    if (!has_bye && socket_connect_again(link, words, 0))
        return;
    socket_blame(link, GYRE_ERROR_REMOTE, words);
}

bool socket_refuse(struct socket_link *link, const struct socket_header *header, const char *why)
{
    char words[160];
    snprintf(words, sizeof(words), "broke the protocol: frame kind %u of FIFO %u, value %llx: %s",
             header->kind, header->fifo, (unsigned long long)header->value, why);
    socket_drop_link(link);
    socket_blame(link, GYRE_ERROR_REMOTE, words);
    return false;
}

#define WATCH_NS 250000000ULL
/* With MIN_TRIES retransmissions (1.4 s) and one WATCH_NS at most 10 s. The health link finds a
 * dead host earlier. */
#define SILENT_NS 7800000000ULL
/* Later than this file, whose message the user reads. */
#define KEEPALIVE_PROBES 12

/* At a full window the kernel probes once in two minutes, so one lost probe proves nothing. */
#define MIN_TRIES 3

static void end_silent(struct socket_link *link, uint64_t silent_ns)
{
    const struct socket_peer *peer = link->peer;
    const struct gyre_transport_config *config = &peer->transport->config;
    const struct gyre_peer_info *info = &config->infos[peer->rank];
    char text[GYRE_CAUSE_MAX_BYTES];
    char address[64];
    char why[120];
    snprintf(text, sizeof(text),
             "rank %d: no acknowledgement from rank %d (%s, pid %u, %s) for %.1f s over socket %s "
             "(connection %u of %u), while its health link shows no failure: a firewall or one "
             "network path drops this connection",
             config->rank, peer->rank, info->host_name, info->pid,
             gyre_sock_to_text(&link->remote, address, sizeof(address)), (double)silent_ns / 1e9,
             link->interface, link->index + 1, peer->n_links);
    if (peer->transport->setup != NULL) {
        socket_drop_link(link);
        snprintf(why, sizeof(why),
                 "no acknowledgement for %.1f s, while its health link shows no failure",
                 (double)silent_ns / 1e9);
        if (socket_connect_again(link, why, silent_ns))
            return;
    }
    gyre_fault_raise(config->fault, GYRE_ERROR_REMOTE, text);
}

static void watch_link(struct socket_link *link)
{
    struct tcp_info info;
    socklen_t n_info = sizeof(info);
    memset(&info, 0, sizeof(info));
    if (link->fd < 0 || getsockopt(link->fd, IPPROTO_TCP, TCP_INFO, &info, &n_info) != 0)
        return;
    const uint32_t n_tries = info.tcpi_unacked > 0 ? info.tcpi_retransmits : info.tcpi_probes;
    const uint64_t silent_ns =
        gyre_min_u32(info.tcpi_last_ack_recv, info.tcpi_last_data_recv) * 1000000ULL;
    if (n_tries >= MIN_TRIES && silent_ns >= SILENT_NS)
        end_silent(link, silent_ns);
}

gyre_status socket_watch_begin(const struct socket_link *link)
{
    const int n_probes = KEEPALIVE_PROBES;
    if (setsockopt(link->fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof(n_probes)) != 0)
        return gyre_fail_errno(errno, "setsockopt(TCP_KEEPCNT)");
    return GYRE_SUCCESS;
}

static void watch(struct socket_thread *thread)
{
    const struct socket_transport *transport = thread->transport;
    const uint64_t now_ns = gyre_now_ns();
    if (now_ns - thread->watched_ns < WATCH_NS)
        return;
    thread->watched_ns = now_ns;
    for (int i = 0; i < transport->n_peers; i++)
        for (uint32_t l = thread->index; l < transport->peers[i].n_links; l += transport->n_threads)
            watch_link(&transport->peers[i].links[l]);
}

#define READS_PER_ROUND  2
#define EVENTS_PER_ROUND 32

static bool move_link(struct socket_link *link)
{
    bool has_moved = false;
    for (int i = 0; i < READS_PER_ROUND && link->is_readable; i++)
        has_moved = socket_receive(link) || has_moved;
    if (link->fd < 0) {
        if (link->has_bye && socket_count_unsent(link) > 0)
            socket_blame(link, GYRE_ERROR_REMOTE, "it left before slots to it were sent");
        return has_moved;
    }
    return socket_send(link) || has_moved;
}

bool socket_move(void *context)
{
    struct socket_thread *thread = context;
    const struct socket_transport *transport = thread->transport;
    struct epoll_event events[EVENTS_PER_ROUND];
    bool has_moved = false;
    const int n_events = epoll_wait(thread->epoll_fd, events, EVENTS_PER_ROUND, 0);
    for (int i = 0; i < n_events; i++) {
        struct socket_link *link = events[i].data.ptr;
        const uint32_t mask = events[i].events;
        link->is_ending = link->is_ending || (mask & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
        link->is_readable = link->is_readable || (mask & EPOLLIN) != 0 || link->is_ending;
        link->is_writable = link->is_writable || (mask & EPOLLOUT) != 0;
    }
    for (int i = 0; i < transport->n_peers; i++)
        for (uint32_t l = thread->index; l < transport->peers[i].n_links; l += transport->n_threads)
            has_moved = move_link(&transport->peers[i].links[l]) || has_moved;
    if (!has_moved)
        watch(thread);
    return has_moved;
}

bool socket_is_behind(const void *context, bool has_credit)
{
    const struct socket_thread *thread = context;
    const struct socket_transport *transport = thread->transport;
    for (int i = 0; i < transport->n_peers; i++)
        for (uint32_t l = thread->index; l < transport->peers[i].n_links; l += transport->n_threads)
            if (socket_is_link_behind(&transport->peers[i].links[l], has_credit))
                return true;
    return false;
}
