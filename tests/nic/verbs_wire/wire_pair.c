/* SPDX-License-Identifier: Apache-2.0
 *
 * Queue pairs: making them, their states, posting, and what arrives.
 */
#include "tests/nic/verbs_wire/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* InfiniBand specification 1.4, table 46: waits of the codes of min_rnr_timer, in units of 10 us;
 * only those that programs use are worth a row. */
static uint64_t rnr_wait_ns(unsigned code)
{
    static const uint64_t us[32] = {655360, 10,    20,    30,     40,     60,     80,     120,
                                    160,    240,   320,   480,    640,    960,    1280,   1920,
                                    2560,   3840,  5120,  7680,   10240,  15360,  20480,  30720,
                                    40960,  61440, 81920, 122880, 163840, 245760, 327680, 491520};
    return us[code & 31] * 1000;
}

/* ---- making --------------------------------------------------------------------------------- */

static void enlist(struct wire_pair *pair)
{
    struct wire_queue *queue = (struct wire_queue *)(void *)pair->ibv.recv_cq;
    pair->next_of_queue = queue->pairs;
    queue->pairs = pair;
    pair->next = wire.pairs;
    wire.pairs = pair;
}

static void delist(const struct wire_pair *pair)
{
    struct wire_pair **at = &((struct wire_queue *)(void *)pair->ibv.recv_cq)->pairs;
    while (*at != pair)
        at = &(*at)->next_of_queue;
    *at = pair->next_of_queue;
    for (at = &wire.pairs; *at != pair;)
        at = &(*at)->next;
    *at = pair->next;
}

static void reset_entry(struct wire_pair_entry *entry, const struct wire_pair *pair)
{
    const struct wire_queue *queue = (const struct wire_queue *)(const void *)pair->ibv.recv_cq;
    (void)wire_exchange(&entry->state, IBV_QPS_RESET);
    (void)wire_exchange(&entry->busy, 0);
    entry->pd = pair->pd->number;
    entry->recv_queue = (uint32_t)(queue->entry - wire.file->queues);
    entry->n_receives = entry->n_taken = entry->bytes_taken = 0;
    entry->n_messages = entry->n_imms = entry->bytes_put = 0;
    entry->dest_number = 0;
    entry->generation = entry->generation % 0xfff + 1;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    errno = vm_check_cap(attr);
    if (errno == 0 && (attr->cap.max_send_wr > WIRE_MAX_WR || attr->cap.max_recv_wr > WIRE_MAX_WR ||
                       attr->cap.max_send_sge > 4))
        errno = EINVAL;
    if (errno != 0)
        return NULL;
    pthread_mutex_lock(&wire_lock);
    const int index = wire_claim(wire.file->pairs, sizeof(wire.file->pairs[0]),
                                 WIRE_MAX_QUEUE_PAIRS, &wire.file->next_pair);
    struct wire_pair *pair = index >= 0 ? calloc(1, sizeof(*pair)) : NULL;
    if (pair != NULL) {
        pair->ibv.context = pd->context;
        pair->ibv.pd = pd;
        pair->ibv.send_cq = attr->send_cq;
        pair->ibv.recv_cq = attr->recv_cq;
        pair->ibv.qp_type = IBV_QPT_RC;
        pair->pd = (struct wire_pd *)(void *)pd;
        pair->context = (struct wire_context *)(void *)pd->context;
        pair->max_send = attr->cap.max_send_wr;
        pair->max_recv = attr->cap.max_recv_wr;
        pair->recv_ids = calloc((size_t)pair->max_recv + 1, sizeof(*pair->recv_ids));
        pair->waiting_end = &pair->waiting;
        pair->entry = &wire.file->pairs[index];
        reset_entry(pair->entry, pair);
        pair->ibv.qp_num = pair->entry->generation << WIRE_INDEX_BITS | (uint32_t)index;
        gyre_store_release_u32(&pair->entry->number, pair->ibv.qp_num);
        pair->context->device->is_used = true;
        enlist(pair);
    }
    pthread_mutex_unlock(&wire_lock);
    return pair != NULL ? &pair->ibv : NULL;
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
    struct wire_pair *pair = (struct wire_pair *)(void *)ibv;
    struct wire_pair_entry *entry = pair->entry;
    pthread_mutex_lock(&wire_lock);
    (void)wire_exchange(&entry->state, IBV_QPS_RESET);
    wire_wait_left(entry);
    wire_drop_waiting(pair, NULL);
    delist(pair);
    gyre_store_release_u32(&entry->number, 0);
    gyre_store_release_u64(&entry->owner, 0);
    /* Completions that were not polled name a pair that no longer exists. */
    for (int i = 0; i < WIRE_MAX_QUEUES; i++)
        for (uint64_t at = wire.queues[i] != NULL ? wire.queues[i]->head : 0;
             wire.queues[i] != NULL && at < wire.queues[i]->tail; at++) {
            struct wire_completion *completion =
                &wire.queues[i]->completions[at % (uint64_t)wire.queues[i]->ibv.cqe];
            if (completion->pair == pair)
                completion->retires = 0;
        }
    pthread_mutex_unlock(&wire_lock);
    free(pair->recv_ids);
    free(pair);
    return 0;
}

