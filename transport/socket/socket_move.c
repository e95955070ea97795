/* SPDX-License-Identifier: Apache-2.0
 *
 * A firewall can drop a single connection while the host lives, and the kernel would go on sending
 * for a quarter of an hour. So this rank asks its kernel since when sent data wait for an
 * acknowledgement, which the kernel of a slow or stopped peer sends. TCP_USER_TIMEOUT also ends
 * such a peer's connection: since Linux 5.11 one whose window stays full.
 */
#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"
#include "transport/socket/socket.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

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

/* Raises the fault. */
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

static void drop_link(struct socket_link *link)
{
    epoll_ctl(link->thread->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
    gyre_sock_close(link->fd);
    link->fd = -1;
    link->is_readable = false;
    link->is_writable = false;
}

/* Another connection is to take the closed one's place. False: the link ends here. Called by the
 * link's thread. @silent_ns: it has been dead for so long. */
static bool connect_again(struct socket_link *link, const char *why, uint64_t silent_ns)
{
    struct socket_transport *transport = link->peer->transport;
    struct setup *setup = transport->setup;
    uint64_t n_sent = 0, n_arrived = 0;
    if (setup == NULL || link->has_bye || gyre_fault_is_raised(transport->config.fault))
        return false;
    pthread_mutex_lock(&setup->lock);
    const bool is_tried = setup->is_running && !setup->stops;
    setup->has_broken = true;
    gyre_store_relaxed_u32(&transport->base.is_moving, is_tried); /* under setup->lock, as below */
    pthread_cond_broadcast(&setup->changed);
    pthread_mutex_unlock(&setup->lock);
    if (!is_tried)
        return false;
    for (uint32_t i = 0; i < link->n_fifos; i++) {
        n_sent += link->peer->fifos[socket_nth_fifo(link, i)].n_sent;
        n_arrived += link->peer->fifos[socket_nth_fifo(link, i)].n_arrived;
    }
    link->broken_since_ns = gyre_now_ns() - silent_ns;
    link->refused_since_ns = 0;
    snprintf(link->broken_why, sizeof(link->broken_why),
             "%s, after %llu slots to it and %llu from it", why, (unsigned long long)n_sent,
             (unsigned long long)n_arrived);
    gyre_transport_tell(&transport->config, link->peer->rank, GYRE_CONNECTION_BROKE,
                        link->broken_why);
    return true;
}

void socket_end_stream(struct socket_link *link, int error)
{
    char words[160];
    char number[16] = "";
    const uint64_t n_unsent = socket_count_unsent(link);
    const bool is_cut = link->n_arrivals > 0 || link->n_following > 0 || link->staged_bytes > 0;
    const bool has_bye = link->has_bye;
    drop_link(link);
    if (has_bye && !is_cut && n_unsent == 0)
        return;
    const char *why = error != 0 ? gyre_text_error(error) : "end of stream";
    if (error != 0)
        snprintf(number, sizeof(number), " (errno %d)", error);
    snprintf(words, sizeof(words), "%s: %s%s; %s%llu slots to it were not sent",
             has_bye ? "it left too early" : "it died or was cut off", why, number,
             is_cut ? "a slot from it had begun, " : "", (unsigned long long)n_unsent);
    if (!has_bye && connect_again(link, words, 0))
        return;
    blame(link, GYRE_ERROR_REMOTE, words);
}

bool socket_refuse(struct socket_link *link, const struct socket_header *header, const char *why)
{
    char words[160];
    snprintf(words, sizeof(words), "broke the protocol: frame kind %u of FIFO %u, value %llx: %s",
             header->kind, header->fifo, (unsigned long long)header->value, why);
    drop_link(link);
    blame(link, GYRE_ERROR_REMOTE, words);
    return false;
}

#define WATCH_NS 250000000ULL
/* With MIN_TRIES retransmissions (1.4 s) and one WATCH_NS at most 10 s. The health link finds a
 * dead host earlier. */
#define SILENT_NS 7800000000ULL

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
        drop_link(link);
        snprintf(why, sizeof(why),
                 "no acknowledgement for %.1f s, while its health link shows no failure",
                 (double)silent_ns / 1e9);
        if (connect_again(link, why, silent_ns))
            return;
    }
    gyre_fault_raise(config->fault, GYRE_ERROR_REMOTE, text);
}

