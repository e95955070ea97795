/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel saw the round trip while ranks authenticated each other.
 *
 * The rate is measured where no interface tells it truly (loopback, veth, tunnels, virtual
 * machines). The lowest rank of each host sends for a few milliseconds to that of the next host,
 * over all connections, all hosts at once.
 *
 *   receiver   one byte on connection 0: it has connected to all its peers, and reads from now on
 *   sender     chunks on all connections, of which the first byte says whether one more follows
 */
#include "transport/socket/socket.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

void socket_measure_round_trip(struct socket_transport *transport)
{
    const struct gyre_peer_info *infos = transport->config.infos;
    uint64_t least_ns = 0;
    for (int i = 0; i < transport->n_peers; i++) {
        const struct socket_peer *peer = &transport->peers[i];
        if (infos[peer->rank].host_hash == infos[transport->config.rank].host_hash)
            continue;
        for (uint32_t l = 0; l < peer->n_links; l++) {
            /* 0 = unknown. */
            const int fd = peer->links[l].fd;
            struct tcp_info info; /* the C library's lacks the shortest round trip */
            socklen_t n_bytes = sizeof(info);
            memset(&info, 0, sizeof(info));
            const uint64_t ns =
                fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n_bytes) != 0 ||
                        n_bytes <
                            offsetof(struct tcp_info, tcpi_min_rtt) + sizeof(info.tcpi_min_rtt) ||
                        info.tcpi_min_rtt == UINT32_MAX
                    ? 0
                    : info.tcpi_min_rtt * 1000ULL;
            if (ns > 0 && (least_ns == 0 || ns < least_ns))
                least_ns = ns;
        }
    }
    transport->wire.round_trip_ns = least_ns;
}

/* The sender sends for BURST_NS, or up to MOST_NS if ENOUGH_BYTES are not sent by then: a slow
 * network, or a thread that waited for a processor. */
#define BURST_NS     6000000ULL
#define MOST_NS      15000000ULL
#define ENOUGH_BYTES (4 << 20)
/* Not counted: TCP's window is small, and a traffic shaper lets a few packets pass at once. */
#define WARM_NS 2000000ULL
/* The best of several windows counts, because a thread that waits for its processor counts too
 * little. A window begins when all data were read, because data that had waited would make it too
 * fast, or at any time if the receiver is the limit. */
#define MIN_SPAN_NS  1000000ULL
#define WINDOW_BYTES (512 << 10)

#define CHUNK_BYTES  32768
#define CHECK_NS     100000000ULL
#define CHECK_MS     100
/* The cause may come after the connections end. */
#define CAUSE_NS     200000000ULL
#define CAUSE_NAP_NS 5000000L

/* No frame of the transport begins with one of these. */
enum { MORE_FOLLOWS = 0xa1, LAST_CHUNK = 0xa2, READY = 0xa3 };

struct flow {
    uint32_t left_bytes; /* of a chunk; 0 = between chunks */
    bool is_ended;
    bool is_drained;
};

struct span {
    uint64_t begin_ns, last_ns;
    uint64_t n_bytes;
};

struct burst {
    struct socket_transport *transport;
    struct socket_peer *to; /* NULL = none */
    struct socket_peer *from;
    struct flow sends[SOCKET_MAX_LINKS];
    struct flow receives[SOCKET_MAX_LINKS];
    unsigned char *sent;
    unsigned char *received;
    uint64_t began_ns; /* 0 = `to` is not ready */
    uint64_t sent_bytes;
    uint64_t first_ns;
    struct span all;
    struct span window;
    uint64_t best_mbit_per_s; /* 0 = no window is complete */
    bool was_drained;
};

static bool is_first_of_host(const struct gyre_peer_info *infos, int rank)
{
    for (int lower = 0; lower < rank; lower++)
        if (infos[lower].host_hash == infos[rank].host_hash)
            return false;
    return true;
}

/* The first rank of the next host (1) or of the one before (-1), in a circle. */
static int neighbour(const struct gyre_transport_config *config, int step)
{
    const int n = config->n_ranks;
    int rank = config->rank;
    do
        rank = (rank + step + n) % n;
    while (rank != config->rank && !is_first_of_host(config->infos, rank));
    return rank;
}

/* NULL = the rate is known. Both ranks agree. */
static struct socket_peer *find_partner(struct socket_transport *transport, int rank)
{
    const struct gyre_peer_info *infos = transport->config.infos;
    if (gyre_peer_info_tells_rate(&infos[rank]) &&
        gyre_peer_info_tells_rate(&infos[transport->config.rank]))
        return NULL;
    for (int i = 0; i < transport->n_peers; i++)
        if (transport->peers[i].rank == rank)
            return &transport->peers[i];
    return NULL;
}

static gyre_status name_peer(gyre_status status, const struct socket_peer *peer)
{
    return gyre_fail_context(status, "rank %d (%s) over socket, measuring the network", peer->rank,
                             peer->transport->config.infos[peer->rank].host_name);
}

