/* SPDX-License-Identifier: Apache-2.0
 *
 * When the flags of all announced lines of LL are there, the proxy posts one RDMA WRITE of these
 * lines into the same slot at the peer, whose executor polls the flags without completion, tail or
 * proxy. Why a line is never taken too early or twice:
 *
 *   - A half of a line is 8 aligned bytes with a flag of its own. A NIC writes at least 8 aligned
 *     bytes at once, so the data of a half are there when its flag is. LL128 has one flag for 128
 *     bytes, which a NIC may write in parts, so it stays inside hosts.
 *   - The flag is the slot's number (core/foundation/model/line.h), which matches neither lines of
 *     earlier rounds nor fresh memory, which is zeroed. When a queue pair fails, another one writes
 *     only after it is gone.
 *   - A NIC may send a packet again, which is harmless while both ends hold the same slot. So a
 *     slot is released only when the peer's NIC has acknowledged it, also if credit comes before.
 */
#include "transport/ib/ib_path.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

struct send_words {
    uint32_t fifo;
    uint32_t slot;
    bool ends_part;
    bool is_lines;
    bool is_signalled;
};

static uint32_t make_imm(uint32_t fifo, uint32_t slot, uint32_t n_parts, bool is_boxed)
{
    return htonl(fifo << 16 | slot << 12 | (n_parts - 1) << 8 | (is_boxed ? GYRE_IB_IMM_BOXED : 0));
}

gyre_status gyre_ib_post_receives(struct gyre_ib_channel *channel, uint32_t n)
{
    struct ibv_recv_wr wrs[GYRE_IB_RECV_BATCH];
    while (n > 0) {
        const uint32_t n_now = n < GYRE_IB_RECV_BATCH ? n : GYRE_IB_RECV_BATCH;
        struct ibv_recv_wr *bad = NULL;
        memset(wrs, 0, n_now * sizeof(wrs[0]));
        for (uint32_t i = 0; i < n_now; i++) {
            wrs[i].wr_id = GYRE_IB_WR_IS_RECV | (uint64_t)channel->id << 48;
            wrs[i].next = i + 1 < n_now ? &wrs[i + 1] : NULL;
        }
        const int error = ibv_post_recv(channel->qp, wrs, &bad);
        if (error != 0)
            return gyre_fail_errno(error, "ibv_post_recv(qpn 0x%x)", channel->qp->qp_num);
        n -= n_now;
    }
    return GYRE_SUCCESS;
}

void gyre_ib_flush(struct gyre_ib_transport *ib, struct gyre_ib_channel *channel)
{
    struct ibv_send_wr *bad = NULL;
    if (channel->n_batch == 0 || ib->is_failed)
        return;
    for (int i = 0; i + 1 < channel->n_batch; i++)
        channel->batch[i].next = &channel->batch[i + 1];
    channel->batch[channel->n_batch - 1].next = NULL;
    channel->n_batch = 0;
    const int error = ibv_post_send(channel->qp, channel->batch, &bad);
    if (error != 0)
        gyre_ib_raise_post(ib, channel, "ibv_post_send", error);
}

static struct ibv_sge make_sge(const void *address, uint64_t n_bytes, const struct ibv_mr *mr)
{
    return (struct ibv_sge){
        .addr = (uintptr_t)address, .length = (uint32_t)n_bytes, .lkey = mr->lkey};
}

static struct ibv_send_wr *add_write(struct gyre_ib_transport *ib, struct gyre_ib_channel *channel,
                                     const struct send_words *words, struct ibv_sge from,
                                     uint64_t to, uint32_t rkey)
{
    if (channel->n_batch == GYRE_IB_BATCH)
        gyre_ib_flush(ib, channel);
    struct ibv_send_wr *wr = &channel->batch[channel->n_batch];
    struct ibv_sge *sges = channel->sges[channel->n_batch++];
    memset(wr, 0, sizeof(*wr));
    channel->n_posted++;
    /* Only signalled completions free entries of the send queue. */
    const bool is_signalled = words->is_signalled ||
                              channel->n_posted - channel->signalled_at >= channel->size.n_send / 4;
    if (is_signalled)
        channel->signalled_at = channel->n_posted;
    wr->wr_id = (words->ends_part ? GYRE_IB_WR_ENDS_PART : 0) |
                (words->is_lines ? GYRE_IB_WR_IS_LINES : 0) | (uint64_t)channel->id << 48 |
                (uint64_t)words->fifo << 32 | (uint64_t)words->slot << GYRE_IB_POSTED_BITS |
                (channel->n_posted & GYRE_IB_POSTED_MASK);
    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->sg_list = sges;
    wr->sg_list[0] = from;
    wr->num_sge = 1;
    wr->send_flags = is_signalled ? IBV_SEND_SIGNALED : 0;
    wr->wr.rdma.remote_addr = to;
    wr->wr.rdma.rkey = rkey;
    return wr;
}

