/* SPDX-License-Identifier: Apache-2.0
 *
 * Set-up of the socket transport: of two ranks, the lower one connects (socket_call.c) and the
 * higher one accepts. One thread connects, a second one accepts, and the calling thread checks that
 * all ranks are alive.
 * A connection is called a joiner until its other end has proved that it knows the secret and told
 * its rank. Each joiner has a thread and a short deadline of its own, so a stranger delays no rank.
 * When there are too many joiners, the oldest connection is closed. A rank whose connection is
 * closed in this way tries again.
 */
#include "transport/socket/socket.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* The longest time until a waiting rank notices the end of another rank. */
#define CHECK_NS           100000000ULL
#define RETRY_NAP_NS       10000000L
#define REFUSED_NS         1000000000ULL
#define MAX_JOINERS        128
#define JOINER_STACK_BYTES (256 << 10)

struct joiner {
    struct joiner *next; /* newest first */
    struct reception *reception;
    pthread_t thread;
    int fd;
    bool is_done; /* the thread ends; under the reception's lock */
};

/* The thread that accepts connections from lower ranks. */
struct reception {
    struct socket_transport *transport;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int stop_fd;     /* eventfd */
    int n_missing;   /* links that are not connected yet; under lock */
    int n_strangers; /* under lock */
    char refusal[GYRE_CAUSE_MAX_BYTES /
                 2];      /* why nothing can be accepted, "" = it can; under lock */
    uint64_t refused_ns;  /* since when accepting fails, 0 = it works; only the thread uses it */
    struct joiner *first; /* only the thread uses it */
};

/* ---- accepting ---------------------------------------------------------------------------- */

/* Finds the link that an authenticated joiner asks for. Returns NULL if there is no such link. */
static struct socket_link *find_link(struct socket_transport *transport,
                                     const struct socket_hello *hello)
{
    for (int i = 0; i < transport->n_peers; i++) {
        struct socket_peer *peer = &transport->peers[i];
        if ((uint32_t)peer->rank != hello->from_rank || peer->rank > transport->config.rank)
            continue;
        if (hello->link >= peer->n_links)
            return NULL;
        struct socket_hello expected = socket_make_hello(peer, hello->link);
        expected.from_rank = hello->from_rank;
        expected.to_rank = (uint32_t)transport->config.rank;
        return memcmp(hello, &expected, sizeof(expected)) == 0 ? &peer->links[hello->link] : NULL;
    }
    return NULL;
}

/* Authenticates a joiner and reads its hello. On success the link owns its descriptor. */
static gyre_status receive_joiner(struct joiner *joiner, uint64_t deadline_ns)
{
    struct reception *reception = joiner->reception;
    const struct gyre_transport_config *config = &reception->transport->config;
    struct socket_hello theirs;
    GYRE_TRY(config->authenticate(joiner->fd, config->secret, true, deadline_ns));
    GYRE_TRY(gyre_sock_recv(joiner->fd, &theirs, sizeof(theirs), deadline_ns));
    struct socket_link *link = find_link(reception->transport, &theirs);
    if (link == NULL)
        return gyre_fail(GYRE_ERROR_REMOTE, "rank %u asks for link %u of %u", theirs.from_rank,
                         theirs.link, theirs.n_links);
    const struct socket_hello mine = socket_make_hello(link->peer, link->index);
    GYRE_TRY(gyre_sock_send(joiner->fd, &mine, sizeof(mine), deadline_ns));
    pthread_mutex_lock(&reception->lock);
    /* A rank that connects a second time has given up its first attempt. */
    if (link->fd >= 0)
        gyre_sock_close(link->fd);
    else
        reception->n_missing--;
    link->fd = joiner->fd;
    joiner->fd = -1;
    pthread_cond_broadcast(&reception->changed);
    pthread_mutex_unlock(&reception->lock);
    return GYRE_SUCCESS;
}

static void *joiner_main(void *argument)
{
    struct joiner *joiner = argument;
    struct reception *reception = joiner->reception;
    const gyre_status status = receive_joiner(joiner, gyre_now_ns() + SOCKET_HANDSHAKE_NS);
    if (status != GYRE_SUCCESS)
        GYRE_INFO(NET, "dropped a connection: %s", gyre_cause());
    pthread_mutex_lock(&reception->lock);
    reception->n_strangers += status != GYRE_SUCCESS;
    joiner->is_done = true;
    pthread_mutex_unlock(&reception->lock);
    return NULL;
}

