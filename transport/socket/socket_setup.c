/* SPDX-License-Identifier: Apache-2.0
 *
 * Of two ranks the lower one connects and the higher one accepts. One thread connects, because a
 * handshake with a stopped rank takes seconds. A second one accepts, and the calling thread checks
 * that all ranks are alive.
 * An accepted connection is a joiner until it has proved that it knows the secret and told its
 * rank. Each joiner has a thread and a short deadline of its own, so a stranger delays no rank. If
 * there are too many, the oldest is closed; if that was a rank, it tries again.
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
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HELLO_MAGIC        0x74656b636f736779ULL /* "gysocket", little endian */
#define HANDSHAKE_NS       5000000000ULL /* a few round trips, even of a slow network, take less */
#define FIRST_TRY_NS       100000000ULL  /* for the first attempt at an address */
#define CONNECT_TRY_NS     1000000000ULL
#define RETRY_NAP_NS       10000000L
#define CHECK_NS           100000000ULL /* until this rank notices that another one ended */
#define REFUSED_NS         1000000000ULL
#define MAX_JOINERS        128
#define JOINER_STACK_BYTES (256 << 10)

/* Both sides send it first on an authenticated link. */
struct hello {
    uint64_t magic;
    uint32_t from_rank;
    uint32_t to_rank;
    uint32_t link;
    uint32_t n_links;
    uint32_t n_fifos;
    uint32_t slot_bytes;
};

GYRE_STATIC_ASSERT(sizeof(struct hello) == 32, "a wire format");

struct joiner {
    struct joiner *next; /* newest first */
    struct setup *setup;
    pthread_t thread;
    int fd;
    bool is_done; /* under the lock */
};

struct setup {
    struct socket_transport *transport;
    uint64_t deadline_ns;
    pthread_mutex_t lock;
    pthread_cond_t changed;

    pthread_t connecting;
    bool connects;
    bool stops; /* under the lock, as the next four */
    bool is_done;
    int handshake_fd; /* -1: none */
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];

    pthread_t accepting;
    int stop_fd;
    int n_missing;                          /* links to accept; under the lock */
    int n_strangers;                        /* under the lock */
    char refusal[GYRE_CAUSE_MAX_BYTES / 2]; /* "" = accepting works; under the lock */
    uint64_t refused_ns; /* 0 = accepting works. Only the accepting thread uses this and the next */
    struct joiner *first;
};

static struct hello make_hello(const struct socket_peer *peer, uint32_t link)
{
    return (struct hello){
        .magic = HELLO_MAGIC,
        .from_rank = (uint32_t)peer->transport->config.rank,
        .to_rank = (uint32_t)peer->rank,
        .link = link,
        .n_links = peer->n_links,
        .n_fifos = peer->size.n_fifos,
        .slot_bytes = peer->size.slot_bytes,
    };
}

/* ---- connecting ----------------------------------------------------------------------------- */

static gyre_status introduce(const struct socket_peer *peer, uint32_t link, int fd,
                             uint64_t deadline_ns)
{
    const struct gyre_transport_config *config = &peer->transport->config;
    const struct hello mine = make_hello(peer, link);
    struct hello theirs;
    GYRE_TRY(config->authenticate(fd, config->secret, false, deadline_ns));
    GYRE_TRY(gyre_sock_send(fd, &mine, sizeof(mine), deadline_ns));
    GYRE_TRY(gyre_sock_recv(fd, &theirs, sizeof(theirs), deadline_ns));
    if (theirs.magic != HELLO_MAGIC || theirs.from_rank != mine.to_rank ||
        theirs.to_rank != mine.from_rank || theirs.link != link)
        return gyre_fail(GYRE_ERROR_REMOTE, "answered as rank %u", theirs.from_rank);
    return GYRE_SUCCESS;
}

/* stop_connecting() shuts the descriptor down; -1 = none. False after a stop. */
static bool show_fd(struct setup *setup, int fd)
{
    pthread_mutex_lock(&setup->lock);
    const bool goes_on = !setup->stops;
    setup->handshake_fd = goes_on ? fd : -1;
    pthread_mutex_unlock(&setup->lock);
    return goes_on;
}

static gyre_status try_address(struct setup *setup, struct socket_peer *peer, uint32_t link,
                               int index, uint64_t try_ns)
{
    int fd = -1;
    const uint64_t now_ns = gyre_now_ns();
    GYRE_TRY(gyre_sock_connect(&peer->addresses[index],
                               gyre_min_u64(setup->deadline_ns, now_ns + try_ns), &fd));
    gyre_status status = GYRE_ERROR_ABORTED;
    if (show_fd(setup, fd))
        status = introduce(peer, link, fd, gyre_min_u64(setup->deadline_ns, now_ns + HANDSHAKE_NS));
    show_fd(setup, -1);
    if (status == GYRE_SUCCESS)
        peer->links[link].fd = fd;
    else
        gyre_sock_close(fd);
    return status;
}

