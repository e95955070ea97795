/* SPDX-License-Identifier: Apache-2.0
 *
 * The data path: one round of the proxy takes completions, hands published slots that have credit
 * to the NIC, returns credit, and posts what came together in one call per queue pair.
 */
#include "transport/ib/ib_transport.h"

#include "core/base/sync.h"
#include "core/base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define N_COMPLETIONS 32

/* Before the completion channel is armed (two system calls), as long a wait as the proxy polls. */
#define ARM_AFTER_NS 100000
/* Async events are looked for with a system call. */
#define EVENTS_PERIOD_NS 10000000ULL
#define POLLS_PER_CLOCK  256

/* ---- what travels in wr_id and in the imm ------------------------------------------------------
 */

/* wr_id: receive 1 | ends a part 1 | lane 14 | fifo 16 | slot 4 | n_posted 28 */
#define POSTED_BITS  28
#define POSTED_MASK  ((1ULL << POSTED_BITS) - 1)
#define LANE_MASK    0x3fff
#define WR_IS_RECV   (1ULL << 63)
#define WR_ENDS_PART (1ULL << 62)

/* What a send is about. */
struct send_words {
    uint32_t fifo;
    uint32_t slot;
    bool ends_part;
    bool is_signalled;
};

static uint64_t make_wr_id(const struct gyre_ib_lane *lane, const struct send_words *words)
{
    return (words->ends_part ? WR_ENDS_PART : 0) | (uint64_t)lane->id << 48 |
           (uint64_t)words->fifo << 32 | (uint64_t)words->slot << POSTED_BITS |
           (lane->n_posted & POSTED_MASK);
}

/* imm: fifo 16 | slot 4 | parts - 1 4 | boxed 1 */
#define IMM_BOXED 1u

static uint32_t make_imm(uint32_t fifo, uint32_t slot, uint32_t n_parts, bool is_boxed)
{
    return htonl(fifo << 16 | slot << 12 | (n_parts - 1) << 8 | (is_boxed ? IMM_BOXED : 0));
}

/* ---- posting ------------------------------------------------------------------------------------
 */

gyre_status gyre_ib_post_receives(struct gyre_ib_lane *lane, uint32_t n)
{
    struct ibv_recv_wr wrs[GYRE_IB_RECV_BATCH];
    while (n > 0) {
        const uint32_t n_now = n < GYRE_IB_RECV_BATCH ? n : GYRE_IB_RECV_BATCH;
        struct ibv_recv_wr *bad = NULL;
        memset(wrs, 0, n_now * sizeof(wrs[0]));
        for (uint32_t i = 0; i < n_now; i++) {
            wrs[i].wr_id = WR_IS_RECV | (uint64_t)lane->id << 48;
            wrs[i].next = i + 1 < n_now ? &wrs[i + 1] : NULL;
        }
        const int error = ibv_post_recv(lane->qp, wrs, &bad);
        if (error != 0)
            return gyre_fail_errno(error, "ibv_post_recv(qpn 0x%x)", lane->qp->qp_num);
        n -= n_now;
    }
    return GYRE_SUCCESS;
}

static void flush(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane)
{
    struct ibv_send_wr *bad = NULL;
    if (lane->n_batch == 0 || ib->is_failed)
        return;
    for (int i = 0; i + 1 < lane->n_batch; i++)
        lane->batch[i].next = &lane->batch[i + 1];
    lane->batch[lane->n_batch - 1].next = NULL;
    lane->n_batch = 0;
    const int error = ibv_post_send(lane->qp, lane->batch, &bad);
    if (error != 0)
        gyre_ib_raise_post(ib, lane, "ibv_post_send", error);
}

/* Room for n more sends? One is kept for a signalled send that frees the others. */
static bool has_room(const struct gyre_ib_lane *lane, uint32_t n)
{
    return lane->n_posted - lane->n_retired + n < lane->size.n_send;
}

/* The next send of the batch, with one element; the caller fills what differs. */
static struct ibv_send_wr *add_send(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane,
                                    const struct send_words *words)
{
    if (lane->n_batch == GYRE_IB_BATCH)
        flush(ib, lane);
    struct ibv_send_wr *wr = &lane->batch[lane->n_batch];
    struct ibv_sge *sges = lane->sges[lane->n_batch++];
    memset(wr, 0, sizeof(*wr));
    lane->n_posted++;
    /* Entries of the send queue come back with signalled completions only. */
    const bool is_signalled =
        words->is_signalled || lane->n_posted - lane->signalled_at >= lane->size.n_send / 4;
    if (is_signalled)
        lane->signalled_at = lane->n_posted;
    wr->wr_id = make_wr_id(lane, words);
    wr->sg_list = sges;
    wr->num_sge = 1;
    wr->send_flags = is_signalled ? IBV_SEND_SIGNALED : 0;
    return wr;
}