static gyre_status fail_peer(const struct socket_peer *peer, bool has_ended)
{
    return name_peer(gyre_fail(GYRE_ERROR_REMOTE, has_ended ? "it closed the connection"
                                                            : "it gave up or does not measure"),
                     peer);
}

static gyre_status fail_call(const struct socket_peer *peer, const char *call)
{
    if (errno == ECONNRESET || errno == EPIPE)
        return fail_peer(peer, true);
    return name_peer(gyre_fail_errno(errno, "%s", call), peer);
}

static gyre_status send_some(struct burst *burst, uint32_t link, uint64_t now_ns)
{
    struct flow *flow = &burst->sends[link];
    const bool is_new = flow->left_bytes == 0;
    const uint64_t took_ns = now_ns - burst->began_ns;
    const bool is_last = is_new && (took_ns >= MOST_NS ||
                                    (took_ns >= BURST_NS && burst->sent_bytes >= ENOUGH_BYTES));
    const uint32_t n_bytes = is_last ? 1 : is_new ? CHUNK_BYTES : flow->left_bytes;
    burst->sent[0] = is_last ? LAST_CHUNK : MORE_FOLLOWS;
    const ssize_t n = send(burst->to->links[link].fd, burst->sent + (is_new ? 0 : 1), n_bytes,
                           MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? GYRE_SUCCESS : fail_call(burst->to, "send");
    burst->sent_bytes += (uint64_t)n;
    flow->is_ended = is_last && n == 1;
    flow->left_bytes = n_bytes - (uint32_t)n;
    return GYRE_SUCCESS;
}

/* 0 = the span is too short. Else at least 1: unknown would stand for a fast network. */
static uint64_t mbit_per_s_of(const struct span *span)
{
    const uint64_t took_ns = span->last_ns - span->begin_ns;
    if (span->begin_ns == 0 || took_ns < MIN_SPAN_NS || span->n_bytes == 0)
        return 0;
    return gyre_max_u64(1, span->n_bytes * 8000 / took_ns);
}

static void count(struct burst *burst, uint64_t n_bytes, uint64_t now_ns)
{
    struct span *window = &burst->window;
    bool has_drained = true;
    for (uint32_t l = 0; l < burst->from->n_links; l++)
        has_drained = has_drained && (burst->receives[l].is_drained || burst->receives[l].is_ended);
    burst->was_drained = burst->was_drained || has_drained;
    if (burst->first_ns == 0)
        burst->first_ns = now_ns;
    struct span *const spans[] = {&burst->all, window};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(spans); i++)
        if (spans[i]->begin_ns != 0) {
            spans[i]->n_bytes += n_bytes;
            spans[i]->last_ns = now_ns;
        }
    if (now_ns - burst->first_ns < WARM_NS)
        return;
    if (burst->all.begin_ns == 0)
        burst->all = (struct span){.begin_ns = now_ns, .last_ns = now_ns};
    if (window->begin_ns != 0 &&
        (window->n_bytes < WINDOW_BYTES || now_ns - window->begin_ns < MIN_SPAN_NS))
        return;
    burst->best_mbit_per_s = gyre_max_u64(burst->best_mbit_per_s, mbit_per_s_of(window));
    *window = (struct span){.begin_ns = has_drained || !burst->was_drained ? now_ns : 0};
}

static gyre_status receive(struct burst *burst, uint32_t link, uint32_t n_bytes, uint32_t *n_out)
{
    const ssize_t n = recv(burst->from->links[link].fd, burst->received, n_bytes, MSG_DONTWAIT);
    *n_out = 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        burst->receives[link].is_drained = true;
        return GYRE_SUCCESS;
    }
    if (n <= 0)
        return n == 0 ? fail_peer(burst->from, true) : fail_call(burst->from, "recv");
    if (n_bytes > 1)
        burst->receives[link].is_drained = (uint32_t)n < n_bytes;
    count(burst, (uint64_t)n, gyre_now_ns());
    *n_out = (uint32_t)n;
    return GYRE_SUCCESS;
}

/* Leaves the next chunk's first byte. */
static gyre_status receive_some(struct burst *burst, uint32_t link)
{
    struct flow *flow = &burst->receives[link];
    uint32_t n;
    if (flow->left_bytes == 0) {
        GYRE_TRY(receive(burst, link, 1, &n));
        if (n == 0)
            return GYRE_SUCCESS;
        flow->is_ended = burst->received[0] == LAST_CHUNK;
        if (flow->is_ended)
            return GYRE_SUCCESS;
        if (burst->received[0] != MORE_FOLLOWS)
            return fail_peer(burst->from, false);
        flow->left_bytes = CHUNK_BYTES - 1;
    }
    GYRE_TRY(receive(burst, link, flow->left_bytes, &n));
    flow->left_bytes -= n;
    return GYRE_SUCCESS;
}