/* ---- states --------------------------------------------------------------------------------- */

static void flush_waiting(struct wire_pair *pair, const struct wire_waiting *waiting)
{
    const struct wire_completion flushed = {
        .wc = {.status = IBV_WC_WR_FLUSH_ERR, .wr_id = waiting->wr.wr_id},
        .retires = waiting->position};
    wire_complete(pair, false, &flushed);
}

void wire_flush(struct wire_pair *pair)
{
    pair->ibv.state = IBV_QPS_ERR;
    (void)wire_exchange(&pair->entry->state, IBV_QPS_ERR);
    wire_wait_left(pair->entry);
    wire_drop_waiting(pair, flush_waiting);
    while (pair->recv_head < pair->recv_tail) {
        const struct wire_completion flushed = {
            .wc = {.status = IBV_WC_WR_FLUSH_ERR,
                   .wr_id = pair->recv_ids[pair->recv_head++ % pair->max_recv]}};
        wire_complete(pair, true, &flushed);
    }
}

void wire_fail(struct wire_pair *pair, const struct ibv_send_wr *wr, uint64_t position,
               enum ibv_wc_status status)
{
    const struct wire_completion completion = {
        .wc = {.status = status, .vendor_err = 0x52, .wr_id = wr->wr_id}, .retires = position};
    wire_complete(pair, false, &completion);
    wire_flush(pair);
}

/* Map what the peer registered in GPU memory now: kernels that wait for data may not run yet. */
static void map_peer_memory(struct wire_pair *pair)
{
    const struct wire_pair_entry *peer = wire_peer_entry(pair);
    if (peer == NULL || peer == pair->entry || pair->pd->gpu < 0)
        return;
    for (int i = 0; i < WIRE_MAX_REGIONS; i++) {
        const struct wire_region_entry *region = &wire.file->regions[i];
        const uint32_t key = gyre_load_acquire_u32(&region->key);
        if (key != 0 && wire_peer_region(peer, key) == region && region->is_gpu)
            (void)wire_gpu_map(pair->pd, region);
    }
}

static int to_rtr(struct wire_pair *pair, const struct ibv_qp_attr *attr)
{
    struct wire_pair_entry *entry = pair->entry;
    const struct vm_port *port = &pair->context->device->model.ports[pair->port - 1];
    const int error = vm_check_rtr(port, attr);
    if (error != 0)
        return error;
    (void)vm_parse_gid(port->gids[attr->ah_attr.grh.sgid_index].address, &entry->local_gid);
    entry->dest_gid = attr->ah_attr.grh.dgid;
    entry->dest_number = attr->dest_qp_num;
    entry->rq_psn = attr->rq_psn;
    entry->path_mtu = attr->path_mtu;
    entry->max_msg_bytes = port->max_msg_bytes;
    pair->rnr_window_ns = rnr_wait_ns(attr->min_rnr_timer);
    map_peer_memory(pair);
    return 0;
}

