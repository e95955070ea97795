/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/verbs_wire/client/client.h"

#include <errno.h>
#include <string.h>

static bool is_known(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
           opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}

/* False: more inline bytes than fit. */
static bool fill_request(const struct wire_pair *pair, const struct ibv_send_wr *wr,
                         struct wire_request *request)
{
    request->wr_id = wr->wr_id;
    request->remote_address = wr->wr.rdma.remote_addr;
    request->rkey = wr->wr.rdma.rkey;
    request->imm = wr->imm_data;
    request->opcode = wr->opcode;
    request->flags = wr->send_flags | (pair->is_signaling_all ? IBV_SEND_SIGNALED : 0);
    request->n_sges = (uint32_t)wr->num_sge;
    request->status = IBV_WC_SUCCESS;
    request->way = WIRE_DIRECT;
    request->n_bytes = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        request->sges[i] = (struct wire_sge){sge->addr, sge->length, sge->lkey};
        if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
            if (request->n_bytes + sge->length > VM_INLINE_BYTES)
                return false;
            memcpy(request->inlined + request->n_bytes, (const void *)(uintptr_t)sge->addr,
                   sge->length);
        }
        request->n_bytes += sge->length;
    }
    return true;
}

int wire_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct wire_pair *pair = (struct wire_pair *)(void *)ibv;
    struct wire_pair_entry *entry = pair->entry;
    int error = 0;
    pthread_mutex_lock(&wire_lock);
    const enum ibv_qp_state state = wire_state_of(pair);
    uint64_t n_posted = entry->n_posted;
    for (; wr != NULL; wr = wr->next) {
        if (state != IBV_QPS_RTS && state != IBV_QPS_ERR)
            error = EINVAL;
        else if (wr->num_sge < 0 || wr->num_sge > WIRE_MAX_SGE || !is_known(wr->opcode))
            error = EOPNOTSUPP;
        else if (n_posted - pair->n_retired >= entry->max_send)
            error = ENOMEM;
        else if (!fill_request(pair, wr, &entry->requests[n_posted % entry->max_send]))
            error = EINVAL;
        if (error != 0) {
            *bad = wr;
            break;
        }
        n_posted++;
    }
    if (n_posted != entry->n_posted) {
        gyre_store_release_u64(&entry->n_posted, n_posted);
        wire_stage(pair);
        /* A pair in ERR completes what was posted at the next poll, until which somebody may sleep.
         */
        if (wire_state_of(pair) == IBV_QPS_ERR)
            wire_notify(&wire.job, entry->send_queue);
        else
            wire_announce(wire.nic, (uint32_t)(pair->entry - wire.job.file->pairs));
    }
    pthread_mutex_unlock(&wire_lock);
    return error;
}

/* Its NIC lacked a receive, or room in a ring. */
static void tell_peer(struct wire_pair *pair)
{
    struct wire_file *file = wire.job.file;
    const uint32_t peer = pair->entry->dest_number & WIRE_INDEX_MASK;
    if (wire_load(&pair->entry->peer_waits) == 0 || wire_exchange(&pair->entry->peer_waits, 0) == 0)
        return;
    if (peer < WIRE_MAX_QUEUE_PAIRS)
        wire_announce(&file->nics[file->processes[file->pairs[peer].process].nic], peer);
}

int wire_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct wire_pair *pair = (struct wire_pair *)(void *)ibv;
    struct wire_pair_entry *entry = pair->entry;
    int error = 0;
    pthread_mutex_lock(&wire_lock);
    uint64_t n_receives = entry->n_receives;
    for (; wr != NULL; wr = wr->next) {
        if (wire_state_of(pair) == IBV_QPS_RESET || wr->num_sge < 0 || wr->num_sge > WIRE_MAX_SGE)
            error = EINVAL;
        else if (n_receives - pair->recv_head >= entry->max_recv)
            error = ENOMEM;
        if (error != 0) {
            *bad = wr;
            break;
        }
        struct wire_receive *receive = &entry->receives[n_receives++ % entry->max_recv];
        receive->wr_id = wr->wr_id;
        receive->n_sges = (uint64_t)wr->num_sge;
        for (int i = 0; i < wr->num_sge; i++)
            receive->sges[i] =
                (struct wire_sge){wr->sg_list[i].addr, wr->sg_list[i].length, wr->sg_list[i].lkey};
    }
    gyre_store_release_u64(&entry->n_receives, n_receives);
    tell_peer(pair);
    if (wire_state_of(pair) == IBV_QPS_ERR)
        wire_notify(&wire.job, entry->recv_queue);
    pthread_mutex_unlock(&wire_lock);
    return error;
}

/* May no NIC do anything more to this pair? Then the rest is flushed. */
static bool is_at_rest(struct wire_pair *pair)
{
    return wire_state_of(pair) == IBV_QPS_ERR && !wire_has_fault(pair->context, WIRE_NO_FLUSHES) &&
           wire_load(&pair->entry->is_executing) == 0 && wire_load(&pair->entry->is_entered) == 0;
}

static void store_payload(struct wire_pair_entry *entry, const struct wire_message *message)
{
    unsigned char *to = (unsigned char *)(uintptr_t)message->address;
    uint64_t left = message->n_bytes;
    while (left > 0) {
        const uint64_t at = entry->bytes_taken % WIRE_RING_BYTES;
        const uint64_t n = left < WIRE_RING_BYTES - at ? left : WIRE_RING_BYTES - at;
        memcpy(to, entry->ring + at, n);
        to += n;
        left -= n;
        gyre_store_release_u64(&entry->bytes_taken, entry->bytes_taken + n);
    }
}

