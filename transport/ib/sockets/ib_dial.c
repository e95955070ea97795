/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread makes the connections in place of rails: the lower rank connects, the higher accepts.
 */
#include "transport/ib/ib_path.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELLO_MAGIC  0x6c69617274756f77ULL
#define CONNECT_NS   300000000ULL
#define HANDSHAKE_NS 1000000000ULL
#define ACCEPT_MS    10
/* Then this rank dials again: each stranger may take HANDSHAKE_NS. */
#define ACCEPTS_PER_TURN 16
#define MAKE_NS          5000000000ULL
/* A false alarm only costs time, because the connection is made again. */
#define SILENT_MS 10000

/* A wire format. */
struct hello {
    uint64_t magic;
    uint32_t from_rank;
    uint32_t to_rank;
    uint32_t epoch;
    uint32_t attempt; /* an earlier one never replaces a later one */
};

static bool adopt(struct gyre_ib_transport *ib, struct gyre_ib_socket *socket,
                  const struct hello *hello, int fd)
{
    static const int silent_ms = SILENT_MS;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof(silent_ms));
    pthread_mutex_lock(&ib->mail_lock);
    const bool is_taken = socket->is_wanted && socket->epoch == hello->epoch &&
                          hello->attempt >= socket->attempt && !ib->dialer.stops;
    if (is_taken) {
        if (socket->made_fd >= 0)
            gyre_sock_close(socket->made_fd);
        socket->made_fd = fd;
        socket->attempt = hello->attempt;
        gyre_store_release_u32(&ib->needs_move, 1);
        if (ib->proxy != NULL)
            gyre_proxy_wake(ib->proxy);
    }
    pthread_mutex_unlock(&ib->mail_lock);
    return is_taken;
}

static gyre_status introduce(struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                             const struct hello *mine, int fd)
{
    const uint64_t deadline_ns = gyre_now_ns() + HANDSHAKE_NS;
    struct hello theirs, expected = *mine;
    expected.from_rank = mine->to_rank;
    expected.to_rank = mine->from_rank;
    GYRE_TRY(ib->config.authenticate(fd, ib->config.secret, false, deadline_ns));
    GYRE_TRY(gyre_sock_send(fd, mine, sizeof(*mine), deadline_ns));
    GYRE_TRY(gyre_sock_recv(fd, &theirs, sizeof(theirs), deadline_ns));
    if (memcmp(&theirs, &expected, sizeof(expected)) != 0 ||
        !adopt(ib, peer->move.socket, mine, fd))
        return gyre_fail(GYRE_ERROR_REMOTE, "rank %u answered as rank %u, epoch %u", mine->to_rank,
                         theirs.from_rank, theirs.epoch);
    return GYRE_SUCCESS;
}

static void dial(struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer)
{
    struct gyre_ib_socket *socket = peer->move.socket;
    if (socket == NULL || peer->rank < ib->config.rank)
        return;
    for (int i = 0; i < socket->n_addresses; i++) {
        int fd = -1;
        pthread_mutex_lock(&ib->mail_lock);
        const bool is_due = socket->is_wanted && socket->made_fd < 0 && !ib->dialer.stops;
        const struct hello hello = {.magic = HELLO_MAGIC,
                                    .from_rank = (uint32_t)ib->config.rank,
                                    .to_rank = (uint32_t)peer->rank,
                                    .epoch = socket->epoch,
                                    .attempt = is_due ? ++socket->attempt : 0};
        pthread_mutex_unlock(&ib->mail_lock);
        if (!is_due)
            return;
        gyre_status status =
            gyre_sock_connect(&socket->addresses[i], gyre_now_ns() + CONNECT_NS, &fd);
        if (status == GYRE_SUCCESS) {
            status = introduce(ib, peer, &hello, fd);
            if (status != GYRE_SUCCESS)
                gyre_sock_close(fd);
        }
        if (status == GYRE_SUCCESS)
            return;
        GYRE_INFO(NET, "NET/IB : no socket to rank %d: %s", peer->rank, gyre_cause());
        pthread_mutex_lock(&ib->mail_lock);
        snprintf(socket->cause, sizeof(socket->cause), "%s", gyre_cause());
        pthread_mutex_unlock(&ib->mail_lock);
    }
}

