/* SPDX-License-Identifier: Apache-2.0
 *
 * The device in memory. One lock guards it all: ranks are threads, and moving bytes under a lock is
 * what makes every run the same.
 */
#include "tests/verbs_memory.h"

#include "core/base/sync.h"
#include "tests/verbs_hidden.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_REGIONS     512
#define MAX_QUEUE_PAIRS 512
#define MAX_CONTEXTS    64
#define MAX_EVENTS      32

struct context {
    struct ibv_context ibv;
    struct device *device;
    struct ibv_async_event events[MAX_EVENTS];
    int n_events;
};

struct completion {
    struct ibv_wc wc;
    struct queue_pair *qp;
    uint64_t retires; /* sends of its QP up to here; 0 = a receive */
};

struct queue {
    struct ibv_cq ibv;
    struct completion *entries;
    uint64_t head, tail;
    bool is_armed;
    bool has_event;
};

/* A send that waits for the link. */
struct waiting {
    struct ibv_send_wr wr;
    struct ibv_sge sges[2];
    unsigned char inlined[VM_INLINE_BYTES];
    uint64_t position;
    struct waiting *next;
};

struct queue_pair {
    struct ibv_qp ibv;
    struct ibv_qp_attr attr;
    uint32_t sq_psn;
    uint32_t max_send, max_recv;
    uint64_t n_sent, n_retired;
    uint64_t *recv_ids;
    uint64_t recv_head, recv_tail;
    struct waiting *waiting, **waiting_end;
};

struct device {
    struct ibv_device ibv;
    struct vm_device model;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Everything below is under `lock`. */
static struct {
    struct device devices[VM_MAX_DEVICES];
    int n_devices;
    struct ibv_mr *regions[MAX_REGIONS];
    int access[MAX_REGIONS];
    struct queue_pair *queue_pairs[MAX_QUEUE_PAIRS];
    struct context *contexts[MAX_CONTEXTS];
    int n_objects; /* PDs, CQs, channels, lists */
    bool is_send_failing;
    enum ibv_wr_opcode failing_opcode;
    enum ibv_wc_status failing_status;
    enum ibv_wc_status failing_recv; /* SUCCESS = none */
    enum ibv_qp_state failing_state;
    int failing_errno, failing_times;
    int reg_errno, reg_after;
    bool is_hiding;
    struct vm_hidden *hidden;
    struct vm_counters counters;
} vm;

static struct device *device_of(const struct ibv_context *context)
{
    return (struct device *)(void *)context->device;
}

static struct vm_port *port_of(const struct queue_pair *qp)
{
    return &device_of(qp->ibv.context)->model.ports[qp->attr.port_num - 1];
}

/* ---- devices and ports ---------------------------------------------------------------------- */

static struct ibv_device **vm_get_device_list(int *n_out)
{
    pthread_mutex_lock(&lock);
    struct ibv_device **list = calloc((size_t)vm.n_devices + 1, sizeof(*list));
    for (int i = 0; i < vm.n_devices; i++)
        list[i] = &vm.devices[i].ibv;
    *n_out = vm.n_devices;
    vm.n_objects++;
    pthread_mutex_unlock(&lock);
    return list;
}

static void vm_free_device_list(struct ibv_device **list)
{
    pthread_mutex_lock(&lock);
    vm.n_objects--;
    pthread_mutex_unlock(&lock);
    free(list);
}

static int vm_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wcs);
static int vm_req_notify_cq(struct ibv_cq *cq, int solicited);
static int vm_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
static int vm_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

static struct ibv_context *vm_open_device(struct ibv_device *device)
{
    struct context *context = calloc(1, sizeof(*context));
    context->ibv.device = device;
    context->ibv.async_fd = eventfd(0, EFD_CLOEXEC);
    context->ibv.ops.poll_cq = vm_poll_cq;
    context->ibv.ops.req_notify_cq = vm_req_notify_cq;
    context->ibv.ops.post_send = vm_post_send;
    context->ibv.ops.post_recv = vm_post_recv;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        if (vm.contexts[i] == NULL) {
            vm.contexts[i] = context;
            pthread_mutex_unlock(&lock);
            return &context->ibv;
        }
    }
    abort();
}

