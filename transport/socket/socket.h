/* SPDX-License-Identifier: Apache-2.0
 *
 * A pair of ranks has n_links TCP connections (links); FIFO f and its credit travel over link f %
 * n_links. Only thread l % n_threads uses link l of every peer and its FIFOs.
 *
 * On the wire: a frame is a header and, for data, the slot's bytes. A batch is first the headers of
 * all its frames, then their payloads in the same order, so one system call reads it into its
 * slots. A slot is sent only with credit.
 *
 * Slots of LL are frames of FIFOs of their own, numbered behind those of SIMPLE, and travel without
 * flags. The receiving proxy stores the lines in whole words, because an executor polls them. All
 * lines of a pair use link 0, so a small call in several channels is one batch.
 */
#ifndef GYRE_TRANSPORT_SOCKET_H
#define GYRE_TRANSPORT_SOCKET_H

#include "core/foundation/base/sock.h"
#include "transport/proxy.h"
#include "transport/transport.h"

#include <pthread.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frames are little endian"
#endif

#define SOCKET_MAX_ADDRESSES 8
#define SOCKET_MAX_LINKS     16   /* of a pair; SOCKET_NSOCKS's highest */
#define SOCKET_STAGING_BYTES 4096 /* for headers and small slots */
#define SOCKET_BATCH_FRAMES  32
/* Credit waits behind one batch at most. */
#define SOCKET_BATCH_BYTES 262144

enum socket_frame_kind {
    SOCKET_FRAME_DATA = 1,   /* value = slot_info, of LL n_lines; then the data */
    SOCKET_FRAME_CREDIT = 2, /* value = slots consumed so far */
    SOCKET_FRAME_BYE = 3,    /* no failure */
    SOCKET_FRAME_FAULT = 4   /* value = bytes of the cause that follows */
};

struct socket_header {
    uint16_t kind;
    uint16_t n_following; /* headers of its batch behind it */
    uint32_t fifo;
    uint64_t value;
};

GYRE_STATIC_ASSERT(sizeof(struct socket_header) == 16, "a wire format");

struct socket_fifo {
    struct gyre_proxy_fifo send; /* inbox and credit serve both protocols */
    struct gyre_proxy_fifo recv;
    enum gyre_proto proto;
    uint64_t n_batched;
    uint64_t n_sent;      /* slots that the kernel took */
    uint64_t n_credited;  /* slots that the peer consumed */
    uint64_t n_announced; /* slots whose header was received */
    uint64_t n_arrived;   /* of SIMPLE = tail of `recv` */
    uint64_t n_returned;  /* consumed slots, as the peer knows */
};

struct socket_payload {
    const unsigned char *bytes;
    uint32_t n_bytes;
};

struct socket_arrival {
    struct socket_fifo *fifo;
    uint64_t info;
    unsigned char *at;
    uint32_t left_bytes;
};

struct socket_link {
    int fd; /* -1: none */
    uint32_t index;
    uint32_t n_simple;
    uint32_t n_fifos; /* with those of LL on the first link */
    struct socket_peer *peer;
    struct socket_thread *thread;
    bool is_readable;
    bool is_writable;
    bool is_ending; /* the peer closed: read to the end */
    bool has_bye;
    struct gyre_sock_address remote;
    const char *interface;
    uint32_t epoch;            /* of its connection; grows with each attempt */
    uint64_t broken_since_ns;  /* 0 = it is not */
    uint64_t refused_since_ns; /* the peer's listening socket refuses; 0 = not */
    char broken_why[240];

    unsigned char staging[SOCKET_STAGING_BYTES];
    uint32_t staged_bytes;
    struct socket_arrival arrivals[SOCKET_BATCH_FRAMES];
    uint32_t n_arrivals;
    uint32_t first_arrival;
    uint32_t n_following;         /* headers of the batch to come */
    unsigned char *line_arrivals; /* NULL = no lines on this link */
    uint32_t line_arrival_bytes;

