/* SPDX-License-Identifier: Apache-2.0
 *
 * For the proxy thread, and those of ib_fencer.c and ib_probe.c.
 */
#ifndef GYRE_IB_PATH_H
#define GYRE_IB_PATH_H

#include "transport/ib/ib_transport.h"

#include <sys/uio.h>

/* wr_id: receive 1 | ends a part 1 | channel 14 | fifo 16 | lines 1 | slot 3 | n_posted 28 */
#define GYRE_IB_POSTED_BITS  28
#define GYRE_IB_POSTED_MASK  ((1ULL << GYRE_IB_POSTED_BITS) - 1)
#define GYRE_IB_CHANNEL_MASK (GYRE_IB_MAX_ALL_CHANNELS - 1)
#define GYRE_IB_WR_IS_RECV   (1ULL << 63)
#define GYRE_IB_WR_ENDS_PART (1ULL << 62)
#define GYRE_IB_WR_IS_LINES  (1ULL << 31)
#define GYRE_IB_WR_IS_FENCE  (GYRE_IB_WR_IS_RECV | GYRE_IB_WR_ENDS_PART) /* no channel */

/* imm: fifo 16 | slot 4 | parts - 1 4 | lines 1 | boxed 1. On the control channel, `lines` means
 * credit of LL. */
#define GYRE_IB_IMM_BOXED 1u
#define GYRE_IB_IMM_LINES 2u

GYRE_STATIC_ASSERT(GYRE_MAX_DEPTH <= 8, "wr_id has three bits for a slot");

/* ---- ib_send.c ----------------------------------------------------------------------------- */

/** For n more and a signalled send, whose completion frees the places before it. */
static inline bool gyre_ib_has_room(const struct gyre_ib_channel *channel, uint32_t n)
{
    return channel->n_posted - channel->n_retired + n < channel->size.n_send;
}

/** Published, of SIMPLE, LL or either, but not posted; with has_credit, only with credit. */
bool gyre_ib_has_simple(const struct gyre_ib_transport *ib, const struct gyre_ib_send *send,
                        bool has_credit);
bool gyre_ib_has_lines(const struct gyre_ib_transport *ib, const struct gyre_ib_send *send,
                       bool has_credit, uint32_t *n_lines_out);
bool gyre_ib_has_slot(const struct gyre_ib_transport *ib, const struct gyre_ib_send *send,
                      bool has_credit);

