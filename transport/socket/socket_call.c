/* SPDX-License-Identifier: Apache-2.0
 *
 * The connecting half of the socket transport's set-up. It has a thread of its own, because a
 * handshake with a stopped rank takes seconds, and the calling thread must notice meanwhile when
 * another rank ends.
 */
#include "transport/socket/socket.h"

#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define HELLO_MAGIC    0x74656b636f736779ULL /* "gysocket", little endian */
#define FIRST_TRY_NS   100000000ULL          /* for the first attempt at an address */
#define CONNECT_TRY_NS 1000000000ULL         /* the longest attempt; a stop waits until it ends */
#define RETRY_NAP_NS   10000000L

struct socket_hello socket_make_hello(const struct socket_peer *peer, uint32_t link)
{
    const struct gyre_transport_config *config = &peer->transport->config;
    return (struct socket_hello){
        .magic = HELLO_MAGIC,
        .from_rank = (uint32_t)config->rank,
        .to_rank = (uint32_t)peer->rank,
        .link = link,
        .n_links = peer->n_links,
        .n_fifos = peer->size.n_fifos,
        .slot_bytes = peer->size.slot_bytes,
    };
}

static gyre_status introduce(const struct socket_peer *peer, uint32_t link, int fd,
                             uint64_t deadline_ns)
{
    const struct gyre_transport_config *config = &peer->transport->config;
    const struct socket_hello mine = socket_make_hello(peer, link);
    struct socket_hello theirs;
    GYRE_TRY(config->authenticate(fd, config->secret, false, deadline_ns));
    GYRE_TRY(gyre_sock_send(fd, &mine, sizeof(mine), deadline_ns));
    GYRE_TRY(gyre_sock_recv(fd, &theirs, sizeof(theirs), deadline_ns));
    if (theirs.magic != HELLO_MAGIC || theirs.from_rank != mine.to_rank ||
        theirs.to_rank != mine.from_rank || theirs.link != link)
        return gyre_fail(GYRE_ERROR_REMOTE, "answered as rank %u", theirs.from_rank);
    return GYRE_SUCCESS;
}

/* Sets the descriptor that socket_caller_stop shuts down; -1 = none. Returns false if the caller is
 * stopped. */
static bool show_fd(struct socket_caller *caller, int fd)
{
    pthread_mutex_lock(caller->lock);
    const bool goes_on = !caller->stops;
    caller->handshake_fd = goes_on ? fd : -1;
    pthread_mutex_unlock(caller->lock);
    return goes_on;
}

static gyre_status try_address(struct socket_caller *caller, struct socket_peer *peer,
                               uint32_t link, int index, uint64_t try_ns)
{
    int fd = -1;
    const uint64_t now_ns = gyre_now_ns();
    GYRE_TRY(gyre_sock_connect(&peer->addresses[index],
                               gyre_min_u64(caller->deadline_ns, now_ns + try_ns), &fd));
    gyre_status status = GYRE_ERROR_ABORTED; /* the caller was stopped, so the status is not read */
    if (show_fd(caller, fd))
        status = introduce(peer, link, fd,
                           gyre_min_u64(caller->deadline_ns, now_ns + SOCKET_HANDSHAKE_NS));
    show_fd(caller, -1);
    if (status == GYRE_SUCCESS)
        peer->links[link].fd = fd;
    else
        gyre_sock_close(fd);
    return status;
}

/* Tries all addresses, beginning with the address that worked last. @whys_out: the error of
 * each. */
static gyre_status try_addresses(struct socket_caller *caller, struct socket_peer *peer,
                                 uint32_t link, uint64_t try_ns, bool *is_limited_out,
                                 char *whys_out, size_t why_bytes)
{
    gyre_status status = GYRE_ERROR_REMOTE;
    size_t used = 0;
    snprintf(whys_out, why_bytes, "it told of no address that this rank could reach");
    for (int i = 0; i < peer->n_addresses && show_fd(caller, -1); i++) {
        const int index = (peer->preferred + i) % peer->n_addresses;
        status = try_address(caller, peer, link, index, try_ns);
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

static gyre_status connect_link(struct socket_caller *caller, struct socket_peer *peer,
                                uint32_t link)
{
    const struct timespec retry_nap = {0, RETRY_NAP_NS};
    char whys[600];
    /* The attempts are short at first, because an address that does not answer may come before one
     * that does. */
    for (uint64_t try_ns = FIRST_TRY_NS;; try_ns = gyre_min_u64(2 * try_ns, CONNECT_TRY_NS)) {
        bool is_limited = false;
        const gyre_status status =
            try_addresses(caller, peer, link, try_ns, &is_limited, whys, sizeof(whys));
        if (status == GYRE_SUCCESS || !show_fd(caller, -1))
            return status;
        if (is_limited || gyre_now_ns() >= caller->deadline_ns)
            return gyre_fail(status, "rank %d (%s): %s", peer->rank,
                             peer->transport->config.infos[peer->rank].host_name, whys);
        nanosleep(&retry_nap, NULL);
    }
}

static gyre_status connect_all(struct socket_caller *caller)
{
    struct socket_transport *transport = caller->transport;
    for (int i = 0; i < transport->n_peers; i++) {
        struct socket_peer *peer = &transport->peers[i];
        for (uint32_t l = 0; peer->rank > transport->config.rank && l < peer->n_links; l++)
            GYRE_TRY(connect_link(caller, peer, l));
    }
    return GYRE_SUCCESS;
}

static void *caller_main(void *argument)
{
    struct socket_caller *caller = argument;
    const gyre_status status = connect_all(caller);
    pthread_mutex_lock(caller->lock);
    caller->status = status;
    snprintf(caller->cause, sizeof(caller->cause), "%s", gyre_cause());
    caller->is_done = true;
    pthread_cond_broadcast(caller->changed);
    pthread_mutex_unlock(caller->lock);
    return NULL;
}

gyre_status socket_caller_start(struct socket_caller *caller, struct socket_transport *transport,
                                uint64_t deadline_ns, pthread_mutex_t *lock,
                                pthread_cond_t *changed)
{
    const int n_peers = transport->n_peers;
    *caller = (struct socket_caller){.transport = transport,
                                     .deadline_ns = deadline_ns,
                                     .lock = lock,
                                     .changed = changed,
                                     .handshake_fd = -1};
    /* The peers are in ascending order, so the last one is the highest. */
    caller->has_thread = n_peers > 0 && transport->peers[n_peers - 1].rank > transport->config.rank;
    caller->is_done = !caller->has_thread;
    if (!caller->has_thread)
        return GYRE_SUCCESS;
    return gyre_thread_start(&caller->thread, 0, caller_main, caller, "connecting to other ranks");
}

gyre_status socket_caller_result(const struct socket_caller *caller)
{
    if (caller->status != GYRE_SUCCESS)
        gyre_set_cause(caller->cause);
    return caller->status;
}

void socket_caller_stop(struct socket_caller *caller)
{
    if (!caller->has_thread)
        return;
    pthread_mutex_lock(caller->lock);
    caller->stops = true;
    if (caller->handshake_fd >= 0)
        shutdown(caller->handshake_fd, SHUT_RDWR); /* ends the thread's waits */
    pthread_mutex_unlock(caller->lock);
    pthread_join(caller->thread, NULL);
}
