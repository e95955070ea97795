/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots of LL between hosts. The executor writes lines into its slot and announces their number.
 * When the flags of all lines are there, the proxy posts one RDMA WRITE of these lines into the
 * same slot at the peer, and the peer's executor polls the flags of the lines. No completion, no
 * tail and no proxy is on the way at the receiver. Credit comes back as for SIMPLE, by an imm on
 * the control lane.
 *
 * Why a line is never taken too early or twice:
 *
 *   - A half of a line is 8 aligned bytes with a flag of its own. A NIC writes in units of at least
 *     8 aligned bytes, so the data of a half are there when its flag is, in whatever order halves
 *     arrive. LL128 has one flag for 128 bytes, which a NIC may write in parts, so it stays inside
 *     hosts.
 *   - The flag is the slot's number (core/foundation/model/line.h), so lines of earlier rounds of
 * the ring do not match, and neither does fresh memory, which is zeroed. Queue pairs are never
 * connected again: a failed one ends the communicator.
 *   - A NIC may send a packet again, and the same bytes arrive twice. That is harmless as long as
 *     both ends still hold the same slot. The slot here is released only when the peer's NIC has
 *     acknowledged it, and the next data for that place are written after that. So nothing of a
 *     slot is sent again once its place has been reused.
 *
 * A receiving executor may return a slot before this end has seen the acknowledgement. Then there
 * is credit, but the slot is not released yet, and the executor waits for the release.
 */
#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "transport/ib/ib_path.h"

static struct gyre_line_slots slots_of(const struct gyre_ib_transport *ib,
                                       const struct gyre_ib_line_send *lines)
{
    return (struct gyre_line_slots){lines->slots, ib->config.spec.net_line_bytes,
                                    ib->config.spec.depth};
}

/* @n_lines_out: the lines of the next slot. */
static bool has_lines(const struct gyre_ib_transport *ib, const struct gyre_ib_send *send,
                      bool has_credit, uint32_t *n_lines_out)
{
    const struct gyre_ib_line_send *lines = &send->lines;
    const struct gyre_line_slots slots = slots_of(ib, lines);
    return (!has_credit || lines->posted < lines->credit + slots.depth) &&
           gyre_lines_announced(&slots, send->fifo.inbox, lines->posted, n_lines_out);
}

bool gyre_ib_has_lines(const struct gyre_ib_transport *ib, const struct gyre_ib_send *send,
                       bool has_credit)
{
    uint32_t n_lines;
    return ib->recv_lines != NULL && has_lines(ib, send, has_credit, &n_lines);
}

/* Post the lines of one slot, in messages that are not too long for the ports. */
static void write_lines(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane, uint32_t fifo,
                        uint32_t n_bytes)
{
    const struct gyre_ib_peer *peer = lane->peer;
    const struct gyre_ib_line_send *lines = &peer->sends[fifo].lines;
    const uint32_t slot = (uint32_t)(lines->posted % ib->config.spec.depth);
    const uint64_t in_fifo = (uint64_t)slot * ib->config.spec.net_line_bytes;
    const uint32_t most_bytes = lane->max_msg_bytes / GYRE_LL_LINE_BYTES * GYRE_LL_LINE_BYTES;
    for (uint32_t done = 0; done < n_bytes;) {
        const uint32_t part_bytes = gyre_min_u32(n_bytes - done, most_bytes);
        const bool is_last = done + part_bytes == n_bytes;
        const struct gyre_ib_send_words words = {
            .fifo = fifo,
            .slot = slot,
            .ends_part = is_last,
            .is_lines = true,
            .is_signalled = is_last && gyre_ib_is_release_point(ib, peer, lines->posted),
        };
        struct ibv_send_wr *wr = gyre_ib_add_send(ib, lane, &words);
        wr->opcode = IBV_WR_RDMA_WRITE;
        wr->sg_list[0] = (struct ibv_sge){.addr = (uintptr_t)(lines->slots + in_fifo + done),
                                          .length = part_bytes,
                                          .lkey = lane->rail->send_lines->lkey};
        if (part_bytes <= lane->size.inline_bytes)
            wr->send_flags |= IBV_SEND_INLINE;
        wr->wr.rdma.remote_addr = peer->remote.lines + fifo * ib->line_stride + in_fifo + done;
        wr->wr.rdma.rkey = peer->remote.lines_rkey[lane->remote_rail];
        done += part_bytes;
    }
}

