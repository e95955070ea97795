/* SPDX-License-Identifier: Apache-2.0
 *
 * The proxy's client of the socket transport. On each of the transport's threads it takes the
 * events of the thread's links, and lets each link receive and send in turn.
 */
#include "transport/socket/socket_move.h"

#include <sys/epoll.h>

/* How often one link is read before it is written and the other links are served. */
#define READS_PER_TURN  2
#define EVENTS_PER_TURN 32

static void take_events(const struct socket_thread *thread)
{
    struct epoll_event events[EVENTS_PER_TURN];
    const int n_events = epoll_wait(thread->epoll_fd, events, EVENTS_PER_TURN, 0);
    for (int i = 0; i < n_events; i++) {
        struct socket_link *link = events[i].data.ptr;
        const uint32_t mask = events[i].events;
        link->is_ending = link->is_ending || (mask & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
        link->is_readable = link->is_readable || (mask & EPOLLIN) != 0 || link->is_ending;
        link->is_writable = link->is_writable || (mask & EPOLLOUT) != 0;
    }
}

static bool move_link(struct socket_link *link)
{
    bool has_moved = false;
    for (int i = 0; i < READS_PER_TURN && link->is_readable; i++)
        has_moved = socket_receive(link) || has_moved;
    if (link->fd < 0) {
        /* The peer has left, so a rank that still sends to it would wait for ever. */
        if (link->has_bye && socket_count_unsent(link) > 0)
            socket_blame(link, GYRE_ERROR_REMOTE, "it left before slots to it were sent");
        return has_moved;
    }
    return socket_send(link) || has_moved;
}

bool socket_move(void *context)
{
    struct socket_thread *thread = context;
    const struct socket_transport *transport = thread->transport;
    bool has_moved = false;
    take_events(thread);
    for (int i = 0; i < transport->n_peers; i++)
        for (uint32_t l = thread->index; l < transport->peers[i].n_links; l += transport->n_threads)
            has_moved = move_link(&transport->peers[i].links[l]) || has_moved;
    if (!has_moved)
        socket_watch(thread);
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
