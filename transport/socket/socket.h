/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the socket transport: its state, shared by set-up (socket_address.c, socket_setup.c,
 * socket_call.c), data path (socket_move.h, socket_watch.c) and the transport's slots (socket.c). A
 * pair of ranks has n_links TCP connections; FIFO f travels over link f % n_links, its credit the
 * other way over the same one. Link l of every peer belongs to thread l % n_threads of the
 * transport, so no two threads touch the same link or FIFO.
 *
 * On the wire: a frame is a header and, for data, the slot's bytes. Frames travel in batches: first
 * the headers of all frames, then the payloads in the same order. So a receiver knows where the
 * whole batch goes, and one system call reads it. A sender sends a slot only when it has credit for
 * it, so a receiver always has a free slot for what arrives and never stops reading: nothing waits
 * behind a FIFO that is stuck.
 *
 * With lines (gyre_fifo_spec.net_line_bytes) each FIFO has slots of LL besides those of SIMPLE. On
 * the wire they are frames of a FIFO of their own, whose number is higher by the number of FIFOs.
 * The proxy of the sender waits for the flags of a slot's lines and sends their data without the
 * flags. The proxy of the receiver stores the data as lines, each word as a whole, because an
 * executor polls them. All lines of a pair go over its first connection: a small call in several
 * channels is one batch.
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

#define SOCKET_MAX_ADDRESSES 8    /* of a rank */
#define SOCKET_MAX_LINKS     16   /* of a pair; SOCKET_NSOCKS's highest */
#define SOCKET_STAGING_BYTES 4096 /* headers are read here, together with small slots */
#define SOCKET_BATCH_FRAMES  32   /* of one sendmsg */
/* A rank needs a few round trips to prove itself; even a very slow network does them in this
 * time. */
#define SOCKET_HANDSHAKE_NS 5000000000ULL
/* Payload of one batch. A credit waits behind at most one batch, and a batch is large enough to
 * make the time of its system call negligible. */
#define SOCKET_BATCH_BYTES 262144

enum socket_frame_kind {
    SOCKET_FRAME_DATA = 1,   /* value = slot_info, of LL the number of lines; followed by its data
                              */
    SOCKET_FRAME_CREDIT = 2, /* value = slots consumed so far */
    SOCKET_FRAME_BYE = 3,    /* the stream ends next, which is no failure */
    SOCKET_FRAME_FAULT = 4   /* this rank ends because of a fault; value = bytes of the cause that
                                follows. The peer then blames the right rank */
};

struct socket_header {
    uint16_t kind;
    uint16_t n_following; /* headers of the same batch behind this one */
    uint32_t fifo;
    uint64_t value;
};

GYRE_STATIC_ASSERT(sizeof(struct socket_header) == 16, "a wire format");

/* Both directions of one FIFO index of a pair of ranks, of one protocol. Only the link's thread
 * uses it, except for the words of proxy_fifo. */
struct socket_fifo {
    struct gyre_proxy_fifo send; /* its inbox and credit are the same for both protocols */
    struct gyre_proxy_fifo recv; /* likewise */
    enum gyre_proto proto;       /* SIMPLE or LL */
    uint64_t n_batched;          /* slots put into batches */
    uint64_t n_sent;             /* slots whose bytes the kernel took = head of `send` */
    uint64_t n_credited;         /* slots that the peer has consumed */
    uint64_t n_announced;        /* slots whose header was received */
    uint64_t n_arrived;          /* slots received; of SIMPLE = tail of `recv` */
    uint64_t n_returned;         /* consumed slots that the peer knows of */
};

struct socket_payload {
    const unsigned char *bytes;
    uint32_t n_bytes;
};

/* A slot whose header was received. */
struct socket_arrival {
    struct socket_fifo *fifo;
    uint64_t info; /* its slot_info */
    unsigned char *at;
    uint32_t left_bytes;
};

/* One TCP connection. */
struct socket_link {
    int fd; /* -1: none */
    uint32_t index;
    uint32_t n_simple; /* FIFOs of SIMPLE that go over it */
    uint32_t n_fifos;  /* these, and on the first link those of LL */
    struct socket_peer *peer;
    struct socket_thread *thread; /* that moves it */
    bool is_readable;             /* until a read comes back short */
    bool is_writable;             /* until a write comes back short */
    bool is_ending;               /* the peer closed: read until the end of the stream */
    bool has_bye;
    struct gyre_sock_address remote; /* the peer's end */
    const char *interface;           /* name of the interface that has this end's address */