static gyre_status take_dialer(struct gyre_ib_transport *ib, int fd)
{
    const uint64_t deadline_ns = gyre_now_ns() + HANDSHAKE_NS;
    struct hello hello;
    struct gyre_ib_socket *socket = NULL;
    GYRE_TRY(ib->config.authenticate(fd, ib->config.secret, true, deadline_ns));
    GYRE_TRY(gyre_sock_recv(fd, &hello, sizeof(hello), deadline_ns));
    for (int i = 0; i < ib->config.n_peers; i++)
        if ((uint32_t)ib->peers[i].rank == hello.from_rank && ib->peers[i].rank < ib->config.rank)
            socket = ib->peers[i].move.socket;
    if (socket == NULL || hello.magic != HELLO_MAGIC || hello.to_rank != (uint32_t)ib->config.rank)
        return gyre_fail(GYRE_ERROR_REMOTE, "rank %u asks for rank %u", hello.from_rank,
                         hello.to_rank);
    struct hello answer = hello;
    answer.from_rank = hello.to_rank;
    answer.to_rank = hello.from_rank;
    pthread_mutex_lock(&ib->mail_lock);
    const bool is_wanted = socket->is_wanted && socket->epoch == hello.epoch;
    pthread_mutex_unlock(&ib->mail_lock);
    if (!is_wanted)
        return gyre_fail(GYRE_ERROR_REMOTE, "rank %u asks for epoch %u", hello.from_rank,
                         hello.epoch);
    GYRE_TRY(gyre_sock_send(fd, &answer, sizeof(answer), deadline_ns));
    return adopt(ib, socket, &hello, fd)
               ? GYRE_SUCCESS
               : gyre_fail(GYRE_ERROR_REMOTE, "rank %u is late", hello.from_rank);
}

static bool stops(struct gyre_ib_transport *ib)
{
    GYRE_LOCKED(&ib->mail_lock);
    return ib->dialer.stops;
}

static void accept_dialers(struct gyre_ib_transport *ib, int wait_ms)
{
    struct pollfd watched[GYRE_SOCK_LIST_MAX];
    for (int i = 0; i < ib->listeners.n; i++)
        watched[i] = (struct pollfd){.fd = ib->listeners.fds[i], .events = POLLIN};
    if (poll(watched, (nfds_t)ib->listeners.n, wait_ms) <= 0)
        return;
    for (int i = 0; i < ib->listeners.n; i++)
        for (int n = 0, fd; watched[i].revents != 0 && n < ACCEPTS_PER_TURN && !stops(ib); n++) {
            if (gyre_sock_accept(watched[i].fd, gyre_now_ns(), &fd) != GYRE_SUCCESS)
                break;
            if (take_dialer(ib, fd) == GYRE_SUCCESS)
                continue;
            GYRE_INFO(NET, "NET/IB : dropped a socket: %s", gyre_cause());
            gyre_sock_close(fd);
        }
}

static void *work(void *argument)
{
    struct gyre_ib_transport *ib = argument;
    struct gyre_ib_worker *dialer = &ib->dialer;
    pthread_mutex_lock(&ib->mail_lock);
    while (!dialer->stops) {
        bool is_wanted = false;
        for (int i = 0; i < ib->config.n_peers; i++) {
            const struct gyre_ib_socket *socket = ib->peers[i].move.socket;
            is_wanted = is_wanted || (socket != NULL && socket->is_wanted);
        }
        if (!is_wanted) {
            pthread_cond_wait(&dialer->changed, &ib->mail_lock);
            continue;
        }
        pthread_mutex_unlock(&ib->mail_lock);
        /* A peer that dials this rank waits for at most HANDSHAKE_NS. */
        for (int i = 0; i < ib->config.n_peers; i++) {
            dial(ib, &ib->peers[i]);
            accept_dialers(ib, 0);
        }
        accept_dialers(ib, ACCEPT_MS);
        pthread_mutex_lock(&ib->mail_lock);
    }
    pthread_mutex_unlock(&ib->mail_lock);
    return NULL;
}