/* Begins with the address that worked last. @whys_out: the error of each. */
static gyre_status try_addresses(struct setup *setup, struct socket_peer *peer, uint32_t link,
                                 uint64_t try_ns, bool *is_limited_out, char *whys_out,
                                 size_t why_bytes)
{
    gyre_status status = GYRE_ERROR_REMOTE;
    size_t used = 0;
    snprintf(whys_out, why_bytes, "it told of no address that this rank could reach");
    for (int i = 0; i < peer->n_addresses && show_fd(setup, -1); i++) {
        const int index = (peer->preferred + i) % peer->n_addresses;
        status = try_address(setup, peer, link, index, try_ns);
        *is_limited_out = gyre_cause_is_limit(status);
        if (status == GYRE_SUCCESS) {
            peer->preferred = index;
            return status;
        }
        if (used < why_bytes)
            used += (size_t)snprintf(whys_out + used, why_bytes - used, "%s%s", i > 0 ? "; " : "",
                                     gyre_cause());
        if (*is_limited_out)
            break;
    }
    return status;
}

static gyre_status connect_link(struct setup *setup, struct socket_peer *peer, uint32_t link)
{
    const struct timespec retry_nap = {0, RETRY_NAP_NS};
    char whys[600];
    /* Short attempts come first: an address that does not answer may precede one that does. */
    for (uint64_t try_ns = FIRST_TRY_NS;; try_ns = gyre_min_u64(2 * try_ns, CONNECT_TRY_NS)) {
        bool is_limited = false;
        const gyre_status status =
            try_addresses(setup, peer, link, try_ns, &is_limited, whys, sizeof(whys));
        if (status == GYRE_SUCCESS || !show_fd(setup, -1))
            return status;
        if (is_limited || gyre_now_ns() >= setup->deadline_ns)
            return gyre_fail(status, "rank %d (%s): %s", peer->rank,
                             peer->transport->config.infos[peer->rank].host_name, whys);
        nanosleep(&retry_nap, NULL);
    }
}

static void *connecting_main(void *argument)
{
    struct setup *setup = argument;
    const struct socket_transport *transport = setup->transport;
    gyre_status status = GYRE_SUCCESS;
    for (int i = 0; i < transport->n_peers; i++) {
        struct socket_peer *peer = &transport->peers[i];
        for (uint32_t l = 0; peer->rank > transport->config.rank && l < peer->n_links; l++)
            if (status == GYRE_SUCCESS)
                status = connect_link(setup, peer, l);
    }
    pthread_mutex_lock(&setup->lock);
    setup->status = status;
    snprintf(setup->cause, sizeof(setup->cause), "%s", gyre_cause());
    setup->is_done = true;
    pthread_cond_broadcast(&setup->changed);
    pthread_mutex_unlock(&setup->lock);
    return NULL;
}

static gyre_status start_connecting(struct setup *setup)
{
    const struct socket_transport *transport = setup->transport;
    const int n_peers = transport->n_peers;
    /* The peers are in ascending order, so the last one is the highest. */
    setup->connects = n_peers > 0 && transport->peers[n_peers - 1].rank > transport->config.rank;
    setup->is_done = !setup->connects;
    return setup->connects ? gyre_thread_start(&setup->connecting, 0, connecting_main, setup,
                                               "connecting to other ranks")
                           : GYRE_SUCCESS;
}

static void stop_connecting(struct setup *setup)
{
    if (!setup->connects)
        return;
    pthread_mutex_lock(&setup->lock);
    setup->stops = true;
    if (setup->handshake_fd >= 0)
        shutdown(setup->handshake_fd, SHUT_RDWR);
    pthread_mutex_unlock(&setup->lock);
    pthread_join(setup->connecting, NULL);
}

/* ---- accepting ------------------------------------------------------------------------------ */

/* NULL if there is no such link. */
static struct socket_link *find_link(struct socket_transport *transport, const struct hello *hello)
{
    for (int i = 0; i < transport->n_peers; i++) {
        struct socket_peer *peer = &transport->peers[i];
        if ((uint32_t)peer->rank != hello->from_rank || peer->rank > transport->config.rank)
            continue;
        if (hello->link >= peer->n_links)
            return NULL;
        struct hello expected = make_hello(peer, hello->link);
        expected.from_rank = hello->from_rank;
        expected.to_rank = (uint32_t)transport->config.rank;
        return memcmp(hello, &expected, sizeof(expected)) == 0 ? &peer->links[hello->link] : NULL;
    }
    return NULL;
}

