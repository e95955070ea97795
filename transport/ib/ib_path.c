/* SPDX-License-Identifier: Apache-2.0
 *
 * Fences, for GPUs before Hopper. A completion says that data have left the NIC, but not that they
 * have reached the GPU's memory, so the tail that the processor writes may arrive before them. A
 * fence reads the GPU's memory through the same NIC, on a queue pair connected to itself: a read
 * request does not pass a posted write (PCI Express base specification, transaction ordering).
 */
#include "transport/ib/ib_path.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define N_COMPLETIONS    32

#define EVENTS_PERIOD_NS 10000000ULL
#define POLLS_PER_CLOCK  256
#define PROBE_PERIOD_NS  1000000000ULL

/* Credit of LL waits until nothing has moved for so long: a call that waits for slot after slot
 * would send a message for each. */
#define CREDIT_HELD_NS 100000

void gyre_ib_trace(struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                   const struct gyre_ib_moved *moved)
{
    if (ib->recorded == NULL)
        return;
    struct gyre_trace_event *event = gyre_trace_next(ib->recorded);
    event->kind = (uint8_t)moved->kind;
    event->end_ns = gyre_now_ns();
    event->begin_ns = moved->begin_ns != 0 ? moved->begin_ns : event->end_ns;
    event->n_bytes = moved->n_bytes;
    event->n_ins = 0;
    event->n_outs = 0;
    for (uint64_t number = moved->first; number < moved->end; number++) {
        const struct gyre_trace_slot slot = {.peer = (uint16_t)peer->rank,
                                             .fifo = (uint16_t)moved->fifo,
                                             .number = gyre_trace_number(number, moved->is_lines)};
        gyre_trace_add_slot(event, &slot, moved->kind != GYRE_TRACE_RECEIVE);
    }
}

/* To its own port, so no address is resolved. */
#define CONNECT_NS 5000000000ULL

static gyre_status open_fence(struct gyre_ib_transport *ib, struct gyre_ib_rail *rail)
{
    struct gyre_ib_qp_size size = {.n_send = 1, .n_recv = 0};
    struct gyre_ib_qp_path path;
    GYRE_TRY(gyre_ib_path_begin(ib, rail, &path));
    if (rail->port.is_roce) {
        path.gid_index = (uint8_t)rail->gids[0].index;
        memcpy(path.local.gid, rail->gids[0].raw, sizeof(path.local.gid));
    }
    GYRE_TRY(gyre_ib_qp_create(ib->verbs, rail->pd, rail->cq, &path, IBV_ACCESS_REMOTE_READ, &size,
                               &rail->fence));
    path.local.qpn = rail->fence->qp_num;
    path.remote = path.local;
    return gyre_ib_qp_connect(ib->verbs, rail->fence, &path, gyre_now_ns() + CONNECT_NS);
}

gyre_status gyre_ib_fences_open(struct gyre_ib_transport *ib)
{
    for (int i = 0; i < ib->n_rails && ib->fence.is_needed; i++) {
        const gyre_status status = open_fence(ib, &ib->rails[i]);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "NET/IB %s: fence", ib->rails[i].port.name);
    }
    return GYRE_SUCCESS;
}

static void raise_fence(struct gyre_ib_transport *ib, const struct gyre_ib_rail *rail,
                        const char *words)
{
    gyre_fail(GYRE_ERROR_DEVICE, "NET/IB %s:%u: the read that lets the GPU see received data: %s",
              rail->port.name, rail->port.port, words);
    gyre_ib_raise(ib, GYRE_ERROR_DEVICE, gyre_cause());
}

static bool post_read(struct gyre_ib_transport *ib, const struct gyre_ib_rail *rail)
{
    struct ibv_sge sge = {.addr =
                              (uintptr_t)ib->recv_words + ib->recv_words_bytes - sizeof(uint64_t),
                          .length = sizeof(uint64_t),
                          .lkey = rail->recv_words->lkey};
    struct ibv_send_wr wr, *bad = NULL;
    memset(&wr, 0, sizeof(wr));
    wr.wr_id = GYRE_IB_WR_IS_FENCE;
    wr.opcode = IBV_WR_RDMA_READ;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = (uintptr_t)ib->recv_slots;
    wr.wr.rdma.rkey = rail->recv_slots->rkey;
    const int error = ibv_post_send(rail->fence, &wr, &bad);
    if (error != 0)
        raise_fence(ib, rail, gyre_text_error(error));
    return error == 0;
}

