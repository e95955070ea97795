/* SPDX-License-Identifier: Apache-2.0
 *
 * Wire structs are little endian, as all machines that gyre runs on.
 */
#ifndef GYRE_BOOTSTRAP_WIRE_H
#define GYRE_BOOTSTRAP_WIRE_H

#include "bootstrap/bootstrap.h"
#include "core/foundation/base/sock.h"

#include <assert.h>
#include <pthread.h>

#define GYRE_WIRE_VERSION       3
#define GYRE_ID_MAGIC           0x45525947u /* "GYRE" */
#define GYRE_HOST_MAX_BYTES     64
#define GYRE_TEXT_MAX_BYTES     768
#define GYRE_GATHER_MAX_BYTES   (16u << 20) /* of all ranks */
#define GYRE_GATHER_V_MAX_BYTES (1u << 20)  /* of a rank, if n_ranks > 16 */
#define GYRE_WIRE_MAX_RANKS     65536

struct gyre_id_layout {
    uint32_t magic;
    uint32_t wire_version;
    struct gyre_sock_list list;
    uint8_t secret[GYRE_SECRET_BYTES];
    uint64_t nonce;
    uint64_t created_unix_s;
    uint64_t checksum; /* of everything before it */
};
static_assert(sizeof(struct gyre_id_layout) == GYRE_UNIQUE_ID_BYTES, "the id is 128 bytes");

/** Errors: INVALID_ARGUMENT (not an id), INVALID_USAGE (another wire version). */
gyre_status gyre_id_read(const gyre_unique_id *id, struct gyre_id_layout *layout_out);

enum gyre_frame_type {
    GYRE_FRAME_JOIN = 1, /* rank to server: gyre_frame_join */
    GYRE_FRAME_JOINED,   /* server to rank: gyre_frame_joined */
    GYRE_FRAME_GATHER,   /* rank to server */
    GYRE_FRAME_GATHERED, /* server to rank: uint32_t n_bytes[n_ranks], then the bytes, by rank */
    GYRE_FRAME_POST,     /* `rank`: receiver or -1 to the server, sender to a rank */
    GYRE_FRAME_FAIL,     /* both ways: text; also instead of joining */
    GYRE_FRAME_LEAVE,    /* rank to server */
    GYRE_FRAME_LEFT,     /* server to rank */
    GYRE_FRAME_LOST,     /* server to rank: text */
    GYRE_FRAME_ERROR     /* server to rank: text; `sequence` = status */
};

struct gyre_frame {
    uint32_t type;
    int32_t rank;
    uint32_t sequence;
    uint32_t n_bytes;
};
static_assert(sizeof(struct gyre_frame) == 16, "wire");

struct gyre_frame_join {
    uint32_t wire_version;
    uint32_t library_version;
    int32_t n_ranks;
    int32_t rank;
    int32_t pid;
    uint32_t zero;
    uint64_t host_hash;
    char host[GYRE_HOST_MAX_BYTES];
};
static_assert(sizeof(struct gyre_frame_join) == 96, "wire");

struct gyre_frame_joined {
    int32_t server_rank; /* lowest rank in its process, or -1 */
    int32_t server_pid;
    char server_host[GYRE_HOST_MAX_BYTES];
};
static_assert(sizeof(struct gyre_frame_joined) == 72, "wire");

#define GYRE_FRAME_MAX_BYTES (1u << 30)

size_t gyre_gather_cap(int n_ranks);

gyre_status gyre_gather_check(int n_ranks, size_t n_bytes, bool is_fixed);
gyre_status gyre_post_check(int n_ranks, int rank, size_t n_bytes);

/* Challenge and response. Server: hello(nonce). Client: hello(nonce), proof. Server: proof. A proof
 * is HMAC-SHA256 over the prover's role and both nonces, so a reflected one is worthless. */

#define GYRE_NONCE_BYTES 32
#define GYRE_PROOF_BYTES 32

struct gyre_hello {
    uint32_t magic;
    uint8_t nonce[GYRE_NONCE_BYTES];
};

struct gyre_answer {
    struct gyre_hello hello;
    uint8_t proof[GYRE_PROOF_BYTES];
};
static_assert(sizeof(struct gyre_answer) == 68, "wire");

/* A connection before its proof, on the accepting side. Nothing waits for it. */
struct gyre_stranger {
    int fd;
    uint64_t born_ns;
    struct gyre_hello hello;
    struct gyre_answer answer;
    size_t n_read;
};

bool gyre_stranger_greet(struct gyre_stranger *stranger_out, int fd);

enum gyre_stranger_state { GYRE_STRANGER_WAITS, GYRE_STRANGER_PROVED, GYRE_STRANGER_REFUSED };