/* Whether a slot's last send asks for a completion. With one lane completions are in order, so one
 * per half a FIFO releases all before it; over several lanes each slot needs its own. */
static bool is_release_point(const struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                             uint64_t step)
{
    const uint32_t half = ib->config.spec.depth / 2;
    return peer->n_lanes > 1 || (step + 1) % half == 0;
}

struct slot_part {
    uint32_t fifo;
    uint32_t slot;
    uint64_t offset; /* into the slot */
    uint64_t n_bytes;
    uint32_t n_parts;
    bool is_signalled;
};

static struct ibv_sge make_sge(const void *address, uint64_t n_bytes, const struct ibv_mr *mr)
{
    return (struct ibv_sge){
        .addr = (uintptr_t)address, .length = (uint32_t)n_bytes, .lkey = mr->lkey};
}

/* The payload of a part, in messages that the ports take. */
static void write_payload(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane,
                          const struct slot_part *part)
{
    const struct gyre_ib_peer *peer = lane->peer;
    const struct gyre_ib_remote *remote = &peer->remote;
    const int rail = (int)(lane->rail - ib->rails);
    const uint64_t in_fifo =
        (uint64_t)part->slot * ib->config.spec.slot_bytes[GYRE_PROTO_SIMPLE] + part->offset;
    const struct send_words words = {.fifo = part->fifo, .slot = part->slot};
    for (uint64_t done = 0; done < part->n_bytes;) {
        const uint64_t n_bytes = gyre_min_u64(part->n_bytes - done, lane->max_msg_bytes);
        struct ibv_send_wr *wr = add_send(ib, lane, &words);
        wr->opcode = IBV_WR_RDMA_WRITE;
        wr->sg_list[0] = make_sge(peer->sends[part->fifo].fifo.slots + in_fifo + done, n_bytes,
                                  lane->rail->send_slots);
        wr->wr.rdma.remote_addr =
            remote->slots + part->fifo * remote->slots_stride + in_fifo + done;
        wr->wr.rdma.rkey = remote->slots_rkey[rail];
        done += n_bytes;
    }
}

/* The imm that ends a part; with `boxed` the payload is in it. */
static void write_box(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane,
                      const struct slot_part *part, bool boxed)
{
    const struct gyre_ib_peer *peer = lane->peer;
    const struct gyre_ib_send *send = &peer->sends[part->fifo];
    const struct gyre_ib_remote *remote = &peer->remote;
    const uint32_t depth = ib->config.spec.depth;
    const struct send_words words = {
        .fifo = part->fifo,
        .slot = part->slot,
        .ends_part = true,
        .is_signalled = part->is_signalled,
    };
    struct ibv_send_wr *wr = add_send(ib, lane, &words);
    wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr->imm_data = make_imm(part->fifo, part->slot, part->n_parts, boxed);
    wr->sg_list[0] = make_sge(&send->infos[part->slot], 8, lane->rail->staging);
    uint64_t n_bytes = 8;
    if (boxed && part->n_bytes > 0) {
        wr->num_sge = 2;
        wr->sg_list[1] = make_sge(
            send->fifo.slots + (uint64_t)part->slot * ib->config.spec.slot_bytes[GYRE_PROTO_SIMPLE],
            part->n_bytes, lane->rail->send_slots);
        n_bytes += part->n_bytes;
    }
    /* Inline data is read by this processor, so GPU memory cannot be; what is inline spares the NIC
     * a read over PCI. */
    if (n_bytes <= lane->size.inline_bytes &&
        (wr->num_sge == 1 || ib->send_gdr == GYRE_IB_GDR_NONE))
        wr->send_flags |= IBV_SEND_INLINE;
    wr->wr.rdma.remote_addr =
        remote->boxes + ((uint64_t)part->fifo * depth + part->slot) * GYRE_IB_BOX_BYTES;
    wr->wr.rdma.rkey = remote->landing_rkey[lane->rail - ib->rails];
}

/* Sends that a part of n bytes takes. */
static uint32_t n_sends(const struct gyre_ib_lane *lane, uint64_t n_bytes)
{
    return (uint32_t)gyre_div_round_up(n_bytes, lane->max_msg_bytes) + 1;
}

