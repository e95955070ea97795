/* SPDX-License-Identifier: Apache-2.0
 *
 * What is checked of a request at both ends, and its delivery.
 */
#include "tests/nic/verbs_wire/nic/nic_delivery.h"

#include <string.h>

static void note_gpu(struct nic_delivery *delivery, const struct wire_region_entry *region)
{
    if (region->is_gpu)
        delivery->request->way = WIRE_BY_COPY;
}

static enum ibv_wc_status list_local(struct nic_delivery *delivery, struct nic_segments *segments,
                                     unsigned access)
{
    const struct wire_request *request = delivery->request;
    if ((request->flags & IBV_SEND_INLINE) != 0) {
        segments->list[0] = (struct nic_segment){
            .pair = delivery->mine, .inlined = request->inlined, .n_bytes = request->n_bytes};
        segments->n = 1;
        return IBV_WC_SUCCESS;
    }
    for (segments->n = 0; segments->n < request->n_sges; segments->n++) {
        const struct wire_sge *sge = &request->sges[segments->n];
        const struct wire_region_entry *region =
            wire_local_region(delivery->nic->job.file, delivery->mine, sge, access);
        if (region == NULL)
            return IBV_WC_LOC_PROT_ERR;
        segments->list[segments->n] = (struct nic_segment){.pair = delivery->mine,
                                                           .region = region,
                                                           .address = sge->address,
                                                           .n_bytes = sge->n_bytes};
        note_gpu(delivery, region);
    }
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status list_remote(struct nic_delivery *delivery, struct nic_segments *segments,
                                      unsigned access)
{
    const struct wire_request *request = delivery->request;
    const struct wire_region_entry *region =
        wire_region_of(delivery->nic->job.file, delivery->peer, request->rkey);
    if ((delivery->peer->access & access) == 0 || region == NULL ||
        !vm_range_allows(&region->range, request->remote_address, request->n_bytes, access))
        return IBV_WC_REM_ACCESS_ERR;
    segments->list[0] = (struct nic_segment){.pair = delivery->peer,
                                             .region = region,
                                             .address = request->remote_address,
                                             .n_bytes = request->n_bytes};
    segments->n = 1;
    note_gpu(delivery, region);
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status list_receive(struct nic_delivery *delivery, struct nic_segments *segments)
{
    struct wire_pair_entry *peer = delivery->peer;
    const struct wire_receive *receive =
        &peer->receives[nic_count_spent(delivery) % peer->max_recv];
    uint64_t n_bytes = 0;
    for (segments->n = 0; segments->n < receive->n_sges; segments->n++) {
        const struct wire_sge *sge = &receive->sges[segments->n];
        const struct wire_region_entry *region =
            wire_local_region(delivery->nic->job.file, peer, sge, IBV_ACCESS_LOCAL_WRITE);
        if (region == NULL)
            return IBV_WC_REM_OP_ERR;
        segments->list[segments->n] = (struct nic_segment){
            .pair = peer, .region = region, .address = sge->address, .n_bytes = sge->n_bytes};
        note_gpu(delivery, region);
        n_bytes += sge->n_bytes;
    }
    return n_bytes < delivery->request->n_bytes ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS;
}

/* Lists the segments of both ends, and notes whether one is GPU memory. Local elements lie in the
 * sender's domain, the target in the peer's. Returns the status with which the request fails, or
 * IBV_WC_SUCCESS. */
static enum ibv_wc_status check(struct nic_delivery *delivery)
{
    const struct wire_request *request = delivery->request;
    const bool is_read = request->opcode == IBV_WR_RDMA_READ;
    enum ibv_wc_status status = list_local(delivery, is_read ? &delivery->to : &delivery->from,
                                           is_read ? IBV_ACCESS_LOCAL_WRITE : 0);
    if (status != IBV_WC_SUCCESS)
        return status;
    if (request->n_bytes > delivery->mine->max_msg_bytes ||
        request->n_bytes > delivery->peer->max_msg_bytes)
        return IBV_WC_LOC_LEN_ERR;
    if (is_read)
        return list_remote(delivery, &delivery->from, IBV_ACCESS_REMOTE_READ);
    if (request->opcode == IBV_WR_SEND || request->opcode == IBV_WR_SEND_WITH_IMM)
        return list_receive(delivery, &delivery->to);
    return list_remote(delivery, &delivery->to, IBV_ACCESS_REMOTE_WRITE);
}

/* Between looks whether a peer lives, which take three system calls. */
#define LOOK_PERIOD_NS 5000000ULL

struct wire_pair_entry *nic_peer_of(struct nic *nic, const struct wire_pair_entry *entry)
{
    const uint32_t index = entry->dest_number & WIRE_INDEX_MASK;
    if (index >= WIRE_MAX_QUEUE_PAIRS || entry->dest_number == 0)
        return NULL;
    struct wire_pair_entry *peer = &nic->job.file->pairs[index];
    return gyre_load_acquire_u32(&peer->number) == entry->dest_number ? peer : NULL;
}

/* Packets to a pair that is not connected to this one are dropped. */
static bool is_connected(const struct nic_pair *pair, const struct wire_pair_entry *peer)
{
    const struct wire_pair_entry *entry = pair->entry;
    const uint32_t state = wire_load(&peer->state);
    return (state == IBV_QPS_RTR || state == IBV_QPS_RTS) && peer->dest_number == pair->number &&
           peer->rq_psn == entry->sq_psn && peer->path_mtu == entry->path_mtu &&
           memcmp(peer->local_gid.raw, entry->dest_gid.raw, 16) == 0 &&
           memcmp(peer->dest_gid.raw, entry->local_gid.raw, 16) == 0;
}

static bool is_peer_alive(struct nic_pair *pair, const struct wire_pair_entry *peer)
{
    const uint64_t now_ns = wire_now_ns();
    if (now_ns - pair->peer_alive_at_ns < LOOK_PERIOD_NS)
        return true;
    if (!wire_is_alive(gyre_load_acquire_u64(&peer->owner)))
        return false;
    pair->peer_alive_at_ns = now_ns;
    return true;
}

void nic_announce(const struct nic_delivery *delivery)
{
    struct wire_pair_entry *peer = delivery->peer;
    nic_put_message(delivery,
                    &(struct wire_message){.total_bytes = (uint32_t)delivery->request->n_bytes,
                                           .imm = delivery->request->imm,
                                           .kind = delivery->kind});
    peer->n_spent++;
    wire_notify(&delivery->nic->job, peer->recv_queue);
}

/* All bytes were moved, or are held, or their copies are under way. */
static enum nic_verdict end(struct nic_delivery *delivery)
{
    struct nic_copies *copies = &delivery->pair->copies;
    if (copies->peer != NULL) {
        copies->n_receives += delivery->needs_receive;
        return NIC_STARTED;
    }
    if (!delivery->needs_receive)
        return NIC_DELIVERED;
    /* A request that waited for room has taken what was there. */
    if (nic_count_room(delivery) == 0)
        return nic_ask_peer(delivery, NIC_NO_ROOM);
    nic_announce(delivery);
    return NIC_DELIVERED;
}

static enum nic_verdict move(struct nic_delivery *delivery)
{
    const struct wire_request *request = delivery->request;
    struct wire_pair_entry *peer = delivery->peer;
    if (delivery->needs_receive &&
        gyre_load_acquire_u64(&peer->n_receives) == nic_count_spent(delivery))
        return nic_ask_peer(delivery, NIC_NO_RECEIVE);
    if (delivery->needs_receive && nic_count_room(delivery) == 0)
        return nic_ask_peer(delivery, NIC_NO_ROOM);
    delivery->status = check(delivery);
    if (delivery->status != IBV_WC_SUCCESS)
        return NIC_FAILED;
    /* Moves no bytes of a closed client. gyre reads only as a fence: what was written is in place.
     */
    const bool is_read = request->opcode == IBV_WR_RDMA_READ;
    if (is_read && delivery->pair->copies.peer != NULL)
        return NIC_BEHIND_COPIES;
    if (is_read && (nic_is_closed(delivery, delivery->mine) || nic_is_closed(delivery, peer)))
        return NIC_DELIVERED;
    if (nic_is_late(delivery)) /* after what was sent before */
        return delivery->pair->copies.peer != NULL ? NIC_BEHIND_COPIES : nic_send_late(delivery);
    while (delivery->pair->bytes_moved < request->n_bytes) {
        const enum nic_verdict verdict = nic_move_piece(delivery);
        if (verdict != NIC_DELIVERED)
            return verdict;
    }
    return end(delivery);
}

static void count(const struct nic_delivery *delivery)
{
    nic_capture(delivery->nic, delivery->pair, delivery->request);
    const struct wire_request *request = delivery->request;
    struct wire_stats *stats =
        &nic_process_of(delivery, delivery->mine)->stats[delivery->mine->device];
    stats->n_writes += request->opcode == IBV_WR_RDMA_WRITE;
    stats->n_imms += request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    stats->n_bytes += request->n_bytes;
    if (request->n_bytes == 0)
        return;
    if (request->way == WIRE_BY_COPY)
        stats->n_gpu++;
    else if (request->way == WIRE_BY_RING)
        stats->n_ring++;
    else if (request->opcode != IBV_WR_RDMA_READ)
        stats->n_direct++;
}

static enum wire_arrival kind_of(uint32_t opcode)
{
    return opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? WIRE_WRITE_IMM
           : opcode == IBV_WR_SEND              ? WIRE_SEND_PLAIN
           : opcode == IBV_WR_SEND_WITH_IMM     ? WIRE_SEND_IMM
                                                : WIRE_PAYLOAD;
}

static struct nic_delivery make_delivery(struct nic *nic, struct nic_pair *pair,
                                         struct wire_request *request)
{
    const enum wire_arrival kind = kind_of(request->opcode);
    return (struct nic_delivery){.nic = nic,
                                 .pair = pair,
                                 .mine = pair->entry,
                                 .request = request,
                                 .needs_receive = kind != WIRE_PAYLOAD,
                                 .kind = kind};
}

enum nic_verdict nic_deliver(struct nic *nic, struct nic_pair *pair, struct wire_request *request,
                             enum ibv_wc_status *status_out)
{
    struct nic_delivery delivery = make_delivery(nic, pair, request);
    struct wire_pair_entry *peer = delivery.peer = nic_peer_of(nic, pair->entry);
    /* Only the connected pair touches the peer's mark. Another would take it away from copies that
     * are under way. */
    if (peer == NULL || !is_connected(pair, peer) || !is_peer_alive(pair, peer))
        return NIC_NO_PEER;
    /* While the mark is there, the peer's owner keeps its memory. The peer may have left its state
     * before. */
    (void)wire_exchange(&peer->is_entered, (uint32_t)wire_pid_of(nic->job.owner));
    const enum nic_verdict verdict = is_connected(pair, peer) ? move(&delivery) : NIC_NO_PEER;
    if (pair->copies.peer == NULL)
        (void)wire_exchange(&peer->is_entered, 0);
    *status_out = delivery.status;
    if (verdict == NIC_DELIVERED)
        count(&delivery);
    return verdict;
}

enum nic_verdict nic_deliver_copied(struct nic *nic, struct nic_pair *pair,
                                    struct wire_request *request, enum ibv_wc_status *status_out)
{
    struct nic_delivery delivery = make_delivery(nic, pair, request);
    delivery.peer = pair->copies.peer;
    const enum nic_verdict verdict = nic_put_held(&delivery);
    *status_out = delivery.status;
    if (verdict != NIC_DELIVERED)
        return verdict;
    if (delivery.needs_receive)
        nic_announce(&delivery);
    count(&delivery);
    return NIC_DELIVERED;
}