/** Slots and credit. True if anything was posted. */
bool gyre_ib_push(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** All of LL. */
void gyre_ib_return_held_credit(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** Signalled; changes nothing at the peer. The channel has room. */
void gyre_ib_write_credit_again(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

void gyre_ib_release_lines(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint32_t fifo,
                           uint32_t slot);

/* ---- ib_events.c --------------------------------------------------------------------------- */

static inline bool gyre_ib_is_active(const struct gyre_ib_transport *ib,
                                     const struct gyre_ib_rail_pair *pair)
{
    return ib->rails[pair->mine].down_since_ns == 0 && !ib->rails[pair->mine].is_dead;
}

/** @cause: for the log, if the connection runs. */
void gyre_ib_want_epoch(struct gyre_ib_transport *ib, struct gyre_ib_move *move, const char *cause);

/** False if the connection cannot move. */
bool gyre_ib_break(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                   const struct gyre_ib_rail *rail, const char *cause);

void gyre_ib_suspect(struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                     const struct gyre_ib_rail *rail);

void gyre_ib_rails_to_text(const struct gyre_ib_transport *ib, const struct gyre_ib_move *move,
                           char *text_out, size_t text_bytes);

/* ---- ib_fencer.c --------------------------------------------------------------------------- */

/** The peer's queue pairs go. */
gyre_status gyre_ib_fence_begin(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                                uint64_t now_ns);

/** Once true for each fence. Raises the fault if a queue pair cannot be destroyed. */
bool gyre_ib_fence_ends(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint64_t now_ns);

gyre_status gyre_ib_worker_start(struct gyre_ib_transport *ib, struct gyre_ib_worker *worker,
                                 void *(*work)(void *), const char *name);

/** Under mail_lock. */
void gyre_ib_worker_ends(struct gyre_ib_worker *worker);

/** False: the thread may still use the transport. */
bool gyre_ib_worker_close(struct gyre_ib_transport *ib, struct gyre_ib_worker *worker);

/* ---- ib_probe.c ---------------------------------------------------------------------------- */

gyre_status gyre_ib_prober_start(struct gyre_ib_transport *ib);

void gyre_ib_probe_begin(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

void gyre_ib_probe_take_mail(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                             const void *state);

/** True: a new epoch shall begin. */
bool gyre_ib_probe_take_result(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                               uint64_t now_ns);

/* ---- sockets/ib_dial.c --------------------------------------------------------------------- */

/* A wire format. */
struct gyre_ib_frame {
    uint16_t kind;
    uint16_t fifo;
    uint32_t n_bytes; /* of the slot that follows; of LINES with their flags */
    uint64_t value;   /* slot_info; of LINES the slot's number, of CREDIT the head */
};

GYRE_STATIC_ASSERT(sizeof(struct gyre_ib_frame) == 16, "a wire format");

enum gyre_ib_frame_kind {
    GYRE_IB_FRAME_SLOT = 1,
    GYRE_IB_FRAME_LINES,
    GYRE_IB_FRAME_CREDIT,
    GYRE_IB_FRAME_LINE_CREDIT,
    GYRE_IB_FRAME_GOODBYE
};

#define GYRE_IB_SOCKET_FRAMES      32
#define GYRE_IB_SOCKET_TEXT_BYTES  64
#define GYRE_IB_SOCKET_CAUSE_BYTES 240

struct gyre_ib_socket {
    struct gyre_sock_address addresses[GYRE_SOCK_LIST_MAX];
    int n_addresses;
    int fd; /* -1 = none carries data. This and the next: by the proxy */
    bool has_bye;
    int error;         /* why it was lost; 0 = end of stream */
    uint64_t lost_ns;  /* when; 0 = it is not, or the peer has said goodbye */
    uint64_t tried_ns; /* since when both sides try to make one; 0 = they do not */
    uint64_t vain_ns;  /* since then each was lost soon, and carried nothing; 0 = none was */
    bool waits_for_room;
    struct gyre_ib_frame frames[GYRE_IB_SOCKET_FRAMES];
    struct iovec parts[2 * GYRE_IB_SOCKET_FRAMES];
    int n_frames;
    int n_parts;
    int first_part;
    uint64_t batch_bytes;
    uint32_t next_fifo;
    struct gyre_ib_frame frame;
    uint64_t n_taken;
    unsigned char *to;
    unsigned char *lines;
    bool is_wanted; /* this and the rest: under mail_lock */
    uint32_t epoch;
    uint32_t attempt;
    int made_fd;
    char cause[GYRE_IB_SOCKET_CAUSE_BYTES - 16]; /* of the last attempt or loss; "" = none */
};

void gyre_ib_sockets_open(struct gyre_ib_transport *ib);
void gyre_ib_sockets_close(struct gyre_ib_transport *ib);

/** Sets peer->move.socket if both may use sockets. */
gyre_status gyre_ib_socket_open(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                                const struct gyre_sock_list *theirs);

/** Now the peer may connect. False if the fault was raised. */
bool gyre_ib_socket_make(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** True once there is a connection. */
bool gyre_ib_socket_connect(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, bool has_rails,
                            uint64_t now_ns);

/** For an error; "" if no socket was to be made. */
void gyre_ib_socket_why(struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                        char *text_out);

/* ---- sockets/ib_socket.c ------------------------------------------------------------------- */

void gyre_ib_socket_drop(struct gyre_ib_transport *ib, struct gyre_ib_socket *socket);

void gyre_ib_socket_stop(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** @text_out: the peer's address. */
gyre_status gyre_ib_socket_run(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                               char *text_out);

/** True if anything moved. */
bool gyre_ib_socket_move(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** Of a connection that ends: since when no data have moved. */
uint64_t gyre_ib_socket_since(struct gyre_ib_peer *peer, uint64_t now_ns);

void gyre_ib_sockets_leave(struct gyre_ib_transport *ib);

/* ---- ib_failover.c ------------------------------------------------------------------------- */

/* What one side sees: bits of the pairs of rails. A wire format. */
struct gyre_ib_rails_seen {
    uint8_t active; /* the port is active here */
    uint8_t good;   /* and not bad */
    uint8_t last;   /* the connection broke there since it last ran */
};

/** When rails that were left out are probed after a move. @last_ns: the wait before; 0 = none.
 * @ran_ns: from that move to this one. */
uint64_t gyre_ib_return_ns(uint64_t last_ns, uint64_t ran_ns);

/* TCP in place of rails. In `last`: rails ran for long, and nothing was answered. */
#define GYRE_IB_SOCKETS 0x80

/** Of the next set, the same on both ranks; 0 = no rail is active on both. */
static inline uint8_t gyre_ib_choose_rails(const struct gyre_ib_rails_seen *mine,
                                           const struct gyre_ib_rails_seen *theirs)
{
    const uint8_t common = mine->active & theirs->active, last = mine->last | theirs->last;
    const uint8_t good = mine->good & theirs->good;
    const uint8_t active = common & (uint8_t)~GYRE_IB_SOCKETS;
    const uint8_t earlier = active & (uint8_t)~last;
    if (good != 0)
        return good;
    if ((common & GYRE_IB_SOCKETS) != 0 && (active == 0 || (last & GYRE_IB_SOCKETS) != 0))
        return GYRE_IB_SOCKETS;
    return earlier != 0 ? earlier : active;
}

/** After the channels are open, before the blob. */
gyre_status gyre_ib_moves_open(struct gyre_ib_transport *ib);
void gyre_ib_moves_close(struct gyre_ib_transport *ib);

void gyre_ib_move(struct gyre_ib_transport *ib);

/** Any thread. */
void gyre_ib_post_state(const struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                        const void *bytes, size_t n_bytes);

/** The addresses of a port may have moved to other rows of its table. */
gyre_status gyre_ib_find_gid(struct gyre_ib_transport *ib, const struct gyre_ib_rail *rail,
                             int gid_row, struct gyre_ib_qp_path *path);

void gyre_ib_take_state(struct gyre_ib_transport *ib, int rank, const void *state, size_t n_bytes);

/* ---- ib_share.c ---------------------------------------------------------------------------- */

struct gyre_ib_division {
    uint32_t n;     /* parts */
    uint32_t first; /* channel; the others follow in a circle */
    uint64_t begins[GYRE_IB_MAX_CHANNELS + 1];
};

static inline struct gyre_ib_channel *gyre_ib_nth(const struct gyre_ib_peer *peer,
                                                  const struct gyre_ib_division *parts, uint32_t i)
{
    return peer->used[(parts->first + i) % (uint32_t)peer->n_used];
}

/** By shares. @parts: n, and the channel to begin with, which changes if n is 1. */
void gyre_ib_divide(struct gyre_ib_peer *peer, uint64_t n_bytes, struct gyre_ib_division *parts);

/** gyre_ib_part_posted, gyre_ib_part_answered - of slots of GYRE_IB_SHARED_MIN_BYTES or more. */
void gyre_ib_part_posted(struct gyre_ib_channel *channel, uint64_t n_bytes, uint64_t now_ns);
void gyre_ib_part_answered(struct gyre_ib_channel *channel);

void gyre_ib_shares_look(struct gyre_ib_transport *ib, uint64_t now_ns);

static inline bool gyre_ib_is_complete(const struct gyre_ib_recv *recv, uint32_t slot)
{
    return recv->n_parts[slot] > 0 && recv->parts_seen[slot] >= recv->n_parts[slot];
}

void gyre_ib_flush(struct gyre_ib_transport *ib, struct gyre_ib_channel *channel);

struct gyre_ib_moved {
    enum gyre_trace_kind kind;
    uint32_t fifo;
    uint64_t begin_ns; /* 0 = now */
    uint64_t first;
    uint64_t end; /* the last slot + 1 */
    uint64_t n_bytes;
    bool is_lines;
};

void gyre_ib_trace(struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                   const struct gyre_ib_moved *moved);

#endif