/* One channel's sends are in order, so one completion for each half of a FIFO suffices. */
static bool is_release_point(const struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                             uint64_t step)
{
    const uint32_t half = ib->config.spec.depth / 2;
    return peer->n_used > 1 || (step + 1) % half == 0;
}

struct slot_part {
    uint32_t fifo;
    uint32_t slot;  /* of this rank */
    uint32_t place; /* its slot at the peer */
    uint64_t offset;
    uint64_t n_bytes;
    uint32_t n_parts;
    bool is_signalled;
};

static void write_payload(struct gyre_ib_transport *ib, struct gyre_ib_channel *channel,
                          const struct slot_part *part)
{
    const struct gyre_ib_peer *peer = channel->peer;
    const struct gyre_ib_remote *remote = &peer->remote;
    const uint64_t slot_bytes = peer->size.slot_bytes;
    const unsigned char *from =
        peer->sends[part->fifo].fifo.slots + part->slot * slot_bytes + part->offset;
    const uint64_t to =
        remote->slots + part->fifo * peer->slots_stride + part->place * slot_bytes + part->offset;
    const struct send_words words = {.fifo = part->fifo, .slot = part->slot};
    for (uint64_t done = 0; done < part->n_bytes;) {
        const uint64_t n_bytes = gyre_min_u64(part->n_bytes - done, channel->max_msg_bytes);
        add_write(ib, channel, &words, make_sge(from + done, n_bytes, channel->rail->send_slots),
                  to + done, remote->slots_rkey[channel->remote_rail]);
        done += n_bytes;
    }
}

/* Ends a part. @boxed: the payload goes into the box, too. */
static void write_box(struct gyre_ib_transport *ib, struct gyre_ib_channel *channel,
                      const struct slot_part *part, bool boxed)
{
    const struct gyre_ib_peer *peer = channel->peer;
    const struct gyre_ib_send *send = &peer->sends[part->fifo];
    const struct gyre_ib_remote *remote = &peer->remote;
    const uint32_t depth = ib->config.spec.depth;
    const struct send_words words = {
        .fifo = part->fifo,
        .slot = part->slot,
        .ends_part = true,
        .is_signalled = part->is_signalled,
    };
    uint64_t n_bytes = sizeof(send->labels[0]);
    struct ibv_send_wr *wr = add_write(
        ib, channel, &words, make_sge(&send->labels[part->slot], n_bytes, channel->rail->staging),
        remote->boxes + ((uint64_t)part->fifo * depth + part->place) * GYRE_IB_BOX_BYTES,
        remote->words_rkey[channel->remote_rail]);
    wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr->imm_data = make_imm(part->fifo, part->place, part->n_parts, boxed);
    if (boxed && part->n_bytes > 0) {
        wr->num_sge = 2;
        wr->sg_list[1] = make_sge(send->fifo.slots + (uint64_t)part->slot * peer->size.slot_bytes,
                                  part->n_bytes, channel->rail->send_slots);
        n_bytes += part->n_bytes;
    }
    /* The NIC need not read inline data over PCI, but the processor cannot read GPU memory. */
    if (n_bytes <= channel->size.inline_bytes &&
        (wr->num_sge == 1 || ib->send_gdr == GYRE_IB_GDR_NONE))
        wr->send_flags |= IBV_SEND_INLINE;
}

