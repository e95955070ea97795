/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations for both halves of the data path, posting (ib_send.c) and completing (ib_path.c):
 * the layouts of wr_id and of the imm, and functions. Only the proxy thread uses them.
 */
#ifndef GYRE_IB_PATH_H
#define GYRE_IB_PATH_H

#include "transport/ib/ib_transport.h"

/* wr_id: receive 1 | ends a part 1 | lane 14 | fifo 16 | lines 1 | slot 3 | n_posted 28 */
#define GYRE_IB_POSTED_BITS  28
#define GYRE_IB_POSTED_MASK  ((1ULL << GYRE_IB_POSTED_BITS) - 1)
#define GYRE_IB_LANE_MASK    (GYRE_IB_MAX_ALL_LANES - 1)
#define GYRE_IB_WR_IS_RECV   (1ULL << 63)
#define GYRE_IB_WR_ENDS_PART (1ULL << 62)
#define GYRE_IB_WR_IS_LINES  (1ULL << 31)
#define GYRE_IB_WR_IS_FENCE  (GYRE_IB_WR_IS_RECV | GYRE_IB_WR_ENDS_PART) /* no lane */

/* imm: fifo 16 | slot 4 | parts - 1 4 | lines 1 | boxed 1. On the control lane, `lines` says that
 * the credit is of LL. */
#define GYRE_IB_IMM_BOXED 1u
#define GYRE_IB_IMM_LINES 2u

GYRE_STATIC_ASSERT(GYRE_MAX_DEPTH <= 8, "wr_id has three bits for a slot");

/* ---- ib_send.c ----------------------------------------------------------------------------- */

/* The properties of a send that its work request id carries to the completion. */
struct gyre_ib_send_words {
    uint32_t fifo;
    uint32_t slot;
    bool ends_part;
    bool is_lines; /* the slot is one of LL */
    bool is_signalled;
};

/** gyre_ib_has_room - is there room for n more sends? One place is kept for a signalled send, whose
 * completion frees the places before it. */
static inline bool gyre_ib_has_room(const struct gyre_ib_lane *lane, uint32_t n)
{
    return lane->n_posted - lane->n_retired + n < lane->size.n_send;
}

/** gyre_ib_add_send - begin the next send of the lane's batch, with one element. The caller fills
 * in the other fields. */
struct ibv_send_wr *gyre_ib_add_send(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane,
                                     const struct gyre_ib_send_words *words);

/** gyre_ib_is_release_point - does the last send of slot `step` ask for a completion? With one lane
 * completions are in order, so one completion for each half of a FIFO releases all slots before it.
 * With several lanes each slot needs its own completion. */
bool gyre_ib_is_release_point(const struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                              uint64_t step);

/** gyre_ib_return_credit - write a head to one of the peer's credit words, with an imm.
 * @head: a word in staging, which gets the value. @word: index of the credit word. */
void gyre_ib_return_credit(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint64_t *head,
                           uint64_t value, uint32_t word);

/** gyre_ib_has_slot - is there a published slot that was not posted? With has_credit, only slots
 * that have credit count. */
bool gyre_ib_has_slot(const struct gyre_ib_transport *ib, const struct gyre_ib_send *send,
                      bool has_credit);

/** gyre_ib_push_slots - post all published slots that have credit. True if there were any. */
bool gyre_ib_push_slots(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** gyre_ib_return_credits - return credit to the peer if half a FIFO was consumed, or if the peer
 * has used all its credit. True if credit was returned. */
bool gyre_ib_return_credits(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** gyre_ib_write_credit_again - post a signalled write of the peer's last credit, which changes
 * nothing there. The lane has room. */
void gyre_ib_write_credit_again(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** gyre_ib_probe - send a probe to a peer from which nothing has come since the last call. */
void gyre_ib_probe(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/* ---- ib_lines.c ------------------------------------------------------------------------------ */

/** gyre_ib_has_lines - as gyre_ib_has_slot(), for slots of LL. */
bool gyre_ib_has_lines(const struct gyre_ib_transport *ib, const struct gyre_ib_send *send,
                       bool has_credit);

/** gyre_ib_push_lines - post all published slots of LL that have credit. True if there were any. */
bool gyre_ib_push_lines(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** gyre_ib_release_lines - a slot of LL was acknowledged. */
void gyre_ib_release_lines(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint32_t fifo,
                           uint32_t slot);

/** gyre_ib_return_line_credits - return credit of LL if half a FIFO was consumed, or with `all` any
 * credit that was held back. True if credit was returned. */
bool gyre_ib_return_line_credits(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, bool all);

/** gyre_ib_is_complete - have all parts of the slot arrived? */
static inline bool gyre_ib_is_complete(const struct gyre_ib_recv *recv, uint32_t slot)
{
    return recv->n_parts[slot] > 0 && recv->parts_seen[slot] >= recv->n_parts[slot];
}

/** gyre_ib_flush - post the work requests that a lane has collected. */
void gyre_ib_flush(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane);

/* Slots of one FIFO that moved, for the trace. */
struct gyre_ib_moved {
    enum gyre_trace_kind kind;
    uint32_t fifo;
    uint64_t begin_ns; /* 0 = now */
    uint64_t first;    /* number of the first slot */
    uint64_t end;      /* behind the last slot */
    uint64_t n_bytes;
    bool is_lines; /* slots of LL */
};

/** gyre_ib_trace - record moved slots. Does nothing for transports that are not recorded. */
void gyre_ib_trace(struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                   const struct gyre_ib_moved *moved);

#endif