/* Hand one published slot to the NIC. Returns false if the lane has no room now.
 * @n_lines: of the slot. One line is sent of an empty slot, too, which has the flag of an earlier
 * slot or none. */
static bool post_lines(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint32_t fifo,
                       uint32_t n_lines)
{
    struct gyre_ib_send *send = &peer->sends[fifo];
    struct gyre_ib_line_send *lines = &send->lines;
    const uint32_t slot = (uint32_t)(lines->posted % ib->config.spec.depth);
    const struct gyre_line_slots slots = slots_of(ib, lines);
    const uint32_t n_sent = gyre_lines_clean(&slots, lines->posted, n_lines);
    const uint32_t n_bytes = (n_sent > 0 ? n_sent : 1) * GYRE_LL_LINE_BYTES;
    struct gyre_ib_lane *lane = peer->used[(fifo + lines->posted) % (uint64_t)peer->n_used];
    const uint64_t begin_ns = ib->recorded != NULL ? gyre_now_ns() : 0;
    /* A message that is cut into the shortest parts takes one send more than this quotient. */
    if (!gyre_ib_has_room(lane, n_bytes / (lane->max_msg_bytes / 2) + 1))
        return false;
    lines->is_under_way[slot] = true;
    write_lines(ib, lane, fifo, n_bytes);
    lines->posted++;
    const struct gyre_ib_moved moved = {.kind = GYRE_TRACE_POST,
                                        .fifo = fifo,
                                        .begin_ns = begin_ns,
                                        .first = lines->posted - 1,
                                        .end = lines->posted,
                                        .n_bytes = n_bytes,
                                        .is_lines = true};
    gyre_ib_trace(ib, peer, &moved);
    return true;
}

bool gyre_ib_push_lines(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    bool has_moved = false;
    uint32_t n_lines;
    for (uint32_t fifo = 0; fifo < peer->size.n_fifos && ib->recv_lines != NULL; fifo++)
        while (!ib->is_failed && has_lines(ib, &peer->sends[fifo], true, &n_lines)) {
            if (!post_lines(ib, peer, fifo, n_lines))
                break;
            has_moved = true;
        }
    return has_moved;
}

void gyre_ib_release_lines(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint32_t fifo,
                           uint32_t slot)
{
    const uint32_t depth = ib->config.spec.depth;
    struct gyre_ib_send *send = &peer->sends[fifo];
    struct gyre_ib_line_send *lines = &send->lines;
    const uint64_t first = lines->released;
    if (peer->n_used == 1) {
        /* Completions of one lane are in order. `slot` is the newest slot of that index, because
         * the next one can only be posted after this release. */
        lines->released = lines->posted - (lines->posted - 1 - slot) % depth;
    } else {
        lines->is_under_way[slot] = false;
        while (lines->released < lines->posted && !lines->is_under_way[lines->released % depth])
            lines->released++;
    }
    gyre_store_release_u64(&send->fifo.credit->head[GYRE_PROTO_LL], lines->released);
    const struct gyre_ib_moved moved = {.kind = GYRE_TRACE_COMPLETE,
                                        .fifo = fifo,
                                        .first = first,
                                        .end = lines->released,
                                        .is_lines = true};
    gyre_ib_trace(ib, peer, &moved);
}

/* This end does not know which slots have arrived, so it cannot tell when the sender has used all
 * its credit. Credit of less than half a FIFO is therefore returned when the proxy is idle. */
bool gyre_ib_return_line_credits(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, bool all)
{
    const uint64_t least = all ? 1 : ib->config.spec.depth / 2;
    bool has_moved = false;
    for (uint32_t fifo = 0; fifo < peer->size.n_fifos && ib->recv_lines != NULL; fifo++) {
        struct gyre_ib_recv *recv = &peer->recvs[fifo];
        const uint64_t head = gyre_load_acquire_u64(&recv->fifo.credit->head[GYRE_PROTO_LL]);
        if (head - recv->lines.returned < least || !gyre_ib_has_room(peer->control, 1))
            continue;
        recv->lines.returned = head;
        gyre_ib_return_credit(ib, peer, recv->lines.head, head, peer->size.n_fifos + fifo);
        has_moved = true;
    }
    return has_moved;
}