/* False = no room now. */
static bool post_slot(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint32_t fifo)
{
    struct gyre_ib_send *send = &peer->sends[fifo];
    const uint32_t slot = (uint32_t)(send->posted % send->fifo.depth);
    const uint64_t info = gyre_load_relaxed_u64(&send->fifo.inbox->slot_info[slot]);
    const uint64_t n_bytes = info & 0xffffffff;
    const uint64_t begin_ns = ib->recorded != NULL ? gyre_now_ns() : 0;
    const bool boxed =
        n_bytes == 0 || (peer->remote.takes_boxes && n_bytes <= GYRE_IB_BOX_PAYLOAD_BYTES);
    struct gyre_ib_division parts = {
        .n = 1, .first = (uint32_t)((fifo + send->posted) % (uint64_t)peer->n_used)};
    if (!boxed && peer->n_used > 1)
        parts.n = (uint32_t)gyre_min_u64(gyre_div_round_up(n_bytes, GYRE_IB_STRIPE_MIN_BYTES),
                                         (uint64_t)peer->n_used);
    const uint64_t part_bytes = gyre_round_up(gyre_div_round_up(n_bytes, parts.n), 128);
    for (uint32_t i = 0; i <= parts.n; i++)
        parts.begins[i] = gyre_min_u64(i * part_bytes, n_bytes);
    if (peer->has_shares)
        gyre_ib_divide(peer, n_bytes, &parts);
    for (uint32_t i = 0; i < parts.n; i++) {
        const struct gyre_ib_channel *channel = gyre_ib_nth(peer, &parts, i);
        const uint64_t bytes = parts.begins[i + 1] - parts.begins[i];
        if (!gyre_ib_has_room(channel,
                              (uint32_t)gyre_div_round_up(bytes, channel->max_msg_bytes) + 1))
            return false;
    }
    const bool is_measured =
        ib->has_shares && peer->n_used > 1 && n_bytes >= GYRE_IB_SHARED_MIN_BYTES;
    const uint64_t now_ns = is_measured ? gyre_now_ns() : 0;
    struct gyre_ib_recv *recv = &peer->recvs[fifo];
    recv->returned = gyre_load_acquire_u64(&recv->fifo.credit->head[GYRE_PROTO_SIMPLE]);
    send->labels[slot] = (struct gyre_ib_label){info, recv->returned};
    send->parts_left[slot] = (uint8_t)parts.n;
    for (uint32_t i = 0; i < parts.n; i++) {
        struct gyre_ib_channel *channel = gyre_ib_nth(peer, &parts, i);
        const struct slot_part part = {
            .fifo = fifo,
            .slot = slot,
            .place = (uint32_t)(send->posted % ib->config.spec.depth),
            .offset = parts.begins[i],
            .n_bytes = parts.begins[i + 1] - parts.begins[i],
            .n_parts = parts.n,
            .is_signalled = is_release_point(ib, peer, send->posted),
        };
        if (is_measured)
            gyre_ib_part_posted(channel, part.n_bytes, now_ns);
        if (!boxed)
            write_payload(ib, channel, &part);
        write_box(ib, channel, &part, boxed);
    }
    send->posted++;
    const struct gyre_ib_moved moved = {.kind = GYRE_TRACE_POST,
                                        .fifo = fifo,
                                        .begin_ns = begin_ns,
                                        .first = send->posted - 1,
                                        .end = send->posted,
                                        .n_bytes = n_bytes};
    gyre_ib_trace(ib, peer, &moved);
    return true;
}

/* A request that the NIC sends again must not meet a later one for the same slot of the peer, so
 * that one waits for the acknowledgement, too. */
bool gyre_ib_has_simple(const struct gyre_ib_transport *ib, const struct gyre_ib_send *send,
                        bool has_credit)
{
    const uint32_t depth = ib->config.spec.depth;
    return send->posted < gyre_load_acquire_u64(&send->fifo.inbox->tail[GYRE_PROTO_SIMPLE]) &&
           (!has_credit ||
            (send->posted - send->credit < depth && send->posted - send->released < depth));
}

/* @head: in staging. @word: of the peer's credit words. */
static void write_credit(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint64_t *head,
                         uint64_t value, uint32_t word)
{
    struct gyre_ib_channel *channel = peer->control;
    const bool is_lines = word >= peer->size.n_fifos;
    const struct send_words words = {.is_lines = is_lines};
    struct ibv_send_wr *wr = add_write(
        ib, channel, &words, make_sge(head, 8, channel->rail->staging),
        peer->remote.credits + 8ULL * word, peer->remote.words_rkey[channel->remote_rail]);
    /* The NIC may still read this word for an earlier write: heads only grow, and it reads whole
     * words. */
    gyre_store_relaxed_u64(head, value);
    wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr->imm_data = make_imm(is_lines ? word - peer->size.n_fifos : word, 0, 1, false) |
                   htonl(is_lines ? GYRE_IB_IMM_LINES : 0);
    if (channel->size.inline_bytes >= 8)
        wr->send_flags |= IBV_SEND_INLINE;
}

