/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations for both halves of the data path, posting (ib_send.c) and completing (ib_path.c):
 * the layouts of wr_id and of the imm, and functions. Only the proxy thread uses them.
 */
#ifndef GYRE_IB_PATH_H
#define GYRE_IB_PATH_H

#include "transport/ib/ib_transport.h"

/* wr_id: receive 1 | ends a part 1 | lane 14 | fifo 16 | slot 4 | n_posted 28 */
#define GYRE_IB_POSTED_BITS  28
#define GYRE_IB_POSTED_MASK  ((1ULL << GYRE_IB_POSTED_BITS) - 1)
#define GYRE_IB_LANE_MASK    (GYRE_IB_MAX_ALL_LANES - 1)
#define GYRE_IB_WR_IS_RECV   (1ULL << 63)
#define GYRE_IB_WR_ENDS_PART (1ULL << 62)
#define GYRE_IB_WR_IS_FENCE  (GYRE_IB_WR_IS_RECV | GYRE_IB_WR_ENDS_PART) /* no lane */

/* imm: fifo 16 | slot 4 | parts - 1 4 | boxed 1 */
#define GYRE_IB_IMM_BOXED 1u

/** gyre_ib_has_slot - is there a published slot that was not posted? With has_credit, only slots
 * that have credit count. */
bool gyre_ib_has_slot(const struct gyre_ib_transport *ib, const struct gyre_ib_send *send,
                      bool has_credit);

/** gyre_ib_push_slots - post all published slots that have credit. True if there were any. */
bool gyre_ib_push_slots(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** gyre_ib_return_credits - return credit to the peer if half a FIFO was consumed, or if the peer
 * has used all its credit. True if credit was returned. */
bool gyre_ib_return_credits(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** gyre_ib_probe - send a probe to a peer from which nothing has come since the last call. */
void gyre_ib_probe(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** gyre_ib_is_complete - have all parts of the slot arrived? */
static inline bool gyre_ib_is_complete(const struct gyre_ib_recv *recv, uint32_t slot)
{
    return recv->n_parts[slot] > 0 && recv->parts_seen[slot] >= recv->n_parts[slot];
}

/** gyre_ib_flush - post the work requests that a lane has collected. */
void gyre_ib_flush(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane);

#endif