static gyre_status add_joiner(struct reception *reception, int fd)
{
    struct joiner *joiner = calloc(1, sizeof(*joiner));
    gyre_status status = GYRE_SUCCESS;
    if (joiner == NULL) {
        status = gyre_fail_errno(ENOMEM, "a joiner");
    } else {
        joiner->reception = reception;
        joiner->fd = fd;
        status =
            gyre_thread_start(&joiner->thread, JOINER_STACK_BYTES, joiner_main, joiner, "a joiner");
    }
    if (status != GYRE_SUCCESS) {
        /* A rank connects again later. A stranger loses nothing. */
        gyre_sock_close(fd);
        free(joiner);
        return status;
    }
    joiner->next = reception->first;
    reception->first = joiner;
    return GYRE_SUCCESS;
}

/* Joins the threads of joiners that are done. If there are too many joiners, the oldest is
 * disconnected; with all_out all of them are. */
static void see_off_joiners(struct reception *reception, bool all_out)
{
    struct joiner **link = &reception->first;
    int n_joiners = 0;
    while (*link != NULL) {
        struct joiner *joiner = *link;
        pthread_mutex_lock(&reception->lock);
        const bool is_done = joiner->is_done;
        const bool is_out = all_out || ++n_joiners >= MAX_JOINERS;
        if (!is_done && is_out && joiner->fd >= 0)
            shutdown(joiner->fd, SHUT_RDWR); /* ends the thread's waits */
        pthread_mutex_unlock(&reception->lock);
        if (!is_done && !is_out) {
            link = &joiner->next;
            continue;
        }
        pthread_join(joiner->thread, NULL);
        *link = joiner->next;
        if (joiner->fd >= 0)
            gyre_sock_close(joiner->fd);
        free(joiner);
    }
}

/* Notes that accepting failed, for example for lack of descriptors or memory. The connection waits
 * in the listening socket's queue. Strangers free their descriptors when they are dropped. If there
 * are no strangers, this rank itself has used up the resource, and its set-up ends after
 * REFUSED_NS. */
static void note_refusal(struct reception *reception, gyre_status status)
{
    const struct timespec retry_nap = {0, RETRY_NAP_NS};
    const uint64_t now_ns = gyre_now_ns();
    if (status == GYRE_ERROR_TIMEOUT) /* the connection was withdrawn */
        return;
    if (reception->refused_ns == 0 || reception->first != NULL)
        reception->refused_ns = now_ns;
    if (now_ns - reception->refused_ns >= REFUSED_NS) {
        pthread_mutex_lock(&reception->lock);
        snprintf(reception->refusal, sizeof(reception->refusal), "%s", gyre_cause());
        pthread_cond_broadcast(&reception->changed);
        pthread_mutex_unlock(&reception->lock);
    }
    nanosleep(&retry_nap, NULL);
}

static void take_joiner(struct reception *reception, int listen_fd)
{
    int fd = -1;
    gyre_status status = gyre_sock_accept(listen_fd, gyre_now_ns() + RETRY_NAP_NS, &fd);
    if (status == GYRE_SUCCESS)
        status = add_joiner(reception, fd);
    if (status != GYRE_SUCCESS)
        note_refusal(reception, status);
    else
        reception->refused_ns = 0;
}

static void *reception_main(void *argument)
{
    struct reception *reception = argument;
    const struct socket_transport *transport = reception->transport;
    struct pollfd watched[1 + SOCKET_MAX_ADDRESSES] = {
        {.fd = reception->stop_fd, .events = POLLIN},
    };
    for (int i = 0; i < transport->n_addresses; i++)
        watched[1 + i] = (struct pollfd){.fd = transport->listen_fds[i], .events = POLLIN};
    const nfds_t n_watched = 1 + (nfds_t)transport->n_addresses;
    while (watched[0].revents == 0) {
        /* The wait is short, so that the threads of joiners that are done are joined soon. */
        if (poll(watched, n_watched, 100) > 0)
            for (nfds_t i = 1; i < n_watched; i++)
                if (watched[i].revents != 0)
                    take_joiner(reception, watched[i].fd);
        see_off_joiners(reception, false);
    }
    see_off_joiners(reception, true);
    return NULL;
}

static int count_missing(const struct socket_transport *transport)
{
    int n_missing = 0;
    for (int i = 0; i < transport->n_peers; i++)
        if (transport->peers[i].rank < transport->config.rank)
            n_missing += (int)transport->peers[i].n_links;
    return n_missing;
}

