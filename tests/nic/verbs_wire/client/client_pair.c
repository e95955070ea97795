/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/verbs_wire/client/client.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* InfiniBand specification 1.4, table 46: waits of the codes of min_rnr_timer in use, in units of
 * 10 us. */
static uint64_t rnr_wait_ns(unsigned code)
{
    static const uint64_t us[32] = {655360, 10,    20,    30,     40,     60,     80,     120,
                                    160,    240,   320,   480,    640,    960,    1280,   1920,
                                    2560,   3840,  5120,  7680,   10240,  15360,  20480,  30720,
                                    40960,  61440, 81920, 122880, 163840, 245760, 327680, 491520};
    return us[code & 31] * 1000;
}

void wire_wait_left(const struct wire_pair_entry *entry)
{
    const uint32_t *marks[2] = {&entry->is_executing, &entry->is_entered};
    for (int i = 0; i < 2; i++) {
        uint32_t pid;
        /* A dead NIC does nothing more. */
        while ((pid = wire_load(marks[i])) != 0 && wire_is_running((pid_t)pid))
            gyre_cpu_relax();
    }
}

static uint32_t at_least_one(uint32_t n)
{
    return n > 0 ? n : 1;
}

static void reset_entry(struct wire_pair_entry *entry, const struct wire_pair *pair)
{
    (void)wire_exchange(&entry->state, IBV_QPS_RESET);
    wire_wait_left(entry);
    entry->is_executing = entry->is_entered = entry->peer_waits = 0;
    entry->process = (uint32_t)(wire.process - wire.job.file->processes);
    entry->pd = pair->pd->number;
    entry->device = pair->context->device->index;
    entry->ps_per_byte = pair->context->device->ps_per_byte;
    entry->latency_ns = pair->context->device->latency_ns;
    entry->send_queue = (uint32_t)(wire_queue_of(pair->ibv.send_cq)->entry - wire.job.file->queues);
    entry->recv_queue = (uint32_t)(wire_queue_of(pair->ibv.recv_cq)->entry - wire.job.file->queues);
    /* Indices are taken modulo these. */
    entry->max_send = at_least_one(pair->init_attr.cap.max_send_wr);
    entry->max_recv = at_least_one(pair->init_attr.cap.max_recv_wr);
    entry->dest_number = 0;
    entry->n_posted = entry->n_started = entry->n_done = 0;
    entry->bytes_staged = entry->bytes_fetched = 0;
    entry->n_receives = entry->n_spent = entry->n_messages = entry->n_taken = 0;
    entry->bytes_put = entry->bytes_taken = 0;
    entry->generation = entry->generation % 0xfff + 1;
}

static int check_init(struct ibv_qp_init_attr *attr)
{
    const int error = vm_check_cap(attr);
    if (error == 0 && (attr->cap.max_send_wr > WIRE_MAX_WR || attr->cap.max_recv_wr > WIRE_MAX_WR ||
                       attr->cap.max_send_sge > WIRE_MAX_SGE ||
                       attr->cap.max_recv_sge > WIRE_MAX_SGE || attr->srq != NULL))
        return EINVAL;
    return error;
}

static struct wire_pair *make(struct ibv_pd *pd, const struct ibv_qp_init_attr *attr, int index)
{
    struct wire_pair *pair = calloc(1, sizeof(*pair));
    if (pair == NULL)
        return NULL;
    pair->ibv.context = pd->context;
    pair->ibv.qp_context = attr->qp_context;
    pair->ibv.pd = pd;
    pair->ibv.send_cq = attr->send_cq;
    pair->ibv.recv_cq = attr->recv_cq;
    pair->ibv.qp_type = IBV_QPT_RC;
    pair->pd = (struct wire_pd *)(void *)pd;
    pair->context = (struct wire_context *)(void *)pd->context;
    pair->is_signaling_all = attr->sq_sig_all != 0;
    pair->init_attr = *attr;
    pair->entry = &wire.job.file->pairs[index];
    reset_entry(pair->entry, pair);
    pair->ibv.qp_num = pair->entry->generation << WIRE_INDEX_BITS | (uint32_t)index;
    gyre_store_release_u32(&pair->entry->number, pair->ibv.qp_num);
    pair->context->device->is_used = true;
    struct wire_queue *queues[2] = {wire_queue_of(pair->ibv.send_cq),
                                    wire_queue_of(pair->ibv.recv_cq)};
    for (int side = 0; side < 2; side++) {
        pair->next_of_queue[side] = queues[side]->pairs[side];
        queues[side]->pairs[side] = pair;
    }
    pair->next = wire.pairs;
    wire.pairs = pair;
    return pair;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct wire_file *file = wire.job.file;
    errno = check_init(attr);
    if (errno != 0)
        return NULL;
    pthread_mutex_lock(&wire_lock);
    const int index = wire_claim(&wire.job, file->pairs, sizeof(file->pairs[0]),
                                 WIRE_MAX_QUEUE_PAIRS, &file->next_pair);
    struct wire_pair *pair = index >= 0 ? make(pd, attr, index) : NULL;
    pthread_mutex_unlock(&wire_lock);
    return pair != NULL ? &pair->ibv : NULL;
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
    struct wire_pair *pair = (struct wire_pair *)(void *)ibv;
    struct wire_pair_entry *entry = pair->entry;
    (void)wire_hang(pair->context, false);
    pthread_mutex_lock(&wire_lock);
    (void)wire_exchange(&entry->state, IBV_QPS_RESET);
    wire_wait_left(entry);
    struct wire_queue *queues[2] = {wire_queue_of(pair->ibv.send_cq),
                                    wire_queue_of(pair->ibv.recv_cq)};
    struct wire_pair **at;
    for (int side = 0; side < 2; side++) {
        for (at = &queues[side]->pairs[side]; *at != pair;)
            at = &(*at)->next_of_queue[side];
        *at = pair->next_of_queue[side];
    }
    for (at = &wire.pairs; *at != pair;)
        at = &(*at)->next;
    *at = pair->next;
    gyre_store_release_u32(&entry->number, 0);
    /* The rings' memory goes back; they are zero again. */
    (void)madvise(entry->requests, sizeof(*entry) - offsetof(struct wire_pair_entry, requests),
                  MADV_REMOVE);
    gyre_store_release_u64(&entry->owner, 0);
    pthread_mutex_unlock(&wire_lock);
    free(pair);
    return 0;
}