static int vm_close_device(struct ibv_context *ibv)
{
    struct context *context = (struct context *)(void *)ibv;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_CONTEXTS; i++)
        if (vm.contexts[i] == context)
            vm.contexts[i] = NULL;
    pthread_mutex_unlock(&lock);
    close(ibv->async_fd);
    free(context);
    return 0;
}

static int vm_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    vm_fill_device(&device_of(context)->model, attr);
    return 0;
}

static int vm_query_port(struct ibv_context *context, uint8_t port,
                         struct _compat_ibv_port_attr *compat)
{
    pthread_mutex_lock(&lock);
    vm_fill_port(&device_of(context)->model, port, (struct ibv_port_attr *)(void *)compat);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int vm_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    pthread_mutex_lock(&lock);
    (void)vm_parse_gid(device_of(context)->model.ports[port - 1].gids[index].address, gid);
    pthread_mutex_unlock(&lock);
    return 0;
}

static ssize_t vm_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                                  size_t max_entries, uint32_t flags, size_t entry_bytes)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    const ssize_t n = vm_fill_gids(&device_of(context)->model, entries, max_entries, entry_bytes);
    pthread_mutex_unlock(&lock);
    return n;
}

/* ---- objects --------------------------------------------------------------------------------- */

static void count_objects(int n)
{
    pthread_mutex_lock(&lock);
    vm.n_objects += n;
    pthread_mutex_unlock(&lock);
}

static struct ibv_pd *vm_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = calloc(1, sizeof(*pd));
    pd->context = context;
    count_objects(1);
    return pd;
}

static int vm_dealloc_pd(struct ibv_pd *pd)
{
    count_objects(-1);
    free(pd);
    return 0;
}

static struct ibv_mr *register_region(struct ibv_pd *pd, void *base, size_t n_bytes, int access)
{
    pthread_mutex_lock(&lock);
    if (vm.reg_errno != 0 && vm.reg_after-- <= 0) {
        errno = vm.reg_errno;
        pthread_mutex_unlock(&lock);
        return NULL;
    }
    for (uint32_t i = 0; i < MAX_REGIONS; i++) {
        if (vm.regions[i] != NULL)
            continue;
        struct ibv_mr *mr = calloc(1, sizeof(*mr));
        *mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = base, .length = n_bytes};
        mr->lkey = 0x1000 + i;
        mr->rkey = 0x5000 + i;
        vm.regions[i] = mr;
        vm.access[i] = access;
        pthread_mutex_unlock(&lock);
        return mr;
    }
    abort();
}

static struct ibv_mr *vm_reg_mr(struct ibv_pd *pd, void *base, size_t n_bytes, int access)
{
    return register_region(pd, base, n_bytes, access);
}

static struct ibv_mr *vm_reg_mr_iova2(struct ibv_pd *pd, void *base, size_t n_bytes, uint64_t iova,
                                      unsigned int access)
{
    if (iova != (uintptr_t)base)
        abort();
    return register_region(pd, base, n_bytes, (int)access);
}

static int vm_dereg_mr(struct ibv_mr *mr)
{
    pthread_mutex_lock(&lock);
    vm.regions[mr->lkey - 0x1000] = NULL;
    pthread_mutex_unlock(&lock);
    free(mr);
    return 0;
}

static struct ibv_comp_channel *vm_create_comp_channel(struct ibv_context *context)
{
    struct ibv_comp_channel *channel = calloc(1, sizeof(*channel));
    channel->context = context;
    channel->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    count_objects(1);
    return channel;
}

static int vm_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    count_objects(-1);
    close(channel->fd);
    free(channel);
    return 0;
}

