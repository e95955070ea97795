/* SPDX-License-Identifier: Apache-2.0
 *
 * Completions, moving data, queue pair states of the device in memory.
 */
#include "core/foundation/base/sync.h"
#include "tests/nic/verbs_memory_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct vm_hidden {
    struct vm_hidden *next;
    const void *nic;
    unsigned char *to;
    size_t n_bytes;
    unsigned char bytes[];
};

/* *first begins as NULL. */
static void hide(struct vm_hidden **first, const void *nic, unsigned char *to, const void *from,
                 size_t n_bytes)
{
    struct vm_hidden *own = malloc(sizeof(*own) + n_bytes);
    own->next = NULL;
    own->nic = nic;
    own->to = to;
    own->n_bytes = n_bytes;
    memcpy(own->bytes, from, n_bytes);
    while (*first != NULL)
        first = &(*first)->next;
    *first = own;
}

/* In order. */
static void show_hidden(struct vm_hidden **first, const void *nic)
{
    while (*first != NULL) {
        struct vm_hidden *own = *first;
        if (own->nic != nic) {
            first = &own->next;
            continue;
        }
        memcpy(own->to, own->bytes, own->n_bytes);
        *first = own->next;
        free(own);
    }
}

void vm_hidden_drop(struct vm_hidden **first)
{
    while (*first != NULL) {
        struct vm_hidden *own = *first;
        *first = own->next;
        free(own);
    }
}

void vm_raise_event(const struct device *device, const struct ibv_async_event *event)
{
    const uint64_t one = 1;
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        struct context *context = vm.contexts[i];
        if (context == NULL || device_of(&context->ibv) != device ||
            context->n_events == MAX_EVENTS)
            continue;
        context->events[context->n_events++] = *event;
        if (write(context->ibv.async_fd, &one, sizeof(one)) < 0)
            abort();
    }
}

static void complete(struct queue_pair *qp, bool is_recv, uint64_t wr_id, uint64_t retires,
                     const struct ibv_wc *like)
{
    struct queue *queue = (struct queue *)(void *)(is_recv ? qp->ibv.recv_cq : qp->ibv.send_cq);
    const uint64_t one = 1;
    if (queue->tail - queue->head == (uint64_t)queue->ibv.cqe) {
        const struct ibv_async_event event = {.event_type = IBV_EVENT_CQ_ERR,
                                              .element.cq = &queue->ibv};
        vm_raise_event(device_of(qp->ibv.context), &event);
        return;
    }
    struct completion *entry = &queue->entries[queue->tail++ % (uint64_t)queue->ibv.cqe];
    entry->wc = *like;
    entry->wc.wr_id = wr_id;
    entry->wc.qp_num = qp->ibv.qp_num;
    entry->qp = qp;
    entry->retires = retires;
    if (queue->is_armed) {
        queue->is_armed = false;
        if (write(queue->ibv.channel->fd, &one, sizeof(one)) < 0)
            abort();
    }
}

static void flush_all(struct queue_pair *qp)
{
    const struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR};
    qp->ibv.state = IBV_QPS_ERR;
    while (qp->waiting != NULL) {
        struct waiting *first = qp->waiting;
        complete(qp, false, first->wr.wr_id, first->position, &wc);
        qp->waiting = first->next;
        free(first);
    }
    qp->waiting_end = &qp->waiting;
    while (qp->recv_head < qp->recv_tail)
        complete(qp, true, qp->recv_ids[qp->recv_head++ % qp->max_recv], 0, &wc);
}

void vm_fail_request(struct queue_pair *qp, const struct ibv_send_wr *wr, uint64_t position,
                     enum ibv_wc_status status)
{
    const struct ibv_wc wc = {.status = status, .vendor_err = 0x51};
    complete(qp, false, wr->wr_id, position, &wc);
    flush_all(qp);
}