static void to_rts(struct wire_pair *pair, const struct ibv_qp_attr *attr)
{
    pair->sq_psn = attr->sq_psn;
    pair->retry_window_ns =
        attr->timeout == 0 ? 0 : (4096ULL << attr->timeout) * (attr->retry_cnt + 1ULL);
    /* 7 means for ever. The wait is the time that this end asks of its peer. In these tests both
     * ends ask for the same time. */
    pair->rnr_window_ns = attr->rnr_retry == 7 ? 0 : pair->rnr_window_ns * (attr->rnr_retry + 1ULL);
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
    struct wire_pair *pair = (struct wire_pair *)(void *)ibv;
    pthread_mutex_lock(&wire_lock);
    int error = vm_check_step(ibv->state, attr->qp_state, mask);
    if (error == 0 && attr->qp_state == IBV_QPS_INIT) {
        if (attr->port_num < 1 || attr->port_num > pair->context->device->model.n_ports)
            error = EINVAL;
        pair->port = attr->port_num;
        pair->entry->access = attr->qp_access_flags;
    } else if (error == 0 && attr->qp_state == IBV_QPS_RTR) {
        error = to_rtr(pair, attr);
    } else if (error == 0 && attr->qp_state == IBV_QPS_RTS) {
        to_rts(pair, attr);
    } else if (error == 0) {
        wire_flush(pair);
    }
    if (error == 0) {
        ibv->state = attr->qp_state;
        (void)wire_exchange(&pair->entry->state, attr->qp_state);
    }
    pthread_mutex_unlock(&wire_lock);
    return error;
}

/* ---- posting -------------------------------------------------------------------------------- */

int wire_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct wire_pair *pair = (struct wire_pair *)(void *)ibv;
    int error = 0;
    pthread_mutex_lock(&wire_lock);
    for (; wr != NULL; wr = wr->next) {
        if (ibv->state != IBV_QPS_RTS && ibv->state != IBV_QPS_ERR)
            error = EINVAL;
        else if (wr->num_sge > 4 ||
                 (wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM &&
                  wr->opcode != IBV_WR_RDMA_READ))
            error = EOPNOTSUPP;
        else if (pair->n_sent - pair->n_retired >= pair->max_send)
            error = ENOMEM;
        if (error != 0) {
            *bad = wr;
            break;
        }
        const uint64_t position = ++pair->n_sent;
        if (ibv->state == IBV_QPS_RTS) {
            wire_send(pair, wr, position);
            continue;
        }
        const struct wire_completion flushed = {
            .wc = {.status = IBV_WC_WR_FLUSH_ERR, .wr_id = wr->wr_id}, .retires = position};
        wire_complete(pair, false, &flushed);
    }
    pthread_mutex_unlock(&wire_lock);
    return error;
}

int wire_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct wire_pair *pair = (struct wire_pair *)(void *)ibv;
    int error = 0;
    pthread_mutex_lock(&wire_lock);
    for (; wr != NULL; wr = wr->next) {
        if (ibv->state == IBV_QPS_RESET || wr->num_sge != 0)
            error = EINVAL;
        else if (pair->recv_tail - pair->recv_head >= pair->max_recv)
            error = ENOMEM;
        if (error != 0) {
            *bad = wr;
            break;
        }
        pair->recv_ids[pair->recv_tail++ % pair->max_recv] = wr->wr_id;
    }
    gyre_store_release_u64(&pair->entry->n_receives, pair->recv_tail);
    pthread_mutex_unlock(&wire_lock);
    return error;
}

/* ---- what arrives --------------------------------------------------------------------------- */

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

int wire_take(struct wire_pair *pair, int n, struct ibv_wc *wcs)
{
    struct wire_pair_entry *entry = pair->entry;
    int n_done = 0;
    if (pair->ibv.state != IBV_QPS_RTR && pair->ibv.state != IBV_QPS_RTS)
        return 0;
    while (entry->n_taken != gyre_load_acquire_u64(&entry->n_messages)) {
        const struct wire_message *message = &entry->messages[entry->n_taken % WIRE_MESSAGES];
        if (message->has_imm && n_done == n)
            break;
        store_payload(entry, message);
        if (message->has_imm)
            wcs[n_done++] = (struct ibv_wc){
                .wr_id = pair->recv_ids[pair->recv_head++ % pair->max_recv],
                .status = IBV_WC_SUCCESS,
                .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                .byte_len = message->total_bytes,
                .imm_data = message->imm,
                .wc_flags = IBV_WC_WITH_IMM,
                .qp_num = pair->ibv.qp_num,
            };
        gyre_store_release_u64(&entry->n_taken, entry->n_taken + 1);
    }
    return n_done;
}