static struct ibv_cq *vm_create_cq(struct ibv_context *context, int n, void *cookie,
                                   struct ibv_comp_channel *channel, int vector)
{
    struct queue *queue = calloc(1, sizeof(*queue));
    (void)vector;
    queue->ibv.context = context;
    queue->ibv.cq_context = cookie;
    queue->ibv.channel = channel;
    queue->ibv.cqe = n;
    queue->entries = calloc((size_t)n, sizeof(*queue->entries));
    count_objects(1);
    return &queue->ibv;
}

static int vm_destroy_cq(struct ibv_cq *cq)
{
    count_objects(-1);
    free(((struct queue *)(void *)cq)->entries);
    free(cq);
    return 0;
}

static int vm_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cookie)
{
    uint64_t value;
    (void)cq;
    (void)cookie;
    return read(channel->fd, &value, sizeof(value)) == (ssize_t)sizeof(value) ? 0 : -1;
}

static void vm_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
    (void)cq;
    (void)n;
}

static struct ibv_qp *vm_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    errno = vm_check_cap(attr);
    if (errno != 0)
        return NULL;
    struct queue_pair *qp = calloc(1, sizeof(*qp));
    qp->ibv.context = pd->context;
    qp->ibv.pd = pd;
    qp->ibv.send_cq = attr->send_cq;
    qp->ibv.recv_cq = attr->recv_cq;
    qp->max_send = attr->cap.max_send_wr;
    qp->max_recv = attr->cap.max_recv_wr;
    qp->recv_ids = calloc(qp->max_recv, sizeof(*qp->recv_ids));
    qp->waiting_end = &qp->waiting;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < MAX_QUEUE_PAIRS; i++) {
        if (vm.queue_pairs[i] == NULL) {
            vm.queue_pairs[i] = qp;
            qp->ibv.qp_num = 0x11 + i;
            pthread_mutex_unlock(&lock);
            return &qp->ibv;
        }
    }
    abort();
}

static int vm_destroy_qp(struct ibv_qp *ibv)
{
    struct queue_pair *qp = (struct queue_pair *)(void *)ibv;
    pthread_mutex_lock(&lock);
    vm.queue_pairs[ibv->qp_num - 0x11] = NULL;
    pthread_mutex_unlock(&lock);
    while (qp->waiting != NULL) {
        struct waiting *next = qp->waiting->next;
        free(qp->waiting);
        qp->waiting = next;
    }
    free(qp->recv_ids);
    free(qp);
    return 0;
}

/* ---- completions ----------------------------------------------------------------------------- */

static void raise_event(const struct device *device, const struct ibv_async_event *event)
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
        raise_event(device_of(qp->ibv.context), &event);
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

static void fail_send(struct queue_pair *qp, const struct ibv_send_wr *wr, uint64_t position,
                      enum ibv_wc_status status)
{
    const struct ibv_wc wc = {.status = status, .vendor_err = 0x51};
    complete(qp, false, wr->wr_id, position, &wc);
    flush_all(qp);
}

static int vm_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wcs)
{
    struct queue *queue = (struct queue *)(void *)cq;
    int n_done = 0;
    pthread_mutex_lock(&lock);
    for (; n_done < n && queue->head < queue->tail; n_done++) {
        struct completion *entry = &queue->entries[queue->head++ % (uint64_t)cq->cqe];
        wcs[n_done] = entry->wc;
        if (entry->retires != 0) {
            entry->qp->n_retired = entry->retires;
            vm.counters.n_cqes++;
        }
    }
    pthread_mutex_unlock(&lock);
    return n_done;
}