int vm_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wcs)
{
    struct queue *queue = (struct queue *)(void *)cq;
    int n_done = 0;
    pthread_mutex_lock(&vm_lock);
    for (; n_done < n && queue->head < queue->tail; n_done++) {
        struct completion *entry = &queue->entries[queue->head++ % (uint64_t)cq->cqe];
        wcs[n_done] = entry->wc;
        if (entry->retires != 0) {
            entry->qp->n_retired = entry->retires;
            vm.counters.n_cqes++;
        }
    }
    pthread_mutex_unlock(&vm_lock);
    return n_done;
}

int vm_req_notify_cq(struct ibv_cq *cq, int solicited)
{
    (void)solicited;
    pthread_mutex_lock(&vm_lock);
    ((struct queue *)(void *)cq)->is_armed = true;
    pthread_mutex_unlock(&vm_lock);
    return 0;
}

/* @access: of the remote side; 0 = this is the local side. */
static bool is_covered(const struct queue_pair *qp, uint32_t key, unsigned access, uint64_t address,
                       uint64_t n_bytes)
{
    const uint32_t i = key - (access != 0 ? 0x5000 : 0x1000);
    if (i >= MAX_REGIONS || vm.regions[i] == NULL || vm.regions[i]->pd != qp->ibv.pd)
        return false;
    const struct vm_range range = {.base = (uintptr_t)vm.regions[i]->addr,
                                   .n_bytes = vm.regions[i]->length,
                                   .access = (unsigned)vm.access[i]};
    return vm_range_allows(&range, address, n_bytes, access);
}

static struct queue_pair *peer_of(const struct queue_pair *qp)
{
    const uint32_t i = qp->attr.dest_qp_num - 0x11;
    struct queue_pair *peer = i < MAX_QUEUE_PAIRS ? vm.queue_pairs[i] : NULL;
    if (peer == NULL || (peer->ibv.state != IBV_QPS_RTR && peer->ibv.state != IBV_QPS_RTS) ||
        peer->attr.dest_qp_num != qp->ibv.qp_num || peer->attr.rq_psn != qp->sq_psn ||
        peer->attr.path_mtu != qp->attr.path_mtu)
        return NULL; /* dropped without an answer */
    return port_of(peer)->state == IBV_PORT_ACTIVE ? peer : NULL;
}

static bool is_link_up(const struct queue_pair *qp)
{
    return port_of(qp)->state == IBV_PORT_ACTIVE && peer_of(qp) != NULL;
}

static void store_word(unsigned char *to, const unsigned char *from, size_t word)
{
    uint64_t value;
    memcpy(&value, from + word * sizeof(value), sizeof(value));
    gyre_store_release_u64((uint64_t *)(void *)(to + word * sizeof(value)), value);
}

/* PCI writes aligned words whole. Scrambled, every second word comes first, and then the whole
 * message again, its end first. */
static void write_bytes(unsigned char *to, const unsigned char *from, size_t n_bytes,
                        bool is_scrambled)
{
    const size_t n_words = (uintptr_t)to % sizeof(uint64_t) == 0 ? n_bytes / sizeof(uint64_t) : 0;
    for (size_t i = 0; i < n_words; i += 2)
        if (is_scrambled)
            store_word(to, from, i);
    for (size_t i = 0; i < n_words; i++)
        store_word(to, from, is_scrambled ? n_words - 1 - i : i);
    memcpy(to + n_words * sizeof(uint64_t), from + n_words * sizeof(uint64_t),
           n_bytes - n_words * sizeof(uint64_t));
}