void gyre_ib_sockets_open(struct gyre_ib_transport *ib)
{
    if (!ib->config.may_use_sockets || ib->config.authenticate == NULL ||
        ib->recv_gdr != GYRE_IB_GDR_NONE || ib->send_gdr != GYRE_IB_GDR_NONE)
        return;
    if (gyre_sock_listen_all(ib->config.params, ib->config.rendezvous, &ib->listeners,
                             &ib->socket_list) != GYRE_SUCCESS)
        GYRE_INFO(NET, "NET/IB : no sockets in place of rails: %s", gyre_cause());
}

gyre_status gyre_ib_socket_open(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                                const struct gyre_sock_list *theirs)
{
    struct gyre_sock_address addresses[GYRE_SOCK_LIST_MAX];
    int n = 0;
    if (!peer->move.is_possible || ib->listeners.n == 0 ||
        gyre_sock_list_targets(theirs, addresses, &n) != GYRE_SUCCESS || n == 0)
        return GYRE_SUCCESS;
    struct gyre_ib_socket *socket = calloc(1, sizeof(*socket));
    unsigned char *lines = calloc(1, ib->config.spec.net_line_bytes + sizeof(uint64_t));
    if (socket == NULL || lines == NULL) {
        free(socket);
        free(lines);
        return gyre_fail_errno(ENOMEM, "a socket's buffers");
    }
    memcpy(socket->addresses, addresses, sizeof(addresses));
    socket->n_addresses = n;
    socket->lines = lines;
    socket->fd = socket->made_fd = -1;
    peer->move.socket = socket;
    return GYRE_SUCCESS;
}

void gyre_ib_sockets_close(struct gyre_ib_transport *ib)
{
    if (ib->dialer.is_running) {
        pthread_mutex_lock(&ib->mail_lock);
        ib->dialer.stops = true;
        pthread_cond_broadcast(&ib->dialer.changed);
        pthread_mutex_unlock(&ib->mail_lock);
        pthread_join(ib->dialer.thread, NULL);
    }
    for (int i = 0; ib->peers != NULL && i < ib->config.n_peers; i++) {
        struct gyre_ib_socket *socket = ib->peers[i].move.socket;
        if (socket == NULL)
            continue;
        if (socket->made_fd >= 0)
            gyre_sock_close(socket->made_fd);
        gyre_ib_socket_drop(ib, socket);
        free(socket->lines);
        free(socket);
    }
    gyre_sock_close_all(&ib->listeners);
}

static bool want(struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer)
{
    struct gyre_ib_socket *socket = peer->move.socket;
    if (gyre_ib_worker_start(ib, &ib->dialer, work, "sockets") != GYRE_SUCCESS) {
        gyre_ib_raise(ib, GYRE_ERROR_SYSTEM, gyre_cause());
        return false;
    }
    pthread_mutex_lock(&ib->mail_lock);
    if (!socket->is_wanted)
        pthread_cond_broadcast(&ib->dialer.changed);
    socket->is_wanted = true;
    socket->epoch = peer->move.epoch;
    pthread_mutex_unlock(&ib->mail_lock);
    return true;
}

bool gyre_ib_socket_make(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    return peer->rank > ib->config.rank || want(ib, peer);
}

bool gyre_ib_socket_connect(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, bool has_rails,
                            uint64_t now_ns)
{
    struct gyre_ib_move *move = &peer->move;
    if (!want(ib, peer))
        return false;
    pthread_mutex_lock(&ib->mail_lock);
    const bool is_made = move->socket->made_fd >= 0;
    pthread_mutex_unlock(&ib->mail_lock);
    if (move->socket->tried_ns == 0)
        move->socket->tried_ns = now_ns;
    if (!is_made && has_rails && now_ns - move->socket->tried_ns >= MAKE_NS) {
        move->avoids_socket = true;
        gyre_ib_want_epoch(ib, move, "no socket could be made");
    }
    return is_made;
}

void gyre_ib_socket_why(struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                        char *text_out)
{
    const struct gyre_ib_socket *socket = peer->move.socket;
    text_out[0] = '\0';
    if (peer->move.used != GYRE_IB_SOCKETS)
        return;
    pthread_mutex_lock(&ib->mail_lock);
    snprintf(text_out, GYRE_IB_SOCKET_CAUSE_BYTES, "; sockets: %s",
             socket->cause[0] != '\0' ? socket->cause : "the peer has not connected");
    pthread_mutex_unlock(&ib->mail_lock);
}