static int vm_req_notify_cq(struct ibv_cq *cq, int solicited)
{
    (void)solicited;
    pthread_mutex_lock(&lock);
    ((struct queue *)(void *)cq)->is_armed = true;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* ---- moving data ----------------------------------------------------------------------------- */

/* The region that a key names, if the range lies in it and may be used so. @access: of the remote
 * side; 0 = this is the local side. */
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
        vm_hidden_show(&vm.hidden, peer->ibv.context);
        return IBV_WC_SUCCESS; /* nobody looks at what was read */
    }
    const bool hides = vm.is_hiding && wr->opcode == IBV_WR_RDMA_WRITE;
    unsigned char *to = (unsigned char *)(uintptr_t)wr->wr.rdma.remote_addr;
    for (int i = 0; i < wr->num_sge; i++) {
        const void *from = (const void *)(uintptr_t)wr->sg_list[i].addr;
        /* PCI writes an aligned word whole: a word that is polled is never seen half. */
        if (hides)
            vm_hidden_add(&vm.hidden, peer->ibv.context, to, from, wr->sg_list[i].length);
        else if (wr->sg_list[i].length == 8 && (uintptr_t)to % 8 == 0)
            gyre_store_release_u64((uint64_t *)(void *)to, *(const uint64_t *)from);
        else
            memcpy(to, from, wr->sg_list[i].length);
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
        fail_send(qp, wr, position, vm.failing_status);
        return;
    }
    const bool has_imm = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (has_imm && peer->recv_head == peer->recv_tail) {
        fail_send(qp, wr, position, IBV_WC_RNR_RETRY_EXC_ERR);
        return;
    }
    const enum ibv_wc_status status = move(qp, peer, wr, &n_bytes);
    if (status != IBV_WC_SUCCESS) {
        fail_send(qp, wr, position, status);
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

/* Copied as a NIC's queue entry is: inline data now, the rest when it is sent. */
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

static void go_on(struct queue_pair *qp)
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

static int vm_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct queue_pair *qp = (struct queue_pair *)(void *)ibv;
    const struct ibv_wc flushed = {.status = IBV_WC_WR_FLUSH_ERR};
    int error = 0;
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
    return error;
}

static int vm_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct queue_pair *qp = (struct queue_pair *)(void *)ibv;
    int error = 0;
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
    return error;
}

/* ---- queue pair states ----------------------------------------------------------------------- */

static int vm_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
    struct queue_pair *qp = (struct queue_pair *)(void *)ibv;
    int error = 0;
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
    return error;
}

/* ---- events ---------------------------------------------------------------------------------- */

static int vm_get_async_event(struct ibv_context *ibv, struct ibv_async_event *event)
{
    struct context *context = (struct context *)(void *)ibv;
    uint64_t value;
    pthread_mutex_lock(&lock);
    const bool is_there = context->n_events > 0;
    if (is_there) {
        *event = context->events[0];
        context->n_events--;
        memmove(context->events, context->events + 1,
                (size_t)context->n_events * sizeof(context->events[0]));
        if (context->n_events == 0 && read(ibv->async_fd, &value, sizeof(value)) < 0)
            abort();
    }
    pthread_mutex_unlock(&lock);
    return is_there ? 0 : -1;
}

static void vm_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}

static struct device *find_device(const char *name)
{
    for (int i = 0; i < vm.n_devices; i++)
        if (strcmp(vm.devices[i].model.name, name) == 0)
            return &vm.devices[i];
    abort();
}

void vm_event(const char *device, enum ibv_event_type type, int port)
{
    struct ibv_async_event event;
    memset(&event, 0, sizeof(event));
    event.event_type = type;
    event.element.port_num = port;
    pthread_mutex_lock(&lock);
    raise_event(find_device(device), &event);
    pthread_mutex_unlock(&lock);
}

void vm_port_set(const char *device, int port, bool is_active)
{
    pthread_mutex_lock(&lock);
    find_device(device)->model.ports[port - 1].state = is_active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    for (int i = 0; i < MAX_QUEUE_PAIRS; i++)
        if (vm.queue_pairs[i] != NULL)
            go_on(vm.queue_pairs[i]);
    pthread_mutex_unlock(&lock);
    vm_event(device, is_active ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, port);
}