/** Reads only the answer. Threads that nobody joins call gyre_authenticate_release() later. */
enum gyre_stranger_state gyre_stranger_read(struct gyre_stranger *stranger,
                                            const uint8_t secret[GYRE_SECRET_BYTES]);

enum gyre_stranger_room {
    GYRE_STRANGER_ROOM,
    GYRE_STRANGER_EVICT, /* once the oldest is dropped */
    GYRE_STRANGER_FULL
};

/** @oldest: NULL = none. */
enum gyre_stranger_room gyre_stranger_room(int n_strangers, const struct gyre_stranger *oldest);

struct gyre_wire_watch {
    struct gyre_sock_address own; /* family 0 = unknown */
    uint32_t n_segments;
    uint64_t n_acked_bytes;
    uint64_t looked_ns;
    uint64_t silent_ns;  /* since the last segment */
    uint64_t unheard_ns; /* unacknowledged bytes wait so long */
};

void gyre_wire_watch_start(int fd, struct gyre_wire_watch *watch_out);

/** The peer's kernel was silent for 7 s. Call it about once a second while waiting. */
bool gyre_wire_is_silent(int fd, struct gyre_wire_watch *watch);

/** The peer hears of the end at once. The descriptor stays open. */
void gyre_wire_reset(int fd);

/** Follows "pid 4321 on hostB". @error_number: of recv(2) or send(2), 0 = closed by the peer,
 * ETIMEDOUT = silent. @text_out: 160 bytes. */
const char *gyre_wire_end_text(int fd, int error_number, const struct gyre_wire_watch *watch,
                               char *text_out, size_t text_bytes);

/** Waits a tenth of a second. @has_word_out: something can be read, or the connection has ended.
 * Errors: TIMEOUT (past the deadline), REMOTE (silent peer). */
gyre_status gyre_wire_await(int fd, struct gyre_wire_watch *watch, uint64_t deadline_ns,
                            bool *has_word_out);

struct gyre_event_node {
    struct gyre_event_node *next;
    struct gyre_event event;
};

struct gyre_event_queue {
    struct gyre_event_node *first;
    struct gyre_event_node *last;
    int n_messages; /* bounded; the ranks bound losses and goodbyes */
};

/** Copies `bytes`, cut to what fits. Drops messages beyond a bound. */
void gyre_events_push(struct gyre_event_queue *queue, enum gyre_event_kind kind, int rank,
                      const void *bytes, size_t n_bytes);

bool gyre_events_pop(struct gyre_event_queue *queue, struct gyre_event *event_out);

void gyre_events_clear(struct gyre_event_queue *queue);

gyre_status gyre_gathered_check(const void *payload, size_t n_payload, int n_ranks);

/** @payload: checked. Errors: INVALID_USAGE naming a rank with other n_bytes. */
gyre_status gyre_gathered_fixed(const void *payload, int n_ranks, size_t n_bytes, void *all_out);

gyre_status gyre_gathered_v(const void *payload, int n_ranks, void **all_out, size_t *offsets_out);

/* A rank's link to the server. Any thread may send, under one lock. One waiting thread reads the
 * socket for all, so a gather works while another thread polls. */

struct gyre_tcp {
    struct gyre_bootstrap base;
    int fd;
    int wake_fd;
    uint64_t timeout_ns;
    char server_text[256];
    int n_addresses;
    struct gyre_frame_joined joined;
    pthread_mutex_t send_lock;
    bool is_send_broken; /* by a cut frame; under send_lock */

    /* Under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_reading; /* the reading thread alone uses the frame below */
    bool is_woken;
    bool is_joined;
    bool is_closed;
    bool server_rank_left;
    gyre_status broken;
    char broken_text[GYRE_TEXT_MAX_BYTES];
    struct gyre_event_queue events;
    uint32_t sequence;
    void *result;
    size_t n_result;

    struct gyre_frame frame;
    uint8_t *payload;
    size_t n_read;
    struct gyre_wire_watch watch;
    uint64_t next_look_ns;
};

/** If part of a frame was sent, the link cannot send any more. Any thread. */
gyre_status gyre_tcp_send(struct gyre_tcp *tcp, const struct gyre_frame *frame, const void *payload,
                          uint64_t deadline_ns);

/** Under `lock`. The first reason stays. */
void gyre_tcp_set_broken(struct gyre_tcp *tcp, gyre_status status, const char *text);

/** Reads, or waits for the reader, until something may have changed. Releases `lock` meanwhile. */
void gyre_tcp_wait(struct gyre_tcp *tcp, uint64_t deadline_ns);

#endif
