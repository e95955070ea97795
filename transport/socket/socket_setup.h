/* SPDX-License-Identifier: Apache-2.0
 *
 * Of two ranks the lower one connects and the higher one accepts. One thread connects, because a
 * handshake with a stopped rank takes seconds; a second one accepts. An accepted connection is a
 * joiner until it has proved that it knows the secret and told its rank. Each joiner has a thread
 * and a short deadline of its own, so a stranger delays no rank. Of too many the oldest is closed;
 * if that was a rank, it tries again.
 *
 * A link that broke goes on where the receiving sides stopped (docs/failover.md): closing the
 * connection is its fence, and both hellos tell the counts of its FIFOs. The connecting rank
 * numbers its attempts, so an old one never replaces a later one.
 */
#ifndef GYRE_TRANSPORT_SOCKET_SETUP_H
#define GYRE_TRANSPORT_SOCKET_SETUP_H

#include "transport/socket/socket.h"

#define SOCKET_HANDSHAKE_NS 5000000000ULL /* a few round trips of a slow network take less */
#define SOCKET_RETRY_NAP_NS 10000000L

/* Both sides send it first. With epoch > 0 follow the counts of the link's FIFOs for which its
 * sender receives. */
struct hello {
    uint64_t magic;
    uint32_t from_rank;
    uint32_t to_rank;
    uint32_t link;
    uint32_t n_links;
    uint32_t n_fifos;
    uint32_t slot_bytes;
    uint32_t epoch; /* 0: at set-up */
    uint32_t pad;
};

GYRE_STATIC_ASSERT(sizeof(struct hello) == 40, "a wire format");

/* A wire format, too. */
struct socket_counts {
    uint64_t arrived; /* slots that arrived whole */
    uint64_t head;    /* of them, those that the executor consumed */
};

struct setup {
    struct socket_transport *transport;
    uint64_t deadline_ns;
    pthread_mutex_t lock;
    pthread_cond_t changed;

    pthread_t connecting;
    uint64_t connect_deadline_ns;
    bool is_started;
    bool stops; /* under the lock, as the next six */
    bool is_done;
    bool is_running; /* the proxies are */
    bool has_broken;
    int handshake_fd; /* -1: none */
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];

    pthread_t accepting;
    int stop_fd;
    int n_missing;                          /* links to accept; under the lock */
    int n_strangers;                        /* under the lock */
    char refusal[GYRE_CAUSE_MAX_BYTES / 2]; /* "" = accepting works; under the lock */
    uint64_t refused_ns; /* 0 = accepting works. This and the next: by the accepting thread */
    struct joiner *first;
};

struct hello socket_make_hello(const struct socket_peer *peer, uint32_t link, uint32_t epoch);

/** Begins with the address that worked last. @is_limited_out: this rank lacks descriptors or the
 * like. @whys_out: each address's error. */
gyre_status socket_try_addresses(struct setup *setup, struct socket_peer *peer, uint32_t link,
                                 uint64_t try_ns, bool *is_limited_out, char *whys_out,
                                 size_t why_bytes);

/* ---- socket_accept.c ------------------------------------------------------------------------ */

gyre_status socket_start_accepting(struct setup *setup);
void socket_stop_accepting(struct setup *setup);

/* ---- socket_resume.c ------------------------------------------------------------------------ */

/** Ends the link's connection and freezes the counts of its FIFOs. @epoch: of the attempt; 0 = the
 * next one. @counts_out: link->n_fifos. Returns the epoch; 0 = a later attempt has been here, or
 * the peer has left. */
uint32_t socket_halt(struct socket_link *link, uint32_t epoch, struct socket_counts *counts_out);

/** Goes on at the peer's counts; on success the link owns the descriptor. Errors: REMOTE
 * (impossible counts, which raises the fault; a later attempt). */
gyre_status socket_adopt(struct socket_link *link, int fd, uint32_t epoch,
                         const struct socket_counts *theirs);

/** The connecting thread's work after set-up. */
void socket_resume_links(struct setup *setup);

#endif