static bool begin_fence(struct gyre_ib_transport *ib)
{
    const uint32_t depth = ib->config.spec.depth;
    if (!ib->fence.is_wanted || ib->fence.n_left > 0 || ib->is_failed)
        return false;
    ib->fence.is_wanted = false;
    /* Complete slots, up to the first that is not. */
    for (int i = 0; i < ib->config.n_peers; i++)
        for (uint32_t fifo = 0; fifo < ib->peers[i].size.n_fifos; fifo++) {
            struct gyre_ib_recv *recv = &ib->peers[i].recvs[fifo];
            recv->fencing = recv->arrived;
            while (recv->fencing < recv->arrived + depth &&
                   gyre_ib_is_complete(recv, (uint32_t)(recv->fencing % depth)))
                recv->fencing++;
        }
    for (int i = 0; i < ib->n_rails && post_read(ib, &ib->rails[i]); i++)
        ib->fence.n_left++;
    return true;
}

/* A connection that can move keeps what the receiver may still lack. */
void gyre_ib_release_slots(const struct gyre_ib_peer *peer, const struct gyre_ib_send *send,
                           bool is_lines)
{
    uint64_t head = is_lines ? send->lines.released : send->released;
    if (peer->move.is_possible)
        head = gyre_min_u64(head, is_lines ? send->lines.credit : send->credit);
    gyre_store_release_u64(&send->fifo.credit->head[is_lines ? GYRE_PROTO_LL : GYRE_PROTO_SIMPLE],
                           head);
}

/* And all earlier sends of its channel. */
static void complete_send(struct gyre_ib_transport *ib, struct gyre_ib_channel *channel,
                          uint64_t wr_id)
{
    const uint32_t slot = (uint32_t)(wr_id >> GYRE_IB_POSTED_BITS) & 7;
    const uint32_t fifo = (uint32_t)(wr_id >> 32) & 0xffff;
    channel->n_retired +=
        ((wr_id & GYRE_IB_POSTED_MASK) - channel->n_retired) & GYRE_IB_POSTED_MASK;
    if ((wr_id & GYRE_IB_WR_ENDS_PART) == 0)
        return;
    if ((wr_id & GYRE_IB_WR_IS_LINES) != 0) {
        gyre_ib_release_lines(ib, channel->peer, fifo, slot);
        return;
    }
    struct gyre_ib_send *send = &channel->peer->sends[fifo];
    const uint32_t depth = send->fifo.depth;
    const uint64_t first = send->released;
    if (channel->peer->n_used == 1) {
        /* The newest `slot` of that index: the next one waits for this release. */
        send->released = send->posted - (send->posted - 1 - slot) % depth;
    } else {
        const uint64_t info = gyre_load_relaxed_u64(&send->fifo.inbox->slot_info[slot]);
        if (channel->n_in_flight > 0 && (info & 0xffffffff) >= GYRE_IB_SHARED_MIN_BYTES)
            gyre_ib_part_answered(channel);
        send->parts_left[slot]--;
        while (send->released < send->posted && send->parts_left[send->released % depth] == 0)
            send->released++;
    }
    gyre_ib_release_slots(channel->peer, send, false);
    const struct gyre_ib_moved moved = {
        .kind = GYRE_TRACE_COMPLETE, .fifo = fifo, .first = first, .end = send->released};
    gyre_ib_trace(ib, channel->peer, &moved);
}

static void raise_protocol(struct gyre_ib_transport *ib, const struct gyre_ib_channel *channel,
                           const char *what, uint64_t value)
{
    char ends[400];
    gyre_fail(GYRE_ERROR_REMOTE, "RDMA from rank %d: %s (0x%llx): %s", channel->peer->rank, what,
              (unsigned long long)value, gyre_ib_channel_to_text(ib, channel, ends, sizeof(ends)));
    gyre_ib_raise(ib, GYRE_ERROR_REMOTE, gyre_cause());
}

static void take_credit(struct gyre_ib_transport *ib, const struct gyre_ib_channel *channel,
                        struct gyre_ib_send *send, uint64_t head)
{
    if (head > send->posted)
        raise_protocol(ib, channel, "credit for slots that were never sent", head);
    else if (head > send->credit)
        send->credit = head;
    if (channel->peer->move.is_possible)
        gyre_ib_release_slots(channel->peer, send, false);
}

