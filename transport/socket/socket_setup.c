/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/socket/socket.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HELLO_MAGIC    0x74656b636f736779ULL /* "gysocket", little endian */
#define FIRST_TRY_NS   100000000ULL          /* for an address's first attempt */
#define CONNECT_TRY_NS 1000000000ULL
#define CHECK_NS       100000000ULL /* to notice that another rank ended */

struct hello socket_make_hello(const struct socket_peer *peer, uint32_t link, uint32_t epoch)
{
    return (struct hello){
        .magic = HELLO_MAGIC,
        .from_rank = (uint32_t)peer->transport->config.rank,
        .to_rank = (uint32_t)peer->rank,
        .link = link,
        .n_links = peer->n_links,
        .n_fifos = peer->size.n_fifos,
        .slot_bytes = peer->size.slot_bytes,
        .epoch = epoch,
    };
}

/* @counts: of the link's FIFOs, if it broke; NULL at set-up. On success the link owns the
 * descriptor. */
static gyre_status introduce(const struct socket_peer *peer, struct socket_link *link, int fd,
                             struct socket_counts *counts, uint64_t deadline_ns)
{
    const struct gyre_transport_config *config = &peer->transport->config;
    const size_t n_bytes = counts != NULL ? link->n_fifos * sizeof(counts[0]) : 0;
    const uint32_t epoch = counts != NULL ? socket_halt(link, 0, counts) : 0;
    const struct hello mine = socket_make_hello(peer, link->index, epoch);
    const uint8_t taken = SOCKET_TAKEN;
    struct hello theirs;
    if (counts != NULL && epoch == 0)
        return gyre_fail(GYRE_ERROR_ABORTED, "it has left");
    GYRE_TRY(config->authenticate(fd, config->secret, false, deadline_ns));
    GYRE_TRY(gyre_sock_send(fd, &mine, sizeof(mine), deadline_ns));
    GYRE_TRY(gyre_sock_send(fd, counts, n_bytes, deadline_ns));
    GYRE_TRY(gyre_sock_recv(fd, &theirs, sizeof(theirs), deadline_ns));
    if (theirs.magic != HELLO_MAGIC || theirs.from_rank != mine.to_rank ||
        theirs.to_rank != mine.from_rank || theirs.link != mine.link || theirs.epoch != epoch)
        return gyre_fail(GYRE_ERROR_REMOTE, "answered as rank %u", theirs.from_rank);
    GYRE_TRY(gyre_sock_recv(fd, counts, n_bytes, deadline_ns));
    if (counts != NULL)
        return socket_adopt(link, fd, epoch, counts);
    GYRE_TRY(gyre_sock_send(fd, &taken, sizeof(taken), deadline_ns));
    link->fd = fd;
    return GYRE_SUCCESS;
}

/* For stop_connecting() to shut down. False after a stop. */
static bool show_fd(struct setup *setup, int fd)
{
    pthread_mutex_lock(&setup->lock);
    const bool goes_on = !setup->stops;
    setup->handshake_fd = goes_on ? fd : -1;
    pthread_mutex_unlock(&setup->lock);
    return goes_on;
}

static gyre_status try_address(struct setup *setup, struct socket_peer *peer,
                               struct socket_link *link, int index, uint64_t try_ns)
{
    int fd = -1;
    const uint64_t now_ns = gyre_now_ns();
    GYRE_TRY(gyre_sock_connect(&peer->addresses[index],
                               gyre_min_u64(setup->connect_deadline_ns, now_ns + try_ns), &fd));
    struct socket_counts *counts =
        setup->is_done ? calloc((size_t)link->n_fifos, sizeof(*counts)) : NULL;
    gyre_status status = GYRE_ERROR_ABORTED;
    if (setup->is_done && counts == NULL)
        status = gyre_fail_errno(ENOMEM, "%u FIFOs", link->n_fifos);
    else if (show_fd(setup, fd))
        status = introduce(peer, link, fd, counts,
                           gyre_min_u64(setup->connect_deadline_ns, now_ns + SOCKET_HANDSHAKE_NS));
    show_fd(setup, -1);
    if (status != GYRE_SUCCESS)
        gyre_sock_close(fd);
    free(counts);
    return status;
}

gyre_status socket_try_addresses(struct setup *setup, struct socket_peer *peer, uint32_t link,
                                 uint64_t try_ns, bool *is_limited_out, char *whys_out,
                                 size_t why_bytes)
{
    gyre_status status = GYRE_ERROR_REMOTE;
    snprintf(whys_out, why_bytes, "it told of no address that this rank could reach");
    for (int i = 0; i < peer->n_addresses && show_fd(setup, -1); i++) {
        const int index = (peer->preferred + i) % peer->n_addresses;
        status = try_address(setup, peer, &peer->links[link], index, try_ns);
        *is_limited_out = gyre_cause_is_limit(status);
        if (status == GYRE_SUCCESS) {
            peer->preferred = index;
            return status;
        }
        if (i == 0)
            whys_out[0] = '\0';
        gyre_text_append(whys_out, why_bytes, "%s%s", i > 0 ? "; " : "", gyre_cause());
        if (*is_limited_out)
            break;
    }
    return status;
}