/* On success the link owns the descriptor. */
static gyre_status receive_joiner(struct joiner *joiner, uint64_t deadline_ns)
{
    struct setup *setup = joiner->setup;
    const struct gyre_transport_config *config = &setup->transport->config;
    struct hello theirs;
    GYRE_TRY(config->authenticate(joiner->fd, config->secret, true, deadline_ns));
    GYRE_TRY(gyre_sock_recv(joiner->fd, &theirs, sizeof(theirs), deadline_ns));
    struct socket_link *link = find_link(setup->transport, &theirs);
    if (link == NULL)
        return gyre_fail(GYRE_ERROR_REMOTE, "rank %u asks for link %u of %u", theirs.from_rank,
                         theirs.link, theirs.n_links);
    const struct hello mine = make_hello(link->peer, link->index);
    GYRE_TRY(gyre_sock_send(joiner->fd, &mine, sizeof(mine), deadline_ns));
    pthread_mutex_lock(&setup->lock);
    if (link->fd >= 0)
        gyre_sock_close(link->fd);
    else
        setup->n_missing--;
    link->fd = joiner->fd;
    joiner->fd = -1;
    pthread_cond_broadcast(&setup->changed);
    pthread_mutex_unlock(&setup->lock);
    return GYRE_SUCCESS;
}

static void *joiner_main(void *argument)
{
    struct joiner *joiner = argument;
    struct setup *setup = joiner->setup;
    const gyre_status status = receive_joiner(joiner, gyre_now_ns() + HANDSHAKE_NS);
    if (status != GYRE_SUCCESS)
        GYRE_INFO(NET, "dropped a connection: %s", gyre_cause());
    pthread_mutex_lock(&setup->lock);
    setup->n_strangers += status != GYRE_SUCCESS;
    joiner->is_done = true;
    pthread_mutex_unlock(&setup->lock);
    return NULL;
}

static gyre_status add_joiner(struct setup *setup, int fd)
{
    struct joiner *joiner = calloc(1, sizeof(*joiner));
    gyre_status status;
    if (joiner == NULL) {
        status = gyre_fail_errno(ENOMEM, "a joiner");
    } else {
        joiner->setup = setup;
        joiner->fd = fd;
        status =
            gyre_thread_start(&joiner->thread, JOINER_STACK_BYTES, joiner_main, joiner, "a joiner");
    }
    if (status != GYRE_SUCCESS) {
        gyre_sock_close(fd);
        free(joiner);
        return status;
    }
    joiner->next = setup->first;
    setup->first = joiner;
    return GYRE_SUCCESS;
}

/* Joins the threads that are done. If there are too many joiners, the oldest is disconnected; with
 * all_out all of them are. */