static gyre_status reception_open(struct reception *reception, struct socket_transport *transport)
{
    memset(reception, 0, sizeof(*reception));
    reception->transport = transport;
    reception->n_missing = count_missing(transport);
    reception->stop_fd = gyre_descriptor_keep(eventfd(0, EFD_CLOEXEC));
    if (reception->stop_fd < 0)
        return gyre_fail_errno(errno, "eventfd");
    gyre_cond_init(&reception->changed);
    pthread_mutex_init(&reception->lock, NULL);
    const gyre_status status = gyre_thread_start(&reception->thread, 0, reception_main, reception,
                                                 "the reception of connections");
    if (status == GYRE_SUCCESS)
        return GYRE_SUCCESS;
    pthread_mutex_destroy(&reception->lock);
    pthread_cond_destroy(&reception->changed);
    close(reception->stop_fd);
    return status;
}

static void reception_close(struct reception *reception)
{
    const uint64_t one = 1;
    while (write(reception->stop_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    pthread_join(reception->thread, NULL);
    if (reception->n_strangers > 0)
        GYRE_INFO(NET, "%d connections were dropped during set-up", reception->n_strangers);
    pthread_mutex_destroy(&reception->lock);
    pthread_cond_destroy(&reception->changed);
    close(reception->stop_fd);
}

static gyre_status fail_missing(const struct reception *reception)
{
    const struct socket_transport *transport = reception->transport;
    char text[256] = "";
    for (int i = 0; i < transport->n_peers; i++) {
        const struct socket_peer *peer = &transport->peers[i];
        bool is_missing = false;
        for (uint32_t l = 0; peer->rank < transport->config.rank && l < peer->n_links; l++)
            is_missing = is_missing || peer->links[l].fd < 0;
        const size_t used = strlen(text);
        if (is_missing)
            snprintf(text + used, sizeof(text) - used, " %d (%s)", peer->rank,
                     transport->config.infos[peer->rank].host_name);
    }
    return gyre_fail(GYRE_ERROR_TIMEOUT,
                     "no connection came to %s from rank(s)%s; %d others were dropped",
                     transport->addresses[0].name, text, reception->n_strangers);
}

/* Waits until all links are connected, and checks meanwhile that all ranks are alive. A rank that
 * died or gave up never connects, and this rank would try until the deadline. */
static gyre_status wait_for_all(struct reception *reception, struct socket_caller *caller,
                                uint64_t deadline_ns)
{
    gyre_status status = GYRE_SUCCESS;
    pthread_mutex_lock(&reception->lock);
    while (status == GYRE_SUCCESS && (reception->n_missing > 0 || !caller->is_done)) {
        const uint64_t now_ns = gyre_now_ns();
        gyre_cond_wait_until(&reception->changed, &reception->lock,
                             gyre_min_u64(deadline_ns, now_ns + CHECK_NS));
        pthread_mutex_unlock(&reception->lock);
        status = gyre_transport_check(&reception->transport->config);
        pthread_mutex_lock(&reception->lock);
        if (status == GYRE_SUCCESS && caller->is_done)
            status = socket_caller_result(caller);
        if (status == GYRE_SUCCESS && reception->n_missing > 0 && reception->refusal[0] != '\0')
            status = gyre_fail(GYRE_ERROR_SYSTEM, "rank %d cannot take connections: %s",
                               reception->transport->config.rank, reception->refusal);
        if (status == GYRE_SUCCESS && reception->n_missing > 0 && now_ns >= deadline_ns)
            status = fail_missing(reception);
    }
    if (status == GYRE_SUCCESS) /* the caller may have been done before the first round */
        status = socket_caller_result(caller);
    pthread_mutex_unlock(&reception->lock);
    return status;
}

gyre_status socket_setup_links(struct socket_transport *transport, uint64_t deadline_ns)
{
    struct reception reception;
    struct socket_caller caller;
    gyre_status status;
    GYRE_TRY(reception_open(&reception, transport));
    GYRE_TRY_GOTO(
        status,
        socket_caller_start(&caller, transport, deadline_ns, &reception.lock, &reception.changed),
        close_reception);
    status = wait_for_all(&reception, &caller, deadline_ns);
    socket_caller_stop(&caller);

close_reception:
    reception_close(&reception);
    return status;
}