/* After half a FIFO, or when the sender has used all credit. */
static bool return_credits(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    const uint32_t depth = ib->config.spec.depth;
    struct gyre_ib_channel *channel = peer->control;
    bool has_moved = false;
    for (uint32_t fifo = 0; fifo < peer->size.n_fifos; fifo++) {
        struct gyre_ib_recv *recv = &peer->recvs[fifo];
        if (recv->arrived == recv->returned)
            continue;
        const uint64_t head = gyre_load_acquire_u64(&recv->fifo.credit->head[GYRE_PROTO_SIMPLE]);
        if (head == recv->returned ||
            (head - recv->returned < depth / 2 && recv->arrived - recv->returned < depth) ||
            !gyre_ib_has_room(channel, 1))
            continue;
        recv->returned = head;
        write_credit(ib, peer, recv->head, head, fifo);
        has_moved = true;
    }
    return has_moved;
}

void gyre_ib_write_credit_again(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    struct gyre_ib_channel *channel = peer->control;
    const struct send_words words = {.is_signalled = true};
    add_write(ib, channel, &words, make_sge(peer->recvs[0].head, 8, channel->rail->staging),
              peer->remote.credits, peer->remote.words_rkey[channel->remote_rail]);
    gyre_ib_flush(ib, channel);
}

static struct gyre_line_slots slots_of(const struct gyre_ib_transport *ib,
                                       const struct gyre_ib_send *send)
{
    return (struct gyre_line_slots){send->lines.slots, ib->config.spec.net_line_bytes,
                                    send->fifo.depth};
}

bool gyre_ib_has_lines(const struct gyre_ib_transport *ib, const struct gyre_ib_send *send,
                       bool has_credit, uint32_t *n_lines_out)
{
    const struct gyre_ib_line_send *lines = &send->lines;
    const struct gyre_line_slots slots = slots_of(ib, send);
    const uint32_t depth = ib->config.spec.depth;
    return ib->recv_lines != NULL &&
           (!has_credit ||
            (lines->posted < lines->credit + depth && lines->posted < lines->released + depth)) &&
           gyre_lines_announced(&slots, send->fifo.inbox, lines->posted, n_lines_out);
}

static void write_lines(struct gyre_ib_transport *ib, struct gyre_ib_channel *channel,
                        uint32_t fifo, uint32_t n_bytes)
{
    const struct gyre_ib_peer *peer = channel->peer;
    const struct gyre_ib_send *send = &peer->sends[fifo];
    const struct gyre_ib_line_send *lines = &send->lines;
    const uint32_t slot = (uint32_t)(lines->posted % send->fifo.depth);
    const uint64_t slot_bytes = ib->config.spec.net_line_bytes;
    const uint64_t to = peer->remote.lines + fifo * ib->line_stride +
                        lines->posted % ib->config.spec.depth * slot_bytes;
    const uint32_t most_bytes = channel->max_msg_bytes / GYRE_LL_LINE_BYTES * GYRE_LL_LINE_BYTES;
    for (uint32_t done = 0; done < n_bytes;) {
        const uint32_t part_bytes = gyre_min_u32(n_bytes - done, most_bytes);
        const bool is_last = done + part_bytes == n_bytes;
        const struct send_words words = {
            .fifo = fifo,
            .slot = slot,
            .ends_part = is_last,
            .is_lines = true,
            .is_signalled = is_last && is_release_point(ib, peer, lines->posted),
        };
        struct ibv_send_wr *wr =
            add_write(ib, channel, &words,
                      make_sge(lines->slots + slot * slot_bytes + done, part_bytes,
                               channel->rail->send_lines),
                      to + done, peer->remote.lines_rkey[channel->remote_rail]);
        if (part_bytes <= channel->size.inline_bytes)
            wr->send_flags |= IBV_SEND_INLINE;
        done += part_bytes;
    }
}