static bool wait_for_links(const struct burst *burst)
{
    struct pollfd fds[2 * SOCKET_MAX_LINKS];
    nfds_t n = 0;
    for (uint32_t l = 0; burst->to != NULL && l < burst->to->n_links; l++) {
        const bool waits = burst->began_ns == 0;
        if (waits ? l == 0 : !burst->sends[l].is_ended)
            fds[n++] =
                (struct pollfd){.fd = burst->to->links[l].fd, .events = waits ? POLLIN : POLLOUT};
    }
    for (uint32_t l = 0; burst->from != NULL && l < burst->from->n_links; l++)
        if (!burst->receives[l].is_ended && (burst->to != burst->from || burst->began_ns != 0))
            fds[n++] = (struct pollfd){.fd = burst->from->links[l].fd, .events = POLLIN};
    if (n > 0)
        poll(fds, n, CHECK_MS);
    return n > 0;
}

static gyre_status step(struct burst *burst)
{
    if (burst->to != NULL && burst->began_ns == 0) {
        unsigned char byte = 0;
        const ssize_t n = recv(burst->to->links[0].fd, &byte, 1, MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return fail_call(burst->to, "recv");
        if (n == 0 || (n == 1 && byte != READY))
            return fail_peer(burst->to, n == 0);
        if (n == 1)
            burst->began_ns = gyre_now_ns();
    }
    const uint64_t now_ns = gyre_now_ns();
    for (uint32_t l = 0; burst->to != NULL && l < burst->to->n_links; l++)
        if (burst->began_ns != 0 && !burst->sends[l].is_ended)
            GYRE_TRY(send_some(burst, l, now_ns));
    for (uint32_t l = 0; burst->from != NULL && l < burst->from->n_links; l++)
        if (!burst->receives[l].is_ended && (burst->to != burst->from || burst->began_ns != 0))
            GYRE_TRY(receive_some(burst, l));
    return GYRE_SUCCESS;
}

static gyre_status run(struct burst *burst, uint64_t deadline_ns)
{
    const unsigned char ready = READY;
    uint64_t checked_ns = gyre_now_ns();
    /* A new connection has room for a byte. */
    if (burst->from != NULL &&
        send(burst->from->links[0].fd, &ready, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
        return fail_call(burst->from, "send");
    while (wait_for_links(burst)) {
        const uint64_t now_ns = gyre_now_ns();
        if (now_ns >= deadline_ns) {
            const struct socket_peer *late = burst->to;
            for (uint32_t l = 0; burst->from != NULL && l < burst->from->n_links; l++)
                if (!burst->receives[l].is_ended && (burst->to == NULL || burst->began_ns != 0))
                    late = burst->from;
            return name_peer(gyre_fail(GYRE_ERROR_TIMEOUT, "it does not go on"), late);
        }
        if (now_ns - checked_ns >= CHECK_NS) {
            GYRE_TRY(gyre_transport_check(&burst->transport->config));
            checked_ns = now_ns;
        }
        GYRE_TRY(step(burst));
    }
    return GYRE_SUCCESS;
}

/* A peer whose init fails closes its connections; its cause says more. Returns `status` if none
 * comes. */
static gyre_status find_cause(const struct gyre_transport_config *config, gyre_status status)
{
    const struct timespec nap = {.tv_nsec = CAUSE_NAP_NS};
    const uint64_t deadline_ns = gyre_now_ns() + CAUSE_NS;
    char ended[GYRE_CAUSE_MAX_BYTES];
    snprintf(ended, sizeof(ended), "%s", gyre_cause());
    while (gyre_now_ns() < deadline_ns) {
        GYRE_TRY(gyre_transport_check(config));
        nanosleep(&nap, NULL);
    }
    gyre_set_cause(ended);
    return status;
}

gyre_status socket_measure_rate(struct socket_transport *transport, uint64_t deadline_ns)
{
    const struct gyre_transport_config *config = &transport->config;
    if (gyre_param_number(config->params, GYRE_PARAM_NET_RATE) > 0 ||
        !is_first_of_host(config->infos, config->rank))
        return GYRE_SUCCESS;
    const int next = neighbour(config, 1);
    if (next == config->rank)
        return GYRE_SUCCESS;
    struct burst *burst = calloc(1, sizeof(*burst) + 2 * CHUNK_BYTES);
    if (burst == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "measuring the network");
    burst->transport = transport;
    burst->to = find_partner(transport, next);
    burst->from = find_partner(transport, neighbour(config, -1));
    burst->sent = (unsigned char *)(burst + 1);
    burst->received = burst->sent + CHUNK_BYTES;
    gyre_status status = run(burst, deadline_ns);
    if (status == GYRE_ERROR_REMOTE)
        status = find_cause(config, status);
    if (status == GYRE_SUCCESS)
        transport->wire.mbit_per_s =
            burst->best_mbit_per_s > 0 ? burst->best_mbit_per_s : mbit_per_s_of(&burst->all);
    free(burst);
    return status;
}