static int to_rtr(struct wire_pair *pair, const struct ibv_qp_attr *attr)
{
    struct wire_pair_entry *entry = pair->entry;
    const struct vm_device model = wire_model_of(pair->context);
    const struct vm_port *port = &model.ports[pair->port - 1];
    const int error = vm_check_rtr(port, attr);
    if (error != 0)
        return error;
    (void)vm_parse_gid(port->gids[attr->ah_attr.grh.sgid_index].address, &entry->local_gid);
    entry->dest_gid = attr->ah_attr.grh.dgid;
    entry->traffic_class = attr->ah_attr.grh.traffic_class;
    entry->dest_number = attr->dest_qp_num;
    entry->rq_psn = attr->rq_psn;
    entry->path_mtu = attr->path_mtu;
    entry->max_msg_bytes = port->max_msg_bytes;
    entry->rnr_window_ns = rnr_wait_ns(attr->min_rnr_timer);
    return 0;
}

static void to_rts(struct wire_pair *pair, const struct ibv_qp_attr *attr)
{
    struct wire_pair_entry *entry = pair->entry;
    entry->sq_psn = attr->sq_psn;
    entry->retry_window_ns =
        attr->timeout == 0 ? 0 : (4096ULL << attr->timeout) * (attr->retry_cnt + 1ULL);
    /* 7 means for ever. In these tests both ends ask for the same time. */
    entry->rnr_window_ns =
        attr->rnr_retry == 7 ? 0 : entry->rnr_window_ns * (attr->rnr_retry + 1ULL);
}

enum ibv_qp_state wire_state_of(struct wire_pair *pair)
{
    if (pair->ibv.state == IBV_QPS_RTS && wire_load(&pair->entry->state) == IBV_QPS_ERR)
        pair->ibv.state = IBV_QPS_ERR;
    return pair->ibv.state;
}

static int step(struct wire_pair *pair, const struct ibv_qp_attr *attr)
{
    if (attr->qp_state == IBV_QPS_INIT) {
        if (attr->port_num < 1 || attr->port_num > pair->context->device->model.n_ports)
            return EINVAL;
        pair->port = attr->port_num;
        pair->entry->access = attr->qp_access_flags;
    } else if (attr->qp_state == IBV_QPS_RTR) {
        return to_rtr(pair, attr);
    } else if (attr->qp_state == IBV_QPS_RTS) {
        to_rts(pair, attr);
    }
    return 0;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
    struct wire_pair *pair = (struct wire_pair *)(void *)ibv;
    /* As the kernel does if the peer's address is not resolved. */
    if (attr->qp_state == IBV_QPS_RTR && wire_hang(pair->context, true))
        return ETIMEDOUT;
    pthread_mutex_lock(&wire_lock);
    int error = vm_check_step(wire_state_of(pair), attr->qp_state, mask);
    if (error == 0)
        error = step(pair, attr);
    if (error == 0) {
        /* What ibv_query_qp answers later. */
        struct ibv_qp_attr *kept = &pair->attr;
        if ((mask & IBV_QP_ACCESS_FLAGS) != 0)
            kept->qp_access_flags = attr->qp_access_flags;
        if ((mask & IBV_QP_PORT) != 0)
            kept->port_num = attr->port_num;
        if ((mask & IBV_QP_AV) != 0)
            kept->ah_attr = attr->ah_attr;
        if ((mask & IBV_QP_PATH_MTU) != 0)
            kept->path_mtu = attr->path_mtu;
        if ((mask & IBV_QP_DEST_QPN) != 0)
            kept->dest_qp_num = attr->dest_qp_num;
        if ((mask & IBV_QP_TIMEOUT) != 0)
            kept->timeout = attr->timeout;
        if ((mask & IBV_QP_RETRY_CNT) != 0)
            kept->retry_cnt = attr->retry_cnt;
        if ((mask & IBV_QP_RNR_RETRY) != 0)
            kept->rnr_retry = attr->rnr_retry;
        ibv->state = attr->qp_state;
        (void)wire_exchange(&pair->entry->state, attr->qp_state);
        if (attr->qp_state == IBV_QPS_ERR)
            wire_wait_left(pair->entry);
    }
    pthread_mutex_unlock(&wire_lock);
    return error;
}

int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init_attr)
{
    struct wire_pair *pair = (struct wire_pair *)(void *)ibv;
    (void)mask;
    pthread_mutex_lock(&wire_lock);
    *attr = pair->attr;
    attr->qp_state = attr->cur_qp_state = wire_state_of(pair);
    attr->cap = pair->init_attr.cap;
    *init_attr = pair->init_attr;
    pthread_mutex_unlock(&wire_lock);
    return 0;
}