void vm_expire(const char *device)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_QUEUE_PAIRS; i++) {
        struct queue_pair *qp = vm.queue_pairs[i];
        if (qp == NULL || qp->waiting == NULL || device_of(qp->ibv.context) != find_device(device))
            continue;
        struct waiting *first = qp->waiting;
        qp->waiting = first->next;
        fail_send(qp, &first->wr, first->position, IBV_WC_RETRY_EXC_ERR);
        free(first);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- what tests set ---------------------------------------------------------------------------
 */

void vm_fail_send(enum ibv_wr_opcode opcode, enum ibv_wc_status status)
{
    pthread_mutex_lock(&lock);
    vm.is_send_failing = true;
    vm.failing_opcode = opcode;
    vm.failing_status = status;
    pthread_mutex_unlock(&lock);
}

void vm_fail_recv(enum ibv_wc_status status)
{
    pthread_mutex_lock(&lock);
    vm.failing_recv = status;
    pthread_mutex_unlock(&lock);
}

void vm_fail_modify(enum ibv_qp_state state, int error_number, int times)
{
    pthread_mutex_lock(&lock);
    vm.failing_state = state;
    vm.failing_errno = error_number;
    vm.failing_times = times;
    pthread_mutex_unlock(&lock);
}

void vm_fail_reg_mr(int error_number, int after)
{
    pthread_mutex_lock(&lock);
    vm.reg_errno = error_number;
    vm.reg_after = after;
    pthread_mutex_unlock(&lock);
}

void vm_hide(bool is_hiding)
{
    pthread_mutex_lock(&lock);
    vm.is_hiding = is_hiding;
    pthread_mutex_unlock(&lock);
}

struct vm_counters vm_counters(void)
{
    pthread_mutex_lock(&lock);
    const struct vm_counters counters = vm.counters;
    pthread_mutex_unlock(&lock);
    return counters;
}

static const struct gyre_verbs table = {
#define VM_ROW(member) .member = vm_##member
    VM_ROW(get_device_list),
    VM_ROW(free_device_list),
    VM_ROW(open_device),
    VM_ROW(close_device),
    VM_ROW(query_device),
    VM_ROW(query_port),
    VM_ROW(query_gid),
    VM_ROW(query_gid_table),
    VM_ROW(alloc_pd),
    VM_ROW(dealloc_pd),
    VM_ROW(reg_mr),
    VM_ROW(reg_mr_iova2),
    VM_ROW(dereg_mr),
    VM_ROW(create_cq),
    VM_ROW(create_comp_channel),
    VM_ROW(destroy_comp_channel),
    VM_ROW(get_cq_event),
    VM_ROW(ack_cq_events),
    VM_ROW(destroy_cq),
    VM_ROW(create_qp),
    VM_ROW(modify_qp),
    VM_ROW(destroy_qp),
    VM_ROW(get_async_event),
    VM_ROW(ack_async_event),
#undef VM_ROW
};

static bool is_clean(void)
{
    int n = vm.n_objects;
    for (int i = 0; i < MAX_REGIONS; i++)
        n += vm.regions[i] != NULL;
    for (int i = 0; i < MAX_QUEUE_PAIRS; i++)
        n += vm.queue_pairs[i] != NULL;
    for (int i = 0; i < MAX_CONTEXTS; i++)
        n += vm.contexts[i] != NULL;
    return n == 0;
}

bool vm_install(const struct vm_device *devices)
{
    pthread_mutex_lock(&lock);
    const bool clean = is_clean();
    vm_hidden_drop(&vm.hidden);
    memset(&vm, 0, sizeof(vm));
    for (; devices[vm.n_devices].name != NULL; vm.n_devices++) {
        struct device *device = &vm.devices[vm.n_devices];
        device->model = devices[vm.n_devices];
        snprintf(device->ibv.name, sizeof(device->ibv.name), "%s", device->model.name);
    }
    pthread_mutex_unlock(&lock);
    gyre_verbs_install(&table);
    return clean;
}

bool vm_uninstall(void)
{
    gyre_verbs_install(NULL);
    pthread_mutex_lock(&lock);
    const bool clean = is_clean();
    vm_hidden_drop(&vm.hidden);
    memset(&vm, 0, sizeof(vm));
    pthread_mutex_unlock(&lock);
    return clean;
}