    struct socket_header headers[SOCKET_BATCH_FRAMES];
    struct socket_payload payloads[SOCKET_BATCH_FRAMES];
    uint32_t n_batch;
    uint32_t headers_sent_bytes;
    uint32_t first;
    uint32_t first_sent_bytes; /* of the payload of frames[first] */
    uint32_t next_fifo;        /* round robin */
    unsigned char *unpacked;
    uint32_t unpacked_bytes;
};

struct socket_peer {
    struct socket_transport *transport;
    int rank;
    uint32_t n_links;
    struct gyre_sock_address addresses[SOCKET_MAX_ADDRESSES]; /* the likeliest first */
    int n_addresses;
    int preferred;
    struct socket_link *links;
    struct gyre_fifo_size size;
    uint32_t n_fifos;          /* twice size.n_fifos with lines */
    struct socket_fifo *fifos; /* of SIMPLE, then of LL */
};

struct socket_thread {
    struct socket_transport *transport;
    uint32_t index;
    int epoll_fd;
    struct gyre_proxy *proxy;
    struct gyre_trace_event moving;
    uint64_t watched_ns;
};

struct socket_transport {
    struct gyre_transport base;
    struct gyre_transport_config config;
    struct gyre_sock_interface addresses[SOCKET_MAX_ADDRESSES]; /* this rank's */
    int listen_fds[SOCKET_MAX_ADDRESSES];
    int n_addresses;
    int n_links;
    int n_peers;
    struct socket_peer *peers;
    void *memory;
    size_t memory_bytes;
    struct socket_thread threads[SOCKET_MAX_LINKS];
    uint32_t n_threads;
    struct gyre_trace_buffer *recorded; /* NULL: nothing is */
    pthread_mutex_t recording;          /* held to write into `recorded` */
    struct gyre_wire wire;
    bool survives_resets; /* GYRE_FAILOVER: a broken link is connected again */
    struct setup *setup;  /* NULL: before set-up, or its threads have ended */
};

/* ---- socket.c ------------------------------------------------------------------------------- */

/** The link's thread moves its connection. */
gyre_status socket_watch_link(struct socket_link *link);

uint32_t socket_line_batch_bytes(const struct gyre_fifo_spec *spec);

/* ---- socket_address.c ----------------------------------------------------------------------- */

/* Sent between ranks. */
struct socket_blob {
    uint64_t magic;
    uint64_t network_id; /* of the network namespace, within which loopback works */
    uint32_t rank;
    uint32_t n_links;
    uint32_t n_addresses; /* all or none are loopback */
    uint32_t pad;
    struct {
        struct gyre_sock_address address;
        uint32_t place; /* of the interface among the rank's */
    } addresses[SOCKET_MAX_ADDRESSES];
};

/** On the allowed interfaces, in the order of gyre_sock_list_addresses; of one interface
 * config->rendezvous comes first. Errors: INVALID_ARGUMENT (no interface), SYSTEM. */
gyre_status socket_listen(struct socket_transport *transport);
void socket_stop_listening(struct socket_transport *transport);

/** @blob_out: malloc'ed. */
gyre_status socket_make_blob(const struct socket_transport *transport,
                             struct socket_blob **blob_out);

/** Sorts the peer's addresses by how likely this rank reaches them. Errors: REMOTE (not a blob),
 * INVALID_USAGE (one of the two has only loopback addresses, the other is in another network),
 * naming the interfaces. */
gyre_status socket_read_blob(struct socket_peer *peer, const unsigned char *bytes, size_t n_bytes,
                             uint32_t *n_links_out);

static inline uint32_t socket_nth_fifo(const struct socket_link *link, uint32_t n)
{
    return n < link->n_simple ? link->index + n * link->peer->n_links
                              : link->peer->size.n_fifos + n - link->n_simple;
}

