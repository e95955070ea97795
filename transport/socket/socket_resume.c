/* SPDX-License-Identifier: Apache-2.0
 *
 * Links that broke: their side is HALTED, both sides tell their counts, the sender rewinds to what
 * the receiver has, and the link runs again (docs/failover.md). What is said of a link here holds
 * under the lock of the proxy that moves it.
 */
#include "transport/socket/socket_setup.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Since the last sign of life. The health link finds the dead sooner. */
#define BROKEN_MAX_NS 10000000000ULL
/* A socket that refuses for so long has lost its process. */
#define REFUSED_MAX_NS 500000000ULL
#define TRY_NS         1000000000ULL

bool socket_connect_again(struct socket_link *link, const char *why, uint64_t silent_ns)
{
    struct socket_transport *transport = link->peer->transport;
    struct setup *setup = transport->setup;
    uint64_t n_sent = 0, n_arrived = 0;
    if (setup == NULL || link->has_bye || gyre_fault_is_raised(transport->config.fault))
        return false;
    pthread_mutex_lock(&setup->lock);
    const bool is_tried = setup->is_running && !setup->stops;
    setup->has_broken = true;
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
    return true;
}

uint32_t socket_halt(struct socket_link *link, uint32_t epoch, struct socket_counts *counts_out)
{
    gyre_proxy_pause(link->thread->proxy);
    if (epoch == 0)
        epoch = link->epoch + 1;
    if (epoch <= link->epoch || link->has_bye)
        epoch = 0;
    if (epoch > 0 && link->fd >= 0) {
        socket_drop_link(link);
        if (!socket_connect_again(link, "the peer connects again", 0))
            link->broken_since_ns = gyre_now_ns();
    }
    for (uint32_t i = 0; i < link->n_fifos && epoch > 0; i++) {
        struct socket_fifo *fifo = &link->peer->fifos[socket_nth_fifo(link, i)];
        /* A GPU may return an empty slot of LL before it has arrived. */
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
        socket_blame(link, GYRE_ERROR_REMOTE, "connected again with counts that cannot be");
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
        link->broken_since_ns = 0;
    }
    gyre_proxy_resume(link->thread->proxy);
    if (status == GYRE_SUCCESS)
        gyre_proxy_wake(link->thread->proxy);
    return status;
}

static void give_up(struct socket_link *link, uint64_t broken_ns)
{
    char words[320];
    snprintf(words, sizeof(words), "%s; it could not be connected again for %.1f s",
             link->broken_why, (double)broken_ns / 1e9);
    socket_blame(link, GYRE_ERROR_REMOTE, words);
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
                      now_ns - broken_since_ns >= BROKEN_MAX_NS))
        give_up(link, now_ns - broken_since_ns);
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
    }
    pthread_mutex_unlock(&setup->lock);
}