static void watch(struct socket_thread *thread)
{
    const struct socket_transport *transport = thread->transport;
    const uint64_t now_ns = gyre_now_ns();
    if (now_ns - thread->watched_ns < WATCH_NS)
        return;
    thread->watched_ns = now_ns;
    for (int i = 0; i < transport->n_peers; i++)
        for (uint32_t l = thread->index; l < transport->peers[i].n_links;
             l += transport->n_threads) {
            struct socket_link *link = &transport->peers[i].links[l];
            struct tcp_info info;
            socklen_t n_info = sizeof(info);
            memset(&info, 0, sizeof(info));
            if (link->fd < 0 || getsockopt(link->fd, IPPROTO_TCP, TCP_INFO, &info, &n_info) != 0)
                continue;
            const uint32_t n_tries =
                info.tcpi_unacked > 0 ? info.tcpi_retransmits : info.tcpi_probes;
            const uint64_t silent_ns =
                gyre_min_u32(info.tcpi_last_ack_recv, info.tcpi_last_data_recv) * 1000000ULL;
            if (n_tries >= MIN_TRIES && silent_ns >= SILENT_NS)
                end_silent(link, silent_ns);
        }
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
            blame(link, GYRE_ERROR_REMOTE, "it left before slots to it were sent");
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

/* Links that broke (docs/failover.md). What is said of a link here holds under the lock of the
 * proxy that moves it. */

/* Since the last sign of life. */
#define BROKEN_MAX_NS 10000000000ULL
/* A socket that refuses for so long has lost its process. */
#define REFUSED_MAX_NS 500000000ULL
#define TRY_NS         1000000000ULL

uint32_t socket_halt(struct socket_link *link, uint32_t epoch, struct socket_counts *counts_out)
{
    gyre_proxy_pause(link->thread->proxy);
    if (epoch == 0)
        epoch = link->epoch + 1;
    if (epoch <= link->epoch || link->has_bye)
        epoch = 0;
    if (epoch > 0 && link->fd >= 0) {
        drop_link(link);
        if (!connect_again(link, "the peer connects again", 0))
            link->broken_since_ns = gyre_now_ns();
    }
    for (uint32_t i = 0; i < link->n_fifos && epoch > 0; i++) {
        struct socket_fifo *fifo = &link->peer->fifos[socket_nth_fifo(link, i)];
        /* As in batch_fifo() (socket_send.c). */
        fifo->n_returned = gyre_min_u64(
            gyre_load_acquire_u64(&fifo->recv.credit->head[fifo->proto]), fifo->n_arrived);
        counts_out[i] = (struct socket_counts){fifo->n_arrived, fifo->n_returned};
    }
    if (epoch > 0)
        link->epoch = epoch;
    gyre_proxy_resume(link->thread->proxy);
    return epoch;
}

/* False: impossible for the peer. */
static bool rewind_link(struct socket_link *link, const struct socket_counts *theirs)
{
    for (uint32_t i = 0; i < link->n_fifos; i++) {
        const struct socket_fifo *fifo = &link->peer->fifos[socket_nth_fifo(link, i)];
        if (theirs[i].arrived > fifo->n_batched || theirs[i].head > theirs[i].arrived ||
            theirs[i].head < fifo->n_credited)
            return false;
    }
    for (uint32_t i = 0; i < link->n_fifos; i++) {
        struct socket_fifo *fifo = &link->peer->fifos[socket_nth_fifo(link, i)];
        fifo->n_batched = fifo->n_sent = theirs[i].arrived;
        fifo->n_credited = theirs[i].head;
        fifo->n_announced = fifo->n_arrived; /* a slot that had begun comes again whole */
        socket_release_slots(link, fifo);
    }
    link->is_ending = false;
    link->staged_bytes = link->n_arrivals = link->first_arrival = 0;
    link->n_following = link->line_arrival_bytes = 0;
    socket_clear_batch(link);
    return true;
}

gyre_status socket_adopt(struct socket_link *link, int fd, uint32_t epoch,
                         const struct socket_counts *theirs)
{
    gyre_status status = GYRE_SUCCESS;
    char address[64];
    gyre_proxy_pause(link->thread->proxy);
    if (link->epoch != epoch || link->fd >= 0) {
        status = gyre_fail(GYRE_ERROR_REMOTE, "a later connection has come");
    } else if (!rewind_link(link, theirs)) {
        blame(link, GYRE_ERROR_REMOTE, "connected again with counts that cannot be");
        status = gyre_fail(GYRE_ERROR_REMOTE, "counts that cannot be");
    } else {
        link->fd = fd;
        status = socket_watch_link(link);
        if (status != GYRE_SUCCESS)
            link->fd = -1;
    }
    if (status == GYRE_SUCCESS) {
        const struct socket_peer *peer = link->peer;
        GYRE_WARN(
            "NET/Socket : connection %u of %u to rank %d (%s) over %s at %s broke: %s. It runs "
            "again after %.3f s",
            link->index + 1, peer->n_links, peer->rank,
            peer->transport->config.infos[peer->rank].host_name, link->interface,
            gyre_sock_to_text(&link->remote, address, sizeof(address)), link->broken_why,
            (double)(gyre_now_ns() - link->broken_since_ns) / 1e9);
        gyre_transport_tell(&peer->transport->config, peer->rank, GYRE_CONNECTION_RUNS,
                            link->interface);
        link->broken_since_ns = 0;
    }
    gyre_proxy_resume(link->thread->proxy);
    if (status == GYRE_SUCCESS)
        gyre_proxy_wake(link->thread->proxy);
    return status;
}

static bool resume_link(struct setup *setup, struct socket_link *link)
{
    struct socket_peer *peer = link->peer;
    char whys[600];
    bool is_limited = false;
    gyre_proxy_pause(link->thread->proxy);
    const uint64_t broken_since_ns = link->broken_since_ns;
    gyre_proxy_resume(link->thread->proxy);
    if (broken_since_ns == 0 || gyre_fault_is_raised(setup->transport->config.fault))
        return false;
    if (peer->rank > setup->transport->config.rank &&
        socket_try_addresses(setup, peer, link->index, TRY_NS, &is_limited, whys, sizeof(whys)) ==
            GYRE_SUCCESS)
        return false;
    const uint64_t now_ns = gyre_now_ns();
    const bool is_refused =
        gyre_sock_is_refused(&peer->addresses[peer->preferred], now_ns + TRY_NS / 10);
    gyre_proxy_pause(link->thread->proxy);
    if (!is_refused)
        link->refused_since_ns = 0;
    else if (link->refused_since_ns == 0)
        link->refused_since_ns = now_ns;
    const bool is_broken = link->broken_since_ns != 0;
    if (is_broken && ((is_refused && now_ns - link->refused_since_ns >= REFUSED_MAX_NS) ||
                      now_ns - broken_since_ns >= BROKEN_MAX_NS)) {
        const uint64_t broken_ns = now_ns - broken_since_ns;
        char words[320];
        snprintf(words, sizeof(words), "%s; it could not be connected again for %.1f s",
                 link->broken_why, (double)broken_ns / 1e9);
        blame(link, GYRE_ERROR_REMOTE, words);
    }
    gyre_proxy_resume(link->thread->proxy);
    return is_broken;
}

void socket_resume_links(struct setup *setup)
{
    const struct socket_transport *transport = setup->transport;
    const struct timespec retry_nap = {0, SOCKET_RETRY_NAP_NS};
    pthread_mutex_lock(&setup->lock);
    while (!setup->stops) {
        if (!setup->has_broken || !setup->is_running) {
            pthread_cond_wait(&setup->changed, &setup->lock);
            continue;
        }
        setup->has_broken = false;
        pthread_mutex_unlock(&setup->lock);
        bool has_broken = false;
        for (int i = 0; i < transport->n_peers; i++)
            for (uint32_t l = 0; l < transport->peers[i].n_links; l++)
                has_broken = resume_link(setup, &transport->peers[i].links[l]) || has_broken;
        if (has_broken)
            nanosleep(&retry_nap, NULL);
        pthread_mutex_lock(&setup->lock);
        setup->has_broken = setup->has_broken || has_broken;
        gyre_store_relaxed_u32(&setup->transport->base.is_moving, setup->has_broken);
    }
    pthread_mutex_unlock(&setup->lock);
}