/* ---- socket_setup.c ------------------------------------------------------------------------- */

/** Errors: TIMEOUT naming the missing ranks, the fault's, REMOTE naming a rank that died or gave
 * up, SYSTEM. */
gyre_status socket_setup_links(struct socket_transport *transport, uint64_t deadline_ns);

/** When the proxies run. */
void socket_begin_resuming(struct socket_transport *transport);

/** socket_stop_setup, socket_end_setup - before and after the proxies are closed. */
void socket_stop_setup(struct socket_transport *transport);
void socket_end_setup(struct socket_transport *transport);

/* When all links are connected, before the proxies start. */

/** Sets wire.mbit_per_s on one rank of each host, if interfaces tell no true rate and GYRE_NET_RATE
 * is not set. Waits for both other ranks that take part. Errors: the fault's, REMOTE, TIMEOUT. */
gyre_status socket_measure_rate(struct socket_transport *transport, uint64_t deadline_ns);

void socket_measure_round_trip(struct socket_transport *transport);

bool socket_move(void *context);

bool socket_is_behind(const void *context, bool has_credit);

/** Regular after a goodbye, unless a frame is incomplete or slots to the peer were not sent.
 * @error: errno of the read; 0 = the end of the stream. */
void socket_end_stream(struct socket_link *link, int error);

/** Closes the link; false. @why: the rule that the frame breaks. */
bool socket_refuse(struct socket_link *link, const struct socket_header *header, const char *why);

/** socket_record_begin, _slot, _end - one read or send, dropped if it has no bytes. */
void socket_record_begin(struct socket_thread *thread, enum gyre_trace_kind kind);
void socket_record_slot(const struct socket_link *link, const struct socket_fifo *fifo,
                        uint64_t number, bool is_out);
void socket_record_end(struct socket_thread *thread, size_t n_bytes);

/* Called by the link's thread only. */

static inline uint32_t socket_depth(const struct socket_link *link)
{
    return link->peer->transport->config.spec.depth;
}

static inline struct gyre_line_slots socket_lines(const struct gyre_proxy_fifo *end)
{
    return (struct gyre_line_slots){end->slots, end->slot_bytes, end->depth};
}

/** True if bytes came. Clears is_readable when the socket is empty; ends the link with the stream,
 * or if the peer breaks the protocol. */
bool socket_receive(struct socket_link *link);

/** Sends the batch, or a new one. True if the kernel took any bytes. */
bool socket_send(struct socket_link *link);

bool socket_is_link_behind(const struct socket_link *link, bool has_credit);

void socket_clear_batch(struct socket_link *link);

/** Gives slots that the kernel took back to the executor. With survives_resets the peer has
 * consumed them, too, so what it lacks still exists (docs/failover.md). */
void socket_release_slots(const struct socket_link *link, const struct socket_fifo *fifo);

/** Published slots not yet wholly sent. */
uint64_t socket_count_unsent(const struct socket_link *link);

/** After the proxy has stopped: the rest of the batch, then a goodbye or this rank's failure
 * (@cause; NULL = none). */
void socket_say_bye(struct socket_link *link, const char *cause, uint64_t deadline_ns);

/* Set-up. Of two ranks the lower one connects and the higher one accepts. One thread connects,
 * because a handshake with a stopped rank takes seconds; a second one accepts. An accepted
 * connection is a joiner until it has proved that it knows the secret and told its rank. Each
 * joiner has a thread and a short deadline of its own, so a stranger delays no rank. Of too many
 * the oldest is closed, and tries again.
 *
 * When a link that broke goes on (docs/failover.md), both hellos tell the counts of its FIFOs. The
 * connecting rank numbers its attempts, so an old one never replaces a later one. */
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

#define SOCKET_TAKEN 1 /* a byte after the answer to a hello of set-up */

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

/* ---- socket_move.c  ------------------------------------------------------------------------ */

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