/* False = no room now. An empty slot sends one line, with an earlier flag or none. */
static bool post_lines(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint32_t fifo,
                       uint32_t n_lines)
{
    struct gyre_ib_send *send = &peer->sends[fifo];
    struct gyre_ib_line_send *lines = &send->lines;
    const uint32_t slot = (uint32_t)(lines->posted % send->fifo.depth);
    const struct gyre_line_slots slots = slots_of(ib, send);
    const uint32_t n_sent = gyre_lines_clean(&slots, lines->posted, n_lines);
    const uint32_t n_bytes = (n_sent > 0 ? n_sent : 1) * GYRE_LL_LINE_BYTES;
    struct gyre_ib_channel *channel = peer->used[(fifo + lines->posted) % (uint64_t)peer->n_used];
    const uint64_t begin_ns = ib->recorded != NULL ? gyre_now_ns() : 0;
    /* The shortest parts take one more. */
    if (!gyre_ib_has_room(channel, n_bytes / (channel->max_msg_bytes / 2) + 1))
        return false;
    lines->is_under_way[slot] = true;
    write_lines(ib, channel, fifo, n_bytes);
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

void gyre_ib_release_lines(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint32_t fifo,
                           uint32_t slot)
{
    struct gyre_ib_send *send = &peer->sends[fifo];
    const uint32_t depth = send->fifo.depth;
    struct gyre_ib_line_send *lines = &send->lines;
    const uint64_t first = lines->released;
    if (peer->n_used == 1) {
        /* As in complete_send() of ib_path.c. */
        lines->released = lines->posted - (lines->posted - 1 - slot) % depth;
    } else {
        lines->is_under_way[slot] = false;
        while (lines->released < lines->posted && !lines->is_under_way[lines->released % depth])
            lines->released++;
    }
    gyre_ib_release_slots(peer, send, true);
    const struct gyre_ib_moved moved = {.kind = GYRE_TRACE_COMPLETE,
                                        .fifo = fifo,
                                        .first = first,
                                        .end = lines->released,
                                        .is_lines = true};
    gyre_ib_trace(ib, peer, &moved);
}

/* This rank does not know when the sender has used all its credit. */
static bool return_line_credits(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, bool all)
{
    const uint64_t least = all ? 1 : ib->config.spec.depth / 2;
    bool has_moved = false;
    for (uint32_t fifo = 0; fifo < peer->size.n_fifos && ib->recv_lines != NULL; fifo++) {
        struct gyre_ib_recv *recv = &peer->recvs[fifo];
        const uint64_t head = gyre_load_acquire_u64(&recv->fifo.credit->head[GYRE_PROTO_LL]);
        if (head - recv->lines.returned < least || !gyre_ib_has_room(peer->control, 1))
            continue;
        recv->lines.returned = head;
        write_credit(ib, peer, recv->lines.head, head, peer->size.n_fifos + fifo);
        has_moved = true;
    }
    return has_moved;
}

bool gyre_ib_has_slot(const struct gyre_ib_transport *ib, const struct gyre_ib_send *send,
                      bool has_credit)
{
    uint32_t n_lines;
    return gyre_ib_has_simple(ib, send, has_credit) ||
           gyre_ib_has_lines(ib, send, has_credit, &n_lines);
}

bool gyre_ib_push(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    bool has_moved = false;
    uint32_t n_lines;
    if (peer->move.is_halted)
        return false;
    if (peer->move.used == GYRE_IB_SOCKETS)
        return gyre_ib_socket_move(ib, peer);
    for (uint32_t fifo = 0; fifo < peer->size.n_fifos; fifo++)
        while (!ib->is_failed && gyre_ib_has_lines(ib, &peer->sends[fifo], true, &n_lines) &&
               post_lines(ib, peer, fifo, n_lines))
            has_moved = true;
    for (uint32_t fifo = 0; fifo < peer->size.n_fifos; fifo++)
        while (!ib->is_failed && gyre_ib_has_simple(ib, &peer->sends[fifo], true) &&
               post_slot(ib, peer, fifo))
            has_moved = true;
    has_moved = return_credits(ib, peer) || has_moved;
    return return_line_credits(ib, peer, false) || has_moved;
}

void gyre_ib_return_held_credit(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    if (!peer->move.is_halted && peer->move.used != GYRE_IB_SOCKETS &&
        return_line_credits(ib, peer, true))
        gyre_ib_flush(ib, peer->control);
}
