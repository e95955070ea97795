/* SPDX-License-Identifier: Apache-2.0
 *
 * The two halves of the data path, posting (ib_send.c) and completing (ib_path.c), and what travels
 * between them in wr_id and in the imm. Proxy thread only.
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

/** gyre_ib_has_slot - is there a published slot, and with has_credit one that may be sent? */
bool gyre_ib_has_slot(const struct gyre_ib_transport *ib, const struct gyre_ib_send *send,
                      bool has_credit);

/** gyre_ib_push_slots - hand over published slots that have credit; true if there were some. */
bool gyre_ib_push_slots(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** gyre_ib_return_credits - tell the sender how much was consumed: when it is half a FIFO, or when
 * the sender has spent all its credit; true if something was told. */
bool gyre_ib_return_credits(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** gyre_ib_probe - ask a peer that nothing was heard of since the last call for a sign of life. */
void gyre_ib_probe(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer);

/** gyre_ib_is_complete - has every part of that slot arrived? */
static inline bool gyre_ib_is_complete(const struct gyre_ib_recv *recv, uint32_t slot)
{
    return recv->n_parts[slot] > 0 && recv->parts_seen[slot] >= recv->n_parts[slot];
}

/** gyre_ib_flush - post what a lane has collected. */
void gyre_ib_flush(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane);

#endif