static gyre_status connect_link(struct setup *setup, struct socket_peer *peer, uint32_t link)
{
    const struct timespec retry_nap = {0, SOCKET_RETRY_NAP_NS};
    char whys[600];
    /* Short attempts first: a dead address may precede one that answers. */
    for (uint64_t try_ns = FIRST_TRY_NS;; try_ns = gyre_min_u64(2 * try_ns, CONNECT_TRY_NS)) {
        bool is_limited = false;
        const gyre_status status =
            socket_try_addresses(setup, peer, link, try_ns, &is_limited, whys, sizeof(whys));
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
    setup->connect_deadline_ns = UINT64_MAX;
    if (status == GYRE_SUCCESS && transport->survives_resets)
        socket_resume_links(setup);
    return NULL;
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
        if (is_missing)
            gyre_text_append(text, sizeof(text), " %d (%s)", peer->rank,
                             transport->config.infos[peer->rank].host_name);
    }
    return gyre_fail(GYRE_ERROR_TIMEOUT,
                     "no connection came to %s from rank(s)%s; %d others were dropped",
                     transport->addresses[0].name, text, setup->n_strangers);
}

/* The lock is held. */
static gyre_status connecting_result(const struct setup *setup)
{
    if (setup->is_done && setup->status != GYRE_SUCCESS)
        gyre_set_cause(setup->cause);
    return setup->is_done ? setup->status : GYRE_SUCCESS;
}

/* A dead rank never connects, so all are checked. */
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
    if (status == GYRE_SUCCESS)
        status = connecting_result(setup);
    pthread_mutex_unlock(&setup->lock);
    return status;
}

gyre_status socket_setup_links(struct socket_transport *transport, uint64_t deadline_ns)
{
    struct setup *setup = calloc(1, sizeof(*setup));
    gyre_status status;
    if (setup == NULL)
        return gyre_fail_errno(ENOMEM, "the set-up of %d peers", transport->n_peers);
    *setup = (struct setup){.transport = transport,
                            .deadline_ns = deadline_ns,
                            .connect_deadline_ns = deadline_ns,
                            .handshake_fd = -1};
    GYRE_TRY_GOTO(status, socket_start_accepting(setup), free_setup);
    transport->setup = setup;
    const int n_peers = transport->n_peers;
    /* Ascending, so the last peer is the highest. */
    setup->is_started =
        n_peers > 0 &&
        (transport->survives_resets || transport->peers[n_peers - 1].rank > transport->config.rank);
    setup->is_done = !setup->is_started;
    status = setup->is_started ? gyre_thread_start(&setup->connecting, 0, connecting_main, setup,
                                                   "connecting to other ranks")
                               : GYRE_SUCCESS;
    if (status == GYRE_SUCCESS)
        status = wait_for_all(setup);
    else
        setup->is_started = false;
    if (status != GYRE_SUCCESS || !transport->survives_resets) {
        socket_stop_setup(transport);
        socket_end_setup(transport);
    }
    return status;

free_setup:
    free(setup);
    return status;
}

void socket_begin_resuming(struct socket_transport *transport)
{
    struct setup *setup = transport->setup;
    if (setup == NULL)
        return;
    pthread_mutex_lock(&setup->lock);
    setup->is_running = true;
    pthread_cond_broadcast(&setup->changed);
    pthread_mutex_unlock(&setup->lock);
}

void socket_stop_setup(struct socket_transport *transport)
{
    if (transport->setup == NULL)
        return;
    struct setup *setup = transport->setup;
    pthread_mutex_lock(&setup->lock);
    setup->stops = true;
    if (setup->handshake_fd >= 0)
        shutdown(setup->handshake_fd, SHUT_RDWR);
    pthread_cond_broadcast(&setup->changed);
    pthread_mutex_unlock(&setup->lock);
    if (setup->is_started)
        pthread_join(setup->connecting, NULL);
    socket_stop_accepting(transport->setup);
}

void socket_end_setup(struct socket_transport *transport)
{
    struct setup *setup = transport->setup;
    if (setup == NULL)
        return;
    pthread_mutex_destroy(&setup->lock);
    pthread_cond_destroy(&setup->changed);
    close(setup->stop_fd);
    free(setup);
    transport->setup = NULL;
}