static void see_off_joiners(struct setup *setup, bool all_out)
{
    struct joiner **link = &setup->first;
    int n_joiners = 0;
    while (*link != NULL) {
        struct joiner *joiner = *link;
        pthread_mutex_lock(&setup->lock);
        const bool is_done = joiner->is_done;
        const bool is_out = all_out || ++n_joiners >= MAX_JOINERS;
        if (!is_done && is_out && joiner->fd >= 0)
            shutdown(joiner->fd, SHUT_RDWR);
        pthread_mutex_unlock(&setup->lock);
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

/* Accepting failed, for example for lack of descriptors. The connection stays in the kernel's
 * queue, and strangers give back what they hold. If there are none, this rank has used them up
 * itself, and its set-up ends after REFUSED_NS. */
static void note_refusal(struct setup *setup, gyre_status status)
{
    const struct timespec retry_nap = {0, RETRY_NAP_NS};
    const uint64_t now_ns = gyre_now_ns();
    if (status == GYRE_ERROR_TIMEOUT) /* the connection was withdrawn */
        return;
    if (setup->refused_ns == 0 || setup->first != NULL)
        setup->refused_ns = now_ns;
    if (now_ns - setup->refused_ns >= REFUSED_NS) {
        pthread_mutex_lock(&setup->lock);
        snprintf(setup->refusal, sizeof(setup->refusal), "%s", gyre_cause());
        pthread_cond_broadcast(&setup->changed);
        pthread_mutex_unlock(&setup->lock);
    }
    nanosleep(&retry_nap, NULL);
}

static void take_joiner(struct setup *setup, int listen_fd)
{
    int fd = -1;
    gyre_status status = gyre_sock_accept(listen_fd, gyre_now_ns() + RETRY_NAP_NS, &fd);
    if (status == GYRE_SUCCESS)
        status = add_joiner(setup, fd);
    if (status != GYRE_SUCCESS)
        note_refusal(setup, status);
    else
        setup->refused_ns = 0;
}

static void *accepting_main(void *argument)
{
    struct setup *setup = argument;
    const struct socket_transport *transport = setup->transport;
    struct pollfd watched[1 + SOCKET_MAX_ADDRESSES] = {{.fd = setup->stop_fd, .events = POLLIN}};
    for (int i = 0; i < transport->n_addresses; i++)
        watched[1 + i] = (struct pollfd){.fd = transport->listen_fds[i], .events = POLLIN};
    const nfds_t n_watched = 1 + (nfds_t)transport->n_addresses;
    while (watched[0].revents == 0) {
        /* Short, so that done joiners are joined soon. */
        if (poll(watched, n_watched, 100) > 0)
            for (nfds_t i = 1; i < n_watched; i++)
                if (watched[i].revents != 0)
                    take_joiner(setup, watched[i].fd);
        see_off_joiners(setup, false);
    }
    see_off_joiners(setup, true);
    return NULL;
}

/* ---- waiting for all ------------------------------------------------------------------------ */

static void free_setup(struct setup *setup)
{
    pthread_mutex_destroy(&setup->lock);
    pthread_cond_destroy(&setup->changed);
    close(setup->stop_fd);
}

static gyre_status start_accepting(struct setup *setup)
{
    const struct socket_transport *transport = setup->transport;
    for (int i = 0; i < transport->n_peers; i++)
        if (transport->peers[i].rank < transport->config.rank)
            setup->n_missing += (int)transport->peers[i].n_links;
    setup->stop_fd = gyre_descriptor_keep(eventfd(0, EFD_CLOEXEC));
    if (setup->stop_fd < 0)
        return gyre_fail_errno(errno, "eventfd");
    gyre_cond_init(&setup->changed);
    pthread_mutex_init(&setup->lock, NULL);
    const gyre_status status = gyre_thread_start(&setup->accepting, 0, accepting_main, setup,
                                                 "the reception of connections");
    if (status != GYRE_SUCCESS)
        free_setup(setup);
    return status;
}

static void stop_accepting(struct setup *setup)
{
    const uint64_t one = 1;
    while (write(setup->stop_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    pthread_join(setup->accepting, NULL);
    if (setup->n_strangers > 0)
        GYRE_INFO(NET, "%d connections were dropped during set-up", setup->n_strangers);
    free_setup(setup);
}

static gyre_status fail_missing(const struct setup *setup)
{
    const struct socket_transport *transport = setup->transport;
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
                     transport->addresses[0].name, text, setup->n_strangers);
}

/* The caller holds the lock. */
static gyre_status connecting_result(const struct setup *setup)
{
    if (setup->is_done && setup->status != GYRE_SUCCESS)
        gyre_set_cause(setup->cause);
    return setup->is_done ? setup->status : GYRE_SUCCESS;
}

/* A dead rank never connects, so all are checked meanwhile. */
static gyre_status wait_for_all(struct setup *setup)
{
    gyre_status status = GYRE_SUCCESS;
    pthread_mutex_lock(&setup->lock);
    while (status == GYRE_SUCCESS && (setup->n_missing > 0 || !setup->is_done)) {
        const uint64_t now_ns = gyre_now_ns();
        gyre_cond_wait_until(&setup->changed, &setup->lock,
                             gyre_min_u64(setup->deadline_ns, now_ns + CHECK_NS));
        pthread_mutex_unlock(&setup->lock);
        status = gyre_transport_check(&setup->transport->config);
        pthread_mutex_lock(&setup->lock);
        if (status == GYRE_SUCCESS)
            status = connecting_result(setup);
        if (status == GYRE_SUCCESS && setup->n_missing > 0 && setup->refusal[0] != '\0')
            status = gyre_fail(GYRE_ERROR_SYSTEM, "rank %d cannot take connections: %s",
                               setup->transport->config.rank, setup->refusal);
        if (status == GYRE_SUCCESS && setup->n_missing > 0 && now_ns >= setup->deadline_ns)
            status = fail_missing(setup);
    }
    if (status == GYRE_SUCCESS) /* the connecting thread may have ended before the first round */
        status = connecting_result(setup);
    pthread_mutex_unlock(&setup->lock);
    return status;
}

gyre_status socket_setup_links(struct socket_transport *transport, uint64_t deadline_ns)
{
    struct setup setup = {.transport = transport, .deadline_ns = deadline_ns, .handshake_fd = -1};
    GYRE_TRY(start_accepting(&setup));
    gyre_status status = start_connecting(&setup);
    if (status == GYRE_SUCCESS) {
        status = wait_for_all(&setup);
        stop_connecting(&setup);
    }
    stop_accepting(&setup);
    return status;
}