static struct ibv_wc describe_arrival(struct wire_pair *pair, const struct wire_message *message)
{
    const bool has_imm = message->kind != WIRE_SEND_PLAIN;
    return (struct ibv_wc){
        .wr_id = pair->entry->receives[pair->recv_head++ % pair->entry->max_recv].wr_id,
        .status = IBV_WC_SUCCESS,
        .opcode = message->kind == WIRE_WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
        .byte_len = message->total_bytes,
        .imm_data = has_imm ? message->imm : 0,
        .wc_flags = has_imm ? IBV_WC_WITH_IMM : 0,
        .qp_num = pair->ibv.qp_num,
    };
}

int wire_take(struct wire_pair *pair, int n, struct ibv_wc *wcs)
{
    struct wire_pair_entry *entry = pair->entry;
    int n_done = 0;
    while (entry->n_taken != gyre_load_acquire_u64(&entry->n_messages)) {
        const struct wire_message *message = &entry->messages[entry->n_taken % WIRE_MESSAGES];
        if (message->kind != WIRE_PAYLOAD && n_done == n)
            return n_done;
        store_payload(entry, message);
        if (message->kind != WIRE_PAYLOAD)
            wcs[n_done++] = describe_arrival(pair, message);
        gyre_store_release_u64(&entry->n_taken, entry->n_taken + 1);
        tell_peer(pair);
    }
    return n_done;
}

int wire_flush_receives(struct wire_pair *pair, int n, struct ibv_wc *wcs)
{
    struct wire_pair_entry *entry = pair->entry;
    int n_done = 0;
    if (!is_at_rest(pair) || entry->n_taken != gyre_load_acquire_u64(&entry->n_messages))
        return 0;
    for (; n_done < n && pair->recv_head < entry->n_receives; n_done++)
        wcs[n_done] =
            (struct ibv_wc){.wr_id = entry->receives[pair->recv_head++ % entry->max_recv].wr_id,
                            .status = IBV_WC_WR_FLUSH_ERR,
                            .qp_num = pair->ibv.qp_num};
    return n_done;
}

/* A NIC that died leaves requests without an end. */
static void check_nic(struct wire_pair *pair)
{
    struct wire_pair_entry *entry = pair->entry;
    if (entry->n_posted == pair->n_polled || wire_is_nic_alive() ||
        wire_state_of(pair) != IBV_QPS_RTS)
        return;
    wire_say("the NIC process is gone");
    (void)wire_exchange(&entry->state, IBV_QPS_ERR);
    (void)wire_exchange(&entry->is_executing, 0);
    entry->requests[pair->n_polled % entry->max_send].status = IBV_WC_FATAL_ERR;
    gyre_store_release_u64(&entry->n_done, pair->n_polled + 1);
}

static enum ibv_wc_opcode opcode_of(uint32_t opcode)
{
    return opcode == IBV_WR_RDMA_READ                                ? IBV_WC_RDMA_READ
           : opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_SEND
                                                                     : IBV_WC_RDMA_WRITE;
}

int wire_take_sends(struct wire_pair *pair, int n, struct ibv_wc *wcs)
{
    struct wire_pair_entry *entry = pair->entry;
    const bool is_resting = is_at_rest(pair);
    const uint64_t n_posted = entry->n_posted;
    int n_done = 0;
    check_nic(pair);
    const uint64_t n_ended = gyre_load_acquire_u64(&entry->n_done);
    while (n_done < n && pair->n_polled < (is_resting ? n_posted : n_ended)) {
        const struct wire_request *request = &entry->requests[pair->n_polled % entry->max_send];
        const uint32_t status =
            pair->n_polled >= n_ended ? (uint32_t)IBV_WC_WR_FLUSH_ERR : request->status;
        pair->n_polled++;
        if (status == IBV_WC_SUCCESS && (request->flags & IBV_SEND_SIGNALED) == 0)
            continue;
        pair->n_retired = pair->n_polled;
        wcs[n_done++] = (struct ibv_wc){.wr_id = request->wr_id,
                                        .status = (enum ibv_wc_status)status,
                                        .opcode = opcode_of(request->opcode),
                                        .byte_len = (uint32_t)request->n_bytes,
                                        .vendor_err = status != IBV_WC_SUCCESS ? 0x52 : 0,
                                        .qp_num = pair->ibv.qp_num};
    }
    return n_done;
}

bool wire_has_news(const struct wire_pair *pair)
{
    const struct wire_pair_entry *entry = pair->entry;
    return entry->n_taken != gyre_load_acquire_u64(&entry->n_messages) ||
           pair->n_polled != gyre_load_acquire_u64(&entry->n_done) ||
           gyre_load_acquire_u32(&entry->state) == IBV_QPS_ERR;
}

uint64_t wire_count_completions(const struct wire_pair *pair, bool is_recv)
{
    const struct wire_pair_entry *entry = pair->entry;
    uint64_t n = 0;
    if (is_recv) {
        for (uint64_t i = entry->n_taken; i < gyre_load_acquire_u64(&entry->n_messages); i++)
            n += entry->messages[i % WIRE_MESSAGES].kind != WIRE_PAYLOAD;
        return n;
    }
    for (uint64_t i = pair->n_polled; i < gyre_load_acquire_u64(&entry->n_done); i++)
        n += (entry->requests[i % entry->max_send].flags & IBV_SEND_SIGNALED) != 0;
    return n;
}
