/* SPDX-License-Identifier: Apache-2.0 */
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

#define REFUSED_NS         1000000000ULL
#define MAX_JOINERS        128
#define JOINER_STACK_BYTES (256 << 10)

struct joiner {
    struct joiner *next; /* newest first */
    struct setup *setup;
    pthread_t thread;
    int fd;
    bool is_done; /* under the lock */
};

static struct socket_link *find_link(struct socket_transport *transport, const struct hello *hello)
{
    for (int i = 0; i < transport->n_peers; i++) {
        struct socket_peer *peer = &transport->peers[i];
        if ((uint32_t)peer->rank != hello->from_rank || peer->rank > transport->config.rank)
            continue;
        if (hello->link >= peer->n_links)
            return NULL;
        struct hello expected = socket_make_hello(peer, hello->link, hello->epoch);
        expected.from_rank = hello->from_rank;
        expected.to_rank = (uint32_t)transport->config.rank;
        return memcmp(hello, &expected, sizeof(expected)) == 0 ? &peer->links[hello->link] : NULL;
    }
    return NULL;
}

/* The peer lost a link's connection, maybe before this rank knows. @counts: room for both. */
static gyre_status take_again(struct joiner *joiner, struct socket_link *link, uint32_t epoch,
                              struct socket_counts *counts, uint64_t deadline_ns)
{
    struct setup *setup = joiner->setup;
    struct socket_counts *theirs = counts + link->n_fifos;
    const size_t n_bytes = link->n_fifos * sizeof(counts[0]);
    const struct hello hello = socket_make_hello(link->peer, link->index, epoch);
    GYRE_TRY(gyre_sock_recv(joiner->fd, theirs, n_bytes, deadline_ns));
    pthread_mutex_lock(&setup->lock);
    while (!setup->is_running && !setup->stops && gyre_now_ns() < deadline_ns)
        gyre_cond_wait_until(&setup->changed, &setup->lock, deadline_ns);
    const bool goes_on = setup->is_running && !setup->stops;
    pthread_mutex_unlock(&setup->lock);
    if (!goes_on || socket_halt(link, epoch, counts) == 0)
        return gyre_fail(GYRE_ERROR_REMOTE, "rank %d connects again, too late", link->peer->rank);
    GYRE_TRY(gyre_sock_send(joiner->fd, &hello, sizeof(hello), deadline_ns));
    GYRE_TRY(gyre_sock_send(joiner->fd, counts, n_bytes, deadline_ns));
    GYRE_TRY(socket_adopt(link, joiner->fd, epoch, theirs));
    pthread_mutex_lock(&setup->lock);
    joiner->fd = -1;
    pthread_mutex_unlock(&setup->lock);
    return GYRE_SUCCESS;
}

/* On success the link owns the descriptor. */
static gyre_status receive_joiner(struct joiner *joiner, uint64_t deadline_ns)
{
    struct setup *setup = joiner->setup;
    const struct gyre_transport_config *config = &setup->transport->config;
    struct hello theirs;
    uint8_t taken = 0;
    GYRE_TRY(config->authenticate(joiner->fd, config->secret, true, deadline_ns));
    GYRE_TRY(gyre_sock_recv(joiner->fd, &theirs, sizeof(theirs), deadline_ns));
    struct socket_link *link = find_link(setup->transport, &theirs);
    if (link == NULL)
        return gyre_fail(GYRE_ERROR_REMOTE, "rank %u asks for link %u of %u", theirs.from_rank,
                         theirs.link, theirs.n_links);
    if (theirs.epoch > 0) {
        struct socket_counts *counts = calloc(2 * (size_t)link->n_fifos, sizeof(*counts));
        const gyre_status status =
            counts == NULL ? gyre_fail_errno(ENOMEM, "%u FIFOs", link->n_fifos)
                           : take_again(joiner, link, theirs.epoch, counts, deadline_ns);
        free(counts);
        return status;
    }
    const struct hello mine = socket_make_hello(link->peer, link->index, 0);
    GYRE_TRY(gyre_sock_send(joiner->fd, &mine, sizeof(mine), deadline_ns));
    /* The other rank alone decides whether it was in time: a limit here could drop what it has
     * taken. */
    GYRE_TRY(gyre_sock_recv(joiner->fd, &taken, sizeof(taken), setup->deadline_ns));
    if (taken != SOCKET_TAKEN)
        return gyre_fail(GYRE_ERROR_REMOTE, "rank %u does not take link %u", theirs.from_rank,
                         theirs.link);
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
    const gyre_status status = receive_joiner(joiner, gyre_now_ns() + SOCKET_HANDSHAKE_NS);
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

/* Joins the threads that are done. Of too many joiners the oldest is disconnected; with all_out all
 * are. */
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

static void take_joiner(struct setup *setup, int listen_fd)
{
    int fd = -1;
    gyre_status status = gyre_sock_accept(listen_fd, gyre_now_ns() + SOCKET_RETRY_NAP_NS, &fd);
    if (status == GYRE_SUCCESS)
        status = add_joiner(setup, fd);
    if (status == GYRE_SUCCESS)
        setup->refused_ns = 0;
    if (status == GYRE_SUCCESS || status == GYRE_ERROR_TIMEOUT)
        return;
    /* For example for lack of descriptors, which strangers give back. Without strangers the
     * set-up ends after REFUSED_NS. */
    const struct timespec retry_nap = {0, SOCKET_RETRY_NAP_NS};
    const uint64_t now_ns = gyre_now_ns();
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

static void *accepting_main(void *argument)
{
    struct setup *setup = argument;
    const struct socket_transport *transport = setup->transport;
    struct pollfd watched[1 + SOCKET_MAX_ADDRESSES] = {{.fd = setup->stop_fd, .events = POLLIN}};
    for (int i = 0; i < transport->n_addresses; i++)
        watched[1 + i] = (struct pollfd){.fd = transport->listen_fds[i], .events = POLLIN};
    const nfds_t n_watched = 1 + (nfds_t)transport->n_addresses;
    while (watched[0].revents == 0) {
        /* Short, to join joiners soon. */
        if (poll(watched, n_watched, setup->first != NULL ? 100 : -1) > 0)
            for (nfds_t i = 1; i < n_watched; i++)
                if (watched[i].revents != 0)
                    take_joiner(setup, watched[i].fd);
        see_off_joiners(setup, false);
    }
    see_off_joiners(setup, true);
    return NULL;
}

gyre_status socket_start_accepting(struct setup *setup)
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
    if (status != GYRE_SUCCESS) {
        pthread_mutex_destroy(&setup->lock);
        pthread_cond_destroy(&setup->changed);
        close(setup->stop_fd);
    }
    return status;
}

void socket_stop_accepting(struct setup *setup)
{
    const uint64_t one = 1;
    while (write(setup->stop_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    pthread_join(setup->accepting, NULL);
    if (setup->n_strangers > 0)
        GYRE_INFO(NET, "%d connections were dropped during set-up", setup->n_strangers);
}
