/* SPDX-License-Identifier: Apache-2.0
 *
 * One-sided calls to ranks that a proxy serves, such as those of other hosts. This rank cannot
 * address their memory. So it sends messages on put links (transport/transport.h), and the
 * receiving rank writes the bytes into its own window and counts up its own signals.
 */
#ifndef GYRE_COMM_PUT_PEERS_H
#define GYRE_COMM_PUT_PEERS_H

#include "core/engine/links/links.h"
#include "core/engine/plan/call.h"

struct gyre_comm;

/* One rank's part. All zero until the communicator's first window, and where no proxy serves any
 * pair of ranks. */
struct gyre_put_peers {
    struct gyre_put_transports transports;
    struct gyre_put_links *links; /* NULL = not open */
    struct gyre_remote_puts remote;
    pthread_mutex_t lock; /* guards the windows against the thread that takes messages */
    struct gyre_window_entry *newest; /* all ranks have made it, but it is not in the list yet */
    bool is_detached;                 /* under lock: the executor may be closed */
    uint32_t *n_fences;               /* by rank: fences that have come; the taker writes it */
    uint32_t n_sent;                  /* fences that were sent to each rank */
    uint64_t *blocked;                /* by rank: n_ended of its BLOCKED; the taker writes it */
    uint64_t *told_blocked;           /* by rank: n_ended of the BLOCKED that was sent to it */
};

/** gyre_put_peers_open - make the put links of this rank, unless they exist. Collective. Does
 * nothing where no proxy serves any pair. A failure ends the communicator on all ranks. */
gyre_status gyre_put_peers_open(struct gyre_comm *comm);

/** gyre_put_peers_expect - from now on other ranks may write into this window, which is not in the
 * list yet. NULL: it is there now, or there is none. */
void gyre_put_peers_expect(struct gyre_comm *comm, struct gyre_window_entry *entry);

/** gyre_put_peers_lock / unlock - around every change of the list of windows. */
void gyre_put_peers_lock(struct gyre_comm *comm);
void gyre_put_peers_unlock(struct gyre_comm *comm);

/** gyre_put_peers_fence - wait until all messages have been taken that any rank sent to this one
 * before its call. Collective. Errors: the communicator's fault, TIMEOUT (GYRE_BOOTSTRAP_TIMEOUT).
 */
gyre_status gyre_put_peers_fence(struct gyre_comm *comm);

/** gyre_put_peers_tell_blocked - tell the ranks behind put links that this rank, which leaves,
 * waits for signals. Does not block. Ranks whose link has no room are told by a later call. */
void gyre_put_peers_tell_blocked(struct gyre_comm *comm, uint64_t n_ended);

/** gyre_put_peers_blocked_of - n_ended that a rank behind a put link has told, 0 if none. All
 * signals that it had sent before have arrived. */
uint64_t gyre_put_peers_blocked_of(const struct gyre_comm *comm, int rank);

/** gyre_put_peers_leave - this rank makes no one-sided call any more: tell the other ranks. */
void gyre_put_peers_leave(struct gyre_comm *comm);

/** gyre_put_peers_detach - the executor is about to be closed: messages do not reach it any more.
 */
void gyre_put_peers_detach(struct gyre_comm *comm);

/** gyre_put_peers_close - close the put links. The executor is closed. */
void gyre_put_peers_close(struct gyre_comm *comm);

#endif