static enum ibv_wc_status move(struct queue_pair *qp, struct queue_pair *peer,
                               const struct ibv_send_wr *wr, uint64_t *n_bytes_out)
{
    uint64_t n_bytes = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        if ((wr->send_flags & IBV_SEND_INLINE) == 0 &&
            !is_covered(qp, sge->lkey, 0, sge->addr, sge->length))
            return IBV_WC_LOC_PROT_ERR;
        n_bytes += sge->length;
    }
    *n_bytes_out = n_bytes;
    if (n_bytes > port_of(qp)->max_msg_bytes || n_bytes > port_of(peer)->max_msg_bytes)
        return IBV_WC_LOC_LEN_ERR;
    const unsigned access =
        wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    if ((peer->attr.qp_access_flags & access) == 0 ||
        !is_covered(peer, wr->wr.rdma.rkey, access, wr->wr.rdma.remote_addr, n_bytes))
        return IBV_WC_REM_ACCESS_ERR;
    if (wr->opcode == IBV_WR_RDMA_READ) {
        show_hidden(&vm.hidden, peer->ibv.context);
        return IBV_WC_SUCCESS; /* no test reads these bytes */
    }
    const bool hides = vm.is_hiding && wr->opcode == IBV_WR_RDMA_WRITE;
    unsigned char *to = (unsigned char *)(uintptr_t)wr->wr.rdma.remote_addr;
    for (int i = 0; i < wr->num_sge; i++) {
        const void *from = (const void *)(uintptr_t)wr->sg_list[i].addr;
        if (hides)
            hide(&vm.hidden, peer->ibv.context, to, from, wr->sg_list[i].length);
        else
            write_bytes(to, from, wr->sg_list[i].length,
                        vm.is_scrambling && wr->opcode == IBV_WR_RDMA_WRITE);
        to += wr->sg_list[i].length;
    }
    return IBV_WC_SUCCESS;
}

static void execute(struct queue_pair *qp, const struct ibv_send_wr *wr, uint64_t position)
{
    struct queue_pair *peer = peer_of(qp);
    uint64_t n_bytes = 0;
    if (vm.is_send_failing && vm.failing_opcode == wr->opcode) {
        vm.is_send_failing = false;
        vm_fail_request(qp, wr, position, vm.failing_status);
        return;
    }
    const bool has_imm = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (has_imm && peer->recv_head == peer->recv_tail) {
        vm_fail_request(qp, wr, position, IBV_WC_RNR_RETRY_EXC_ERR);
        return;
    }
    const enum ibv_wc_status status = move(qp, peer, wr, &n_bytes);
    if (status != IBV_WC_SUCCESS) {
        vm_fail_request(qp, wr, position, status);
        return;
    }
    vm.counters.n_writes += wr->opcode == IBV_WR_RDMA_WRITE;
    vm.counters.n_reads += wr->opcode == IBV_WR_RDMA_READ;
    vm.counters.n_imms += has_imm;
    vm.counters.n_inline += (wr->send_flags & IBV_SEND_INLINE) != 0;
    if (n_bytes > vm.counters.largest_bytes)
        vm.counters.largest_bytes = n_bytes;
    if (has_imm) {
        const struct ibv_wc wc = {.status = vm.failing_recv,
                                  .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                                  .byte_len = (uint32_t)n_bytes,
                                  .imm_data = wr->imm_data,
                                  .wc_flags = IBV_WC_WITH_IMM};
        complete(peer, true, peer->recv_ids[peer->recv_head++ % peer->max_recv], 0, &wc);
        if (vm.failing_recv != IBV_WC_SUCCESS)
            flush_all(peer);
        vm.failing_recv = IBV_WC_SUCCESS;
    }
    if ((wr->send_flags & IBV_SEND_SIGNALED) != 0) {
        const struct ibv_wc wc = {.status = IBV_WC_SUCCESS, .opcode = IBV_WC_RDMA_WRITE};
        complete(qp, false, wr->wr_id, position, &wc);
    }
}

/* As in a NIC's queue entry, inline data are copied now, the rest when it is sent. */
static void wait_for_link(struct queue_pair *qp, const struct ibv_send_wr *wr, uint64_t position)
{
    struct waiting *waiting = calloc(1, sizeof(*waiting));
    size_t used = 0;
    waiting->wr = *wr;
    waiting->wr.sg_list = waiting->sges;
    waiting->wr.next = NULL;
    waiting->position = position;
    for (int i = 0; i < wr->num_sge; i++) {
        waiting->sges[i] = wr->sg_list[i];
        if ((wr->send_flags & IBV_SEND_INLINE) == 0)
            continue;
        memcpy(waiting->inlined + used, (const void *)(uintptr_t)wr->sg_list[i].addr,
               wr->sg_list[i].length);
        waiting->sges[i].addr = (uintptr_t)(waiting->inlined + used);
        used += wr->sg_list[i].length;
    }
    *qp->waiting_end = waiting;
    qp->waiting_end = &waiting->next;
}