/* Hand one published slot to the NIC; false if a lane has no room now. */
static bool post_slot(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint32_t fifo)
{
    struct gyre_ib_send *send = &peer->sends[fifo];
    const uint32_t slot = (uint32_t)(send->posted % ib->config.spec.depth);
    const uint64_t info = gyre_load_relaxed_u64(&send->fifo.inbox->slot_info[slot]);
    const uint64_t n_bytes = info & 0xffffffff;
    const bool boxed =
        n_bytes == 0 || (peer->remote.takes_boxes && n_bytes <= GYRE_IB_BOX_PAYLOAD_BYTES);
    uint32_t n_parts = 1;
    if (!boxed && peer->n_lanes > 1)
        n_parts = (uint32_t)gyre_min_u64(gyre_div_round_up(n_bytes, GYRE_IB_STRIPE_MIN_BYTES),
                                         (uint64_t)peer->n_lanes);
    /* Whole cache lines a part. */
    const uint64_t part_bytes = gyre_round_up(gyre_div_round_up(n_bytes, n_parts), 128);
    const uint32_t first = (uint32_t)((fifo + send->posted) % (uint64_t)peer->n_lanes);
    for (uint32_t i = 0; i < n_parts; i++) {
        const struct gyre_ib_lane *lane = &peer->lanes[(first + i) % (uint32_t)peer->n_lanes];
        if (!has_room(lane, n_sends(lane, part_bytes)))
            return false;
    }
    send->infos[slot] = info;
    send->parts_left[slot] = (uint8_t)n_parts;
    for (uint32_t i = 0; i < n_parts; i++) {
        struct gyre_ib_lane *lane = &peer->lanes[(first + i) % (uint32_t)peer->n_lanes];
        const uint64_t offset = gyre_min_u64(i * part_bytes, n_bytes);
        const struct slot_part part = {
            .fifo = fifo,
            .slot = slot,
            .offset = offset,
            .n_bytes = gyre_min_u64(part_bytes, n_bytes - offset),
            .n_parts = n_parts,
            .is_signalled = is_release_point(ib, peer, send->posted),
        };
        if (!boxed)
            write_payload(ib, lane, &part);
        write_box(ib, lane, &part, boxed);
    }
    send->posted++;
    return true;
}

static bool push_slots(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    const uint32_t depth = ib->config.spec.depth;
    bool has_moved = false;
    for (uint32_t fifo = 0; fifo < gyre_ib_n_fifos(ib); fifo++) {
        struct gyre_ib_send *send = &peer->sends[fifo];
        const uint64_t tail = gyre_load_acquire_u64(&send->fifo.inbox->tail[GYRE_PROTO_SIMPLE]);
        while (send->posted < tail && send->posted - send->credit < depth && !ib->is_failed) {
            if (!post_slot(ib, peer, fifo))
                break;
            has_moved = true;
        }
    }
    return has_moved;
}

/* Tell senders how much was consumed: when it is half a FIFO, or when the sender has spent all its
 * credit. Between the two it still has some, so nothing can wait for a credit that is held back. */
static bool return_credits(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    const uint32_t depth = ib->config.spec.depth;
    struct gyre_ib_lane *lane = peer->control;
    bool has_moved = false;
    for (uint32_t fifo = 0; fifo < gyre_ib_n_fifos(ib); fifo++) {
        struct gyre_ib_recv *recv = &peer->recvs[fifo];
        if (recv->arrived == recv->returned)
            continue;
        const uint64_t head = gyre_load_acquire_u64(&recv->fifo.credit->head[GYRE_PROTO_SIMPLE]);
        if (head == recv->returned ||
            (head - recv->returned < depth / 2 && recv->arrived - recv->returned < depth) ||
            !has_room(lane, 1))
            continue;
        const struct send_words words = {.fifo = fifo};
        struct ibv_send_wr *wr = add_send(ib, lane, &words);
        /* Written again while an earlier write may still read it: heads only grow, and a word is
         * read whole. */
        gyre_store_relaxed_u64(recv->head, head);
        recv->returned = head;
        wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wr->imm_data = make_imm(fifo, 0, 1, false);
        wr->sg_list[0] = make_sge(recv->head, 8, lane->rail->staging);
        if (lane->size.inline_bytes >= 8)
            wr->send_flags |= IBV_SEND_INLINE;
        wr->wr.rdma.remote_addr = peer->remote.credits + 8ULL * fifo;
        wr->wr.rdma.rkey = peer->remote.landing_rkey[lane->rail - ib->rails];
        has_moved = true;
    }
    return has_moved;
}

