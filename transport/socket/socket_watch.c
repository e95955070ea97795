/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds connections on which the other end has fallen silent. A firewall that lost its state, or
 * one of several network paths, can drop a single connection while the host and the health link
 * live. The kernel alone would go on sending for a quarter of an hour. So this file asks the kernel
 * a few times a second, for each connection, whether sent data wait for an acknowledgement, and
 * since when.
 *
 * The peer's kernel acknowledges data, not the peer's program. So a peer that is slow or stopped is
 * no failure: its kernel acknowledges data while there is room, and then each probe of the full
 * window.
 * TCP_USER_TIMEOUT cannot tell the two apart: since Linux 5.11 it also ends a connection whose
 * window stays full although every probe is answered.
 */
#include "transport/socket/socket.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#define WATCH_NS 250000000ULL
/* Together with MIN_TRIES retransmissions (1.4 s) and one period between two looks this is at most
 * 10 s. If a whole host is dead, the health link to it ends earlier, and its message names that
 * cause. */
#define SILENT_NS 7800000000ULL
/* The kernel ends an idle connection later than this, so that the user reads the message below. */
#define KEEPALIVE_PROBES 12

/* How many unanswered retransmissions or probes make a connection dead. After a long time with a
 * full window the kernel probes once in two minutes, so the loss of one such probe proves
 * nothing. */
#define MIN_TRIES 3

/* How long the kernel has heard nothing on a link. An idle connection is heard every 2 s, because
 * its keepalive asks so often (core/foundation/base/sock.c). */
struct silence {
    uint32_t n_tries;  /* retransmissions and probes without an answer */
    uint64_t heard_ns; /* when the last acknowledgement or the last data arrived */
};

static uint64_t ago(uint64_t now_ns, uint32_t ms)
{
    return now_ns - gyre_min_u64(now_ns, ms * 1000000ULL);
}

static struct silence ask_kernel(const struct socket_link *link, uint64_t now_ns)
{
    struct tcp_info info;
    socklen_t n_info = sizeof(info);
    memset(&info, 0, sizeof(info));
    if (getsockopt(link->fd, IPPROTO_TCP, TCP_INFO, &info, &n_info) != 0)
        return (struct silence){0};
    return (struct silence){
        .n_tries = info.tcpi_unacked > 0 ? info.tcpi_retransmits : info.tcpi_probes,
        .heard_ns = ago(now_ns, gyre_min_u32(info.tcpi_last_ack_recv, info.tcpi_last_data_recv)),
    };
}

static void blame_silence(const struct socket_link *link, uint64_t silent_ns)
{
    const struct socket_peer *peer = link->peer;
    const struct gyre_transport_config *config = &peer->transport->config;
    const struct gyre_peer_info *info = &config->infos[peer->rank];
    char text[GYRE_CAUSE_MAX_BYTES];
    char address[64];
    snprintf(text, sizeof(text),
             "rank %d: no acknowledgement from rank %d (%s, pid %u, %s) for %.1f s over socket %s "
             "(connection %u of %u), while its health link shows no failure: a firewall or one "
             "network path drops this connection",
             config->rank, peer->rank, info->host_name, info->pid,
             gyre_sock_to_text(&link->remote, address, sizeof(address)), (double)silent_ns / 1e9,
             link->interface, link->index + 1, peer->n_links);
    gyre_fault_raise(config->fault, GYRE_ERROR_REMOTE, text);
}

static void watch_one(struct socket_link *link, uint64_t now_ns)
{
    const struct silence silence = ask_kernel(link, now_ns);
    if (silence.n_tries >= MIN_TRIES && now_ns - silence.heard_ns >= SILENT_NS)
        blame_silence(link, now_ns - silence.heard_ns);
}

gyre_status socket_watch_begin(const struct socket_link *link)
{
    const int n_probes = KEEPALIVE_PROBES;
    if (setsockopt(link->fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof(n_probes)) != 0)
        return gyre_fail_errno(errno, "setsockopt(TCP_KEEPCNT)");
    return GYRE_SUCCESS;
}

void socket_watch(struct socket_thread *thread)
{
    const struct socket_transport *transport = thread->transport;
    const uint64_t now_ns = gyre_now_ns();
    if (now_ns - thread->watched_ns < WATCH_NS)
        return;
    thread->watched_ns = now_ns;
    for (int i = 0; i < transport->n_peers; i++)
        for (uint32_t l = thread->index; l < transport->peers[i].n_links; l += transport->n_threads)
            if (transport->peers[i].links[l].fd >= 0)
                watch_one(&transport->peers[i].links[l], now_ns);
}