void vm_go_on(struct queue_pair *qp)
{
    while (qp->waiting != NULL && qp->ibv.state == IBV_QPS_RTS && is_link_up(qp)) {
        struct waiting *first = qp->waiting;
        qp->waiting = first->next;
        if (qp->waiting == NULL)
            qp->waiting_end = &qp->waiting;
        execute(qp, &first->wr, first->position);
        free(first);
    }
}

int vm_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct queue_pair *qp = (struct queue_pair *)(void *)ibv;
    const struct ibv_wc flushed = {.status = IBV_WC_WR_FLUSH_ERR};
    int error = 0;
    pthread_mutex_lock(&vm_lock);
    vm.counters.n_posts++;
    vm.counters.n_queue_pairs_used += qp->n_sent == 0;
    for (; wr != NULL && error == 0; wr = wr->next) {
        if (qp->ibv.state != IBV_QPS_RTS && qp->ibv.state != IBV_QPS_ERR)
            error = EINVAL;
        else if (qp->n_sent - qp->n_retired >= qp->max_send)
            error = ENOMEM;
        if (error != 0) {
            *bad = wr;
            break;
        }
        qp->n_sent++;
        if (qp->ibv.state == IBV_QPS_ERR)
            complete(qp, false, wr->wr_id, qp->n_sent, &flushed);
        else if (qp->waiting != NULL || !is_link_up(qp))
            wait_for_link(qp, wr, qp->n_sent);
        else
            execute(qp, wr, qp->n_sent);
    }
    pthread_mutex_unlock(&vm_lock);
    return error;
}

int vm_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct queue_pair *qp = (struct queue_pair *)(void *)ibv;
    int error = 0;
    pthread_mutex_lock(&vm_lock);
    for (; wr != NULL && error == 0; wr = wr->next) {
        if (qp->ibv.state == IBV_QPS_RESET)
            error = EINVAL;
        else if (qp->recv_tail - qp->recv_head >= qp->max_recv)
            error = ENOMEM;
        if (error == 0)
            qp->recv_ids[qp->recv_tail++ % qp->max_recv] = wr->wr_id;
        else
            *bad = wr;
    }
    pthread_mutex_unlock(&vm_lock);
    return error;
}

int vm_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
    struct queue_pair *qp = (struct queue_pair *)(void *)ibv;
    int error = 0;
    pthread_mutex_lock(&vm_lock);
    error = vm_check_step(ibv->state, attr->qp_state, mask);
    if (error == 0 && attr->qp_state == IBV_QPS_RTR)
        error = vm_check_rtr(port_of(qp), attr);
    if (vm.failing_times > 0 && vm.failing_state == attr->qp_state) {
        vm.failing_times--;
        error = vm.failing_errno;
    } else if (attr->qp_state == IBV_QPS_INIT) {
        qp->attr.port_num = attr->port_num;
        qp->attr.qp_access_flags = attr->qp_access_flags;
    } else if (attr->qp_state == IBV_QPS_RTR) {
        qp->attr.path_mtu = attr->path_mtu;
        qp->attr.dest_qp_num = attr->dest_qp_num;
        qp->attr.rq_psn = attr->rq_psn;
        vm.counters.last_traffic_class = attr->ah_attr.grh.traffic_class;
        vm.counters.last_path_mtu = attr->path_mtu;
    } else if (attr->qp_state == IBV_QPS_RTS) {
        qp->sq_psn = attr->sq_psn;
    } else if (attr->qp_state == IBV_QPS_ERR) {
        flush_all(qp);
    }
    if (error == 0)
        ibv->state = attr->qp_state;
    pthread_mutex_unlock(&vm_lock);
    return error;
}