    /* receiving */
    unsigned char staging[SOCKET_STAGING_BYTES];
    uint32_t staged_bytes;
    struct socket_arrival arrivals[SOCKET_BATCH_FRAMES]; /* slots of the batch that is arriving */
    uint32_t n_arrivals;
    uint32_t first_arrival; /* the first one that is not complete */
    uint32_t n_following;   /* headers of the batch that have not come yet */
    unsigned char *landing; /* data of lines that are arriving; socket_line_batch_bytes() of them.
                             * NULL = no lines go over this link */
    uint32_t landing_bytes; /* in use */

    /* sending */
    struct socket_header headers[SOCKET_BATCH_FRAMES]; /* of the batch */
    struct socket_payload payloads[SOCKET_BATCH_FRAMES];
    uint32_t n_batch;            /* frames in the batch */
    uint32_t headers_sent_bytes; /* of all headers together */
    uint32_t first;              /* the first frame that is not completely sent */
    uint32_t first_sent_bytes;   /* of that frame's payload */
    uint32_t next_fifo;          /* the FIFO at which the next batch begins to look, round robin */
    unsigned char *unpacked;     /* data of the batch's lines; as `landing` */
    uint32_t unpacked_bytes;     /* in use */
};

struct socket_peer {
    struct socket_transport *transport;
    int rank;
    uint32_t n_links;
    /* The addresses at which the peer listens, the likeliest first. The address that worked last is
     * tried first. */
    struct gyre_sock_address addresses[SOCKET_MAX_ADDRESSES];
    int n_addresses;
    int preferred;
    struct socket_link *links; /* n_links */
    struct gyre_fifo_size size;
    uint32_t n_fifos;          /* of both protocols: size.n_fifos, or twice as many with lines */
    struct socket_fifo *fifos; /* n_fifos: those of SIMPLE, then those of LL */
};

/* One proxy thread of the transport, and its part of every peer's links. */
struct socket_thread {
    struct socket_transport *transport;
    uint32_t index;
    int epoll_fd;
    struct gyre_proxy *proxy;
    struct gyre_trace_event moving; /* the read or send that is being recorded */
    uint64_t watched_ns;            /* when socket_watch() last looked at the links */
};

struct socket_transport {
    struct gyre_transport base;
    struct gyre_transport_config config;
    struct gyre_sock_interface
        addresses[SOCKET_MAX_ADDRESSES]; /* at which this rank listens, with ports */
    int listen_fds[SOCKET_MAX_ADDRESSES];
    int n_addresses; /* of both */
    int n_links;     /* links to each peer that this rank wants */
    int n_peers;
    struct socket_peer *peers; /* as config.peers */
    void *memory;              /* of all FIFO ends */
    size_t memory_bytes;
    struct socket_thread threads[SOCKET_MAX_LINKS];
    uint32_t n_threads;
    struct gyre_trace_buffer *recorded; /* NULL: nothing is recorded */
    struct gyre_wire wire;              /* what was measured of the network */
    pthread_mutex_t recording;          /* held by the thread that writes into `recorded` */
};

/* The addresses at which a rank listens. Ranks send it to each other, so its layout is fixed. */
struct socket_blob {
    uint64_t magic;
    uint64_t network_id; /* of its network namespace; ranks of one namespace can use loopback */
    uint32_t rank;
    uint32_t n_links;
    uint32_t n_addresses; /* either none or all of them are loopback addresses */
    uint32_t pad;
    struct {
        struct gyre_sock_address address;
        uint32_t place; /* of the interface in the rank's order of preference */
    } addresses[SOCKET_MAX_ADDRESSES];
};

/** socket_listen - listen on every usable address of the interfaces that the user allows, in the
 * order of gyre_sock_list_addresses. If config->rendezvous is an address of an interface, it comes
 * first there. Fills addresses and listen_fds. Errors: INVALID_ARGUMENT (no interface), SYSTEM. */
gyre_status socket_listen(struct socket_transport *transport);
void socket_stop_listening(struct socket_transport *transport);

/** socket_make_blob - describe the addresses at which this rank listens. @blob_out: malloc'ed. */
gyre_status socket_make_blob(const struct socket_transport *transport,
                             struct socket_blob **blob_out);

/** socket_read_blob - read the addresses at which the peer listens, and sort them by how likely
 * this rank reaches them, interface by interface. Errors: REMOTE (not a blob), INVALID_USAGE when
 * one of the two has only loopback addresses and the other is in another network; the cause names
 * the interfaces. */
gyre_status socket_read_blob(struct socket_peer *peer, const unsigned char *bytes, size_t n_bytes,
                             uint32_t *n_links_out);

/** socket_alloc_fifos - fill in who the peers are, and allocate both directions of all their FIFOs
 * in one block. */
gyre_status socket_alloc_fifos(struct socket_transport *transport);