/* ---- completions --------------------------------------------------------------------------------
 */

/* A signalled send is done, and with it all earlier ones of its lane. */
static void complete_send(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane, uint64_t wr_id)
{
    const uint32_t depth = ib->config.spec.depth;
    const uint32_t slot = (uint32_t)(wr_id >> POSTED_BITS) & 15;
    const uint32_t fifo = (uint32_t)(wr_id >> 32) & 0xffff;
    lane->n_retired += ((wr_id & POSTED_MASK) - lane->n_retired) & POSTED_MASK;
    if ((wr_id & WR_ENDS_PART) == 0)
        return;
    struct gyre_ib_send *send = &lane->peer->sends[fifo];
    if (lane->peer->n_lanes == 1) {
        /* It is the newest slot of that number: the next one waits for this release. */
        send->released = send->posted - (send->posted - 1 - slot) % depth;
    } else {
        send->parts_left[slot]--;
        while (send->released < send->posted && send->parts_left[send->released % depth] == 0)
            send->released++;
    }
    gyre_store_release_u64(&send->fifo.credit->head[GYRE_PROTO_SIMPLE], send->released);
}

static void raise_protocol(struct gyre_ib_transport *ib, const struct gyre_ib_lane *lane,
                           const char *what, uint64_t value)
{
    char ends[400];
    gyre_fail(GYRE_ERROR_REMOTE, "RDMA from rank %d: %s (0x%llx): %s", lane->peer->rank, what,
              (unsigned long long)value, gyre_ib_lane_to_text(ib, lane, ends, sizeof(ends)));
    ib->is_failed = true;
    gyre_fault_raise(ib->config.fault, GYRE_ERROR_REMOTE, gyre_cause());
}

/* Give complete slots to the executor, in order. */
static void publish(struct gyre_ib_transport *ib, const struct gyre_ib_lane *lane,
                    struct gyre_ib_recv *recv)
{
    const uint32_t depth = ib->config.spec.depth;
    const uint32_t slot_bytes = ib->config.spec.slot_bytes[GYRE_PROTO_SIMPLE];
    struct gyre_inbox *inbox = recv->fifo.inbox;
    for (;;) {
        const uint32_t slot = (uint32_t)(recv->arrived % depth);
        if (recv->n_parts[slot] == 0 || recv->parts_seen[slot] < recv->n_parts[slot])
            return;
        const struct gyre_ib_box *box = &recv->boxes[slot];
        const uint64_t info = gyre_load_acquire_u64(&box->slot_info);
        const uint64_t n_bytes = info & 0xffffffff;
        if (n_bytes > (recv->is_boxed[slot] ? GYRE_IB_BOX_PAYLOAD_BYTES : slot_bytes)) {
            raise_protocol(ib, lane, "a slot with too many bytes", n_bytes);
            return;
        }
        if (recv->is_boxed[slot] && n_bytes > 0)
            memcpy(recv->fifo.slots + (uint64_t)slot * slot_bytes, box->payload, n_bytes);
        recv->n_parts[slot] = 0;
        recv->parts_seen[slot] = 0;
        gyre_store_relaxed_u64(&inbox->slot_info[slot], info);
        recv->arrived++;
        gyre_store_release_u64(&inbox->tail[GYRE_PROTO_SIMPLE], recv->arrived);
    }
}

static void complete_receive(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane,
                             const struct ibv_wc *wc)
{
    const uint32_t imm = ntohl(wc->imm_data);
    const uint32_t fifo = imm >> 16;
    const uint32_t slot = imm >> 12 & 15;
    lane->n_recv_due++;
    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM || fifo >= gyre_ib_n_fifos(ib) ||
        slot >= ib->config.spec.depth) {
        raise_protocol(ib, lane, "an unexpected message", imm);
        return;
    }
    if (lane->is_control) {
        struct gyre_ib_send *send = &lane->peer->sends[fifo];
        const uint64_t head = gyre_load_acquire_u64(&lane->peer->credit_words[fifo]);
        if (head > send->posted)
            raise_protocol(ib, lane, "credit for slots that were never sent", head);
        else if (head > send->credit)
            send->credit = head;
        return;
    }
    struct gyre_ib_recv *recv = &lane->peer->recvs[fifo];
    recv->n_parts[slot] = (uint8_t)((imm >> 8 & 15) + 1);
    recv->is_boxed[slot] = (imm & IMM_BOXED) != 0;
    recv->parts_seen[slot]++;
    publish(ib, lane, recv);
}