static void publish(struct gyre_ib_transport *ib, const struct gyre_ib_channel *channel,
                    uint32_t fifo)
{
    struct gyre_ib_recv *recv = &channel->peer->recvs[fifo];
    const uint32_t depth = ib->config.spec.depth;
    const uint32_t slot_bytes = recv->fifo.slot_bytes;
    struct gyre_inbox *inbox = recv->fifo.inbox;
    for (;;) {
        const uint32_t slot = (uint32_t)(recv->arrived % depth);
        if (!gyre_ib_is_complete(recv, slot))
            return;
        const struct gyre_ib_box *box = &recv->boxes[slot];
        const uint64_t info = gyre_load_acquire_u64(&box->label.slot_info);
        const uint64_t n_bytes = info & 0xffffffff;
        if (n_bytes > (recv->is_boxed[slot] ? GYRE_IB_BOX_PAYLOAD_BYTES : slot_bytes)) {
            raise_protocol(ib, channel, "a slot with too many bytes", n_bytes);
            return;
        }
        if (ib->fence.is_needed && !recv->is_boxed[slot] && n_bytes > 0 &&
            recv->arrived >= recv->fenced) {
            ib->fence.is_wanted = true;
            return;
        }
        if (recv->is_boxed[slot] && n_bytes > 0)
            memcpy(recv->fifo.slots + (uint64_t)slot * slot_bytes, box->payload, n_bytes);
        recv->n_parts[slot] = 0;
        recv->parts_seen[slot] = 0;
        /* Read the box before the slot is published: after that the peer may write it again. */
        struct gyre_ib_send *send = &channel->peer->sends[fifo];
        take_credit(ib, channel, send, gyre_load_relaxed_u64(&box->label.credit));
        gyre_store_relaxed_u64(&inbox->slot_info[slot], info);
        recv->arrived++;
        const struct gyre_ib_moved moved = {.kind = GYRE_TRACE_RECEIVE,
                                            .fifo = fifo,
                                            .first = recv->arrived - 1,
                                            .end = recv->arrived,
                                            .n_bytes = n_bytes};
        gyre_ib_trace(ib, channel->peer, &moved);
        gyre_store_release_u64(&inbox->tail[GYRE_PROTO_SIMPLE], recv->arrived);
    }
}

static void complete_receive(struct gyre_ib_transport *ib, struct gyre_ib_channel *channel,
                             const struct ibv_wc *wc)
{
    const uint32_t imm = ntohl(wc->imm_data);
    const uint32_t fifo = imm >> 16;
    const uint32_t slot = imm >> 12 & 15;
    channel->n_recv_due++;
    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM || fifo >= channel->peer->size.n_fifos ||
        slot >= ib->config.spec.depth) {
        raise_protocol(ib, channel, "an unexpected message", imm);
        return;
    }
    if (channel->is_control) {
        const bool is_lines = (imm & GYRE_IB_IMM_LINES) != 0;
        const struct gyre_ib_peer *peer = channel->peer;
        struct gyre_ib_send *send = &peer->sends[fifo];
        const uint64_t head =
            gyre_load_acquire_u64(&peer->credit_words[fifo + (is_lines ? peer->size.n_fifos : 0)]);
        if (!is_lines)
            take_credit(ib, channel, send, head);
        else if (head > send->lines.credit) /* maybe early: see struct gyre_ib_line_send */
            send->lines.credit = head;
        if (is_lines && peer->move.is_possible)
            gyre_ib_release_slots(peer, send, true);
        return;
    }
    struct gyre_ib_recv *recv = &channel->peer->recvs[fifo];
    recv->n_parts[slot] = (uint8_t)((imm >> 8 & 15) + 1);
    recv->is_boxed[slot] = (imm & GYRE_IB_IMM_BOXED) != 0;
    recv->parts_seen[slot]++;
    publish(ib, channel, fifo);
}

bool gyre_ib_take_completions(struct gyre_ib_transport *ib, struct gyre_ib_rail *rail)
{
    struct ibv_wc wcs[N_COMPLETIONS];
    const int n = ibv_poll_cq(rail->cq, N_COMPLETIONS, wcs);
    for (int i = 0; i < n && !ib->is_failed; i++) {
        if ((wcs[i].wr_id & GYRE_IB_WR_IS_FENCE) == GYRE_IB_WR_IS_FENCE) {
            if (wcs[i].status != IBV_WC_SUCCESS)
                raise_fence(ib, rail, gyre_ib_wc_name(wcs[i].status));
            else if (--ib->fence.n_left == 0) {
                for (int p = 0; p < ib->config.n_peers && !ib->is_failed; p++) {
                    struct gyre_ib_peer *peer = &ib->peers[p];
                    for (uint32_t fifo = 0; fifo < peer->size.n_fifos; fifo++) {
                        peer->recvs[fifo].fenced = peer->recvs[fifo].fencing;
                        publish(ib, peer->used[0], fifo);
                    }
                }
            }
            continue;
        }
        struct gyre_ib_channel *channel = &ib->channels[wcs[i].wr_id >> 48 & GYRE_IB_CHANNEL_MASK];
        struct gyre_ib_peer *peer = channel->peer;
        if (peer->move.epoch != 0 && (channel->qp == NULL || wcs[i].qp_num != channel->qp->qp_num))
            continue; /* of an earlier epoch */
        if (wcs[i].status != IBV_WC_SUCCESS) {
            gyre_ib_raise_completion(ib, channel, &wcs[i]);
            continue;
        }
        peer->n_completions++;
        if ((wcs[i].wr_id & GYRE_IB_WR_IS_RECV) != 0)
            complete_receive(ib, channel, &wcs[i]);
        else
            complete_send(ib, channel, wcs[i].wr_id);
    }
    if (n < 0 && !ib->is_failed)
        gyre_ib_raise_post(ib, &ib->channels[0], "ibv_poll_cq", -n);
    return n > 0;
}