/** socket_alloc_line_data - allocate `landing` and `unpacked` of a link over which lines go. */
gyre_status socket_alloc_line_data(struct socket_link *link);

/** socket_line_batch_bytes - the most data that the lines of one batch carry: at least a slot's. */
uint32_t socket_line_batch_bytes(const struct gyre_fifo_spec *spec);

/** socket_fill_connectors - fill in the connectors of all FIFOs of all peers. */
void socket_fill_connectors(const struct socket_transport *transport,
                            struct gyre_connector *connectors);

/** socket_note_ends - fill in `remote` and `interface` of a connected link. */
gyre_status socket_note_ends(struct socket_link *link);

/* The first bytes that both sides send on an authenticated link. */
struct socket_hello {
    uint64_t magic;
    uint32_t from_rank;
    uint32_t to_rank;
    uint32_t link;
    uint32_t n_links;
    uint32_t n_fifos;
    uint32_t slot_bytes;
};

GYRE_STATIC_ASSERT(sizeof(struct socket_hello) == 32, "a wire format");

/** socket_make_hello - the hello that this rank sends on a link to the peer. */
struct socket_hello socket_make_hello(const struct socket_peer *peer, uint32_t link);

/* Connects to higher ranks on a thread of its own. */
struct socket_caller {
    struct socket_transport *transport;
    uint64_t deadline_ns;
    pthread_t thread;
    bool has_thread; /* there are higher ranks */
    pthread_mutex_t *lock;
    pthread_cond_t *changed;
    /* under lock: */
    bool stops;
    bool is_done;
    int handshake_fd; /* -1: none */
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
};

/** socket_caller_start - start connecting. At the end is_done is set and `changed` is signalled. */
gyre_status socket_caller_start(struct socket_caller *caller, struct socket_transport *transport,
                                uint64_t deadline_ns, pthread_mutex_t *lock,
                                pthread_cond_t *changed);

/** socket_caller_result - the status with which connecting ended, with its cause. Only if is_done;
 * the caller holds the lock. */
gyre_status socket_caller_result(const struct socket_caller *caller);

/** socket_caller_stop - end connecting within CONNECT_TRY_NS, and join the thread. */
void socket_caller_stop(struct socket_caller *caller);

/** socket_setup_links - connect to higher ranks and accept lower ones, all links of all peers,
 * each of them authenticated. Strangers are dropped and never waited for.
 * Errors: TIMEOUT naming the ranks that are missing, the fault's, REMOTE naming a rank that died or
 * gave up meanwhile (within a second or so), SYSTEM. */
gyre_status socket_setup_links(struct socket_transport *transport, uint64_t deadline_ns);

/** socket_move - the proxy client: move whatever can be moved on the links of one thread.
 * @context: struct socket_thread. A dead peer is raised on the fault. */
bool socket_move(void *context);

/** socket_is_behind - has a thread's link published slots that the kernel has not taken?
 * @context: struct socket_thread. @has_credit: count only slots for which there is credit. */
bool socket_is_behind(const void *context, bool has_credit);

/** socket_watch_begin - prepare a connected link for socket_watch. */
gyre_status socket_watch_begin(const struct socket_link *link);

/** socket_watch - raise the fault for a link of the thread that the peer's kernel has not answered
 * for 10 s. To be called whenever there is nothing to move; looks a few times a second. */
void socket_watch(struct socket_thread *thread);

/** socket_measure_rate - fill in transport->wire.mbit_per_s on one rank of each host, if interfaces
 * tell no true rate and GYRE_NET_RATE is not set. To be called when all links are connected and
 * before the proxy starts. Takes 6 to 16 ms, on networks below 50 Mbit/s more, and waits until the
 * two other ranks that take part have come here. Errors: the fault's, REMOTE, TIMEOUT. */
gyre_status socket_measure_rate(struct socket_transport *transport, uint64_t deadline_ns);

/** socket_measure_round_trip - fill in transport->wire.round_trip_ns. To be called when all links
 * are connected and before the proxy starts, because the proxy closes the link of a peer that
 * leaves.
 */
void socket_measure_round_trip(struct socket_transport *transport);

/** socket_measure - the transport's `measure`, of what was found while connecting. */
void socket_measure(struct gyre_transport *base, struct gyre_wire *wire_out);

/** socket_say_bye - after the proxy has stopped, send the rest of the batch and a last frame. The
 * frame makes the end of the stream a regular one, or gives the cause of this rank's failure
 * (@cause; NULL = there was none). Ends by deadline_ns. */
void socket_say_bye(struct socket_link *link, const char *cause, uint64_t deadline_ns);

#endif