static bool take_completions(struct gyre_ib_transport *ib, struct gyre_ib_rail *rail)
{
    struct ibv_wc wcs[N_COMPLETIONS];
    const int n = ibv_poll_cq(rail->cq, N_COMPLETIONS, wcs);
    for (int i = 0; i < n && !ib->is_failed; i++) {
        struct gyre_ib_lane *lane = &ib->lanes[wcs[i].wr_id >> 48 & LANE_MASK];
        if (wcs[i].status != IBV_WC_SUCCESS)
            gyre_ib_raise_completion(ib, lane, &wcs[i]);
        else if ((wcs[i].wr_id & WR_IS_RECV) != 0)
            complete_receive(ib, lane, &wcs[i]);
        else
            complete_send(ib, lane, wcs[i].wr_id);
    }
    if (n < 0 && !ib->is_failed)
        gyre_ib_raise_post(ib, &ib->lanes[0], "ibv_poll_cq", -n);
    return n > 0;
}

/* ---- the round ----------------------------------------------------------------------------------
 */

static void post_due_receives(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane)
{
    /* More than there can be imms were posted: half of the spare ones may be missing. */
    if (lane->n_recv_due < GYRE_IB_RECV_BATCH / 2 || ib->is_failed)
        return;
    if (gyre_ib_post_receives(lane, lane->n_recv_due) != GYRE_SUCCESS) {
        ib->is_failed = true;
        gyre_fault_raise(ib->config.fault, GYRE_ERROR_SYSTEM, gyre_cause());
    }
    lane->n_recv_due = 0;
}

/* The proxy is about to nap: make the next completion end the nap. What came before the arming does
 * not, so the queue is looked at once more. */
static bool arm(struct gyre_ib_transport *ib)
{
    bool has_moved = false;
    for (int i = 0; i < ib->n_rails; i++) {
        struct gyre_ib_rail *rail = &ib->rails[i];
        if (rail->is_armed || ibv_req_notify_cq(rail->cq, 0) != 0)
            continue;
        rail->is_armed = true;
        has_moved = take_completions(ib, rail) || has_moved;
    }
    return has_moved;
}

static void disarm(struct gyre_ib_transport *ib, struct gyre_ib_rail *rail)
{
    struct ibv_cq *cq;
    void *context;
    /* Non-blocking; the event may not have been written yet, then the next arming finds it. */
    if (ib->verbs->get_cq_event(rail->channel, &cq, &context) == 0) {
        ib->verbs->ack_cq_events(rail->cq, 1);
        rail->is_armed = false;
    }
}

/* Nothing moved: look at what is rare. */
static bool idle(struct gyre_ib_transport *ib)
{
    const uint64_t now_ns = gyre_now_ns();
    if (ib->idle_since_ns == 0)
        ib->idle_since_ns = now_ns;
    if (now_ns - ib->events_looked_ns >= EVENTS_PERIOD_NS) {
        ib->events_looked_ns = now_ns;
        gyre_ib_events_look(ib, now_ns);
    }
    return now_ns - ib->idle_since_ns >= ARM_AFTER_NS && arm(ib);
}

bool gyre_ib_poll(void *transport)
{
    struct gyre_ib_transport *ib = transport;
    bool has_moved = false;
    if (ib->is_failed)
        return false;
    for (int i = 0; i < ib->n_rails; i++) {
        if (take_completions(ib, &ib->rails[i]))
            has_moved = true;
        if (ib->rails[i].is_armed && has_moved)
            disarm(ib, &ib->rails[i]);
    }
    for (int i = 0; i < ib->n_lanes; i++)
        post_due_receives(ib, &ib->lanes[i]);
    for (int i = 0; i < ib->config.n_peers; i++) {
        has_moved = push_slots(ib, &ib->peers[i]) || has_moved;
        has_moved = return_credits(ib, &ib->peers[i]) || has_moved;
    }
    for (int i = 0; i < ib->n_lanes; i++)
        flush(ib, &ib->lanes[i]);
    if (!has_moved)
        return idle(ib);
    ib->idle_since_ns = 0;
    /* A busy path must not miss a port that went down. */
    if (++ib->n_polls % POLLS_PER_CLOCK == 0)
        gyre_ib_events_look(ib, gyre_now_ns());
    return true;
}