/* A completion before the arming would not end the proxy's sleep, so each queue is polled once
 * more. */
bool gyre_ib_settle(void *transport)
{
    struct gyre_ib_transport *ib = transport;
    bool has_moved = false;
    if (ib->is_failed)
        return false;
    for (int i = 0; i < ib->n_rails; i++) {
        struct gyre_ib_rail *rail = &ib->rails[i];
        struct ibv_cq *cq;
        void *context;
        /* An event may follow its completion late. */
        if (rail->is_armed && ib->verbs->get_cq_event(rail->events, &cq, &context) == 0) {
            ib->verbs->ack_cq_events(rail->cq, 1);
            rail->is_armed = false;
        }
        if (rail->is_armed || ibv_req_notify_cq(rail->cq, 0) != 0)
            continue;
        rail->is_armed = true;
        has_moved = gyre_ib_take_completions(ib, rail) || has_moved;
    }
    return has_moved;
}

static void look_around(struct gyre_ib_transport *ib, uint64_t now_ns)
{
    gyre_ib_events_look(ib, now_ns);
    if (now_ns - ib->probed_ns < PROBE_PERIOD_NS)
        return;
    ib->probed_ns = now_ns;
    /* A rank that waits often has no message in flight, so its NIC cannot notice that a silent peer
     * is gone. */
    for (int i = 0; i < ib->config.n_peers; i++) {
        struct gyre_ib_peer *peer = &ib->peers[i];
        const bool has_moved = peer->n_completions != peer->n_completions_seen;
        peer->n_completions_seen = peer->n_completions;
        if (!has_moved && !peer->move.is_halted && !ib->is_failed && peer->control->qp != NULL &&
            peer->control->n_retired >= peer->control->signalled_at &&
            gyre_ib_has_room(peer->control, 1))
            gyre_ib_write_credit_again(ib, peer);
    }
}

static void idle(struct gyre_ib_transport *ib)
{
    const uint64_t now_ns = gyre_now_ns();
    if (ib->idle_since_ns == 0)
        ib->idle_since_ns = now_ns;
    if (now_ns - ib->idle_since_ns >= CREDIT_HELD_NS) {
        ib->idle_since_ns = now_ns;
        for (int i = 0; i < ib->config.n_peers; i++)
            gyre_ib_return_held_credit(ib, &ib->peers[i]);
    }
    if (now_ns - ib->events_looked_ns < EVENTS_PERIOD_NS)
        return;
    ib->events_looked_ns = now_ns;
    look_around(ib, now_ns);
}

bool gyre_ib_poll(void *transport)
{
    struct gyre_ib_transport *ib = transport;
    bool has_moved = false;
    if (ib->is_failed)
        return false;
    if (gyre_load_relaxed_u32(&ib->needs_move) != 0)
        gyre_ib_move(ib);
    for (int i = 0; i < ib->n_rails; i++)
        has_moved = gyre_ib_take_completions(ib, &ib->rails[i]) || has_moved;
    has_moved = begin_fence(ib) || has_moved;
    for (int i = 0; i < ib->n_channels; i++) {
        struct gyre_ib_channel *channel = &ib->channels[i];
        /* More receives are posted than imms can arrive. */
        if (channel->n_recv_due < GYRE_IB_RECV_BATCH / 2 || ib->is_failed)
            continue;
        if (gyre_ib_post_receives(channel, channel->n_recv_due) != GYRE_SUCCESS)
            gyre_ib_raise(ib, GYRE_ERROR_SYSTEM, gyre_cause());
        channel->n_recv_due = 0;
    }
    for (int i = 0; i < ib->config.n_peers; i++)
        has_moved = gyre_ib_push(ib, &ib->peers[i]) || has_moved;
    for (int i = 0; i < ib->n_channels; i++)
        gyre_ib_flush(ib, &ib->channels[i]);
    if (!has_moved) {
        idle(ib);
        return false;
    }
    ib->idle_since_ns = 0;
    if (++ib->n_polls % POLLS_PER_CLOCK == 0)
        look_around(ib, gyre_now_ns()); /* even a busy transport must see a port that went down */
    return true;
}

bool gyre_ib_is_behind(const void *transport, bool has_credit)
{
    const struct gyre_ib_transport *ib = transport;
    for (int i = 0; i < ib->config.n_peers && !ib->is_failed; i++)
        for (uint32_t fifo = 0; fifo < ib->peers[i].size.n_fifos; fifo++)
            if (gyre_ib_has_slot(ib, &ib->peers[i].sends[fifo], has_credit))
                return true;
    return false;
}
