/* SPDX-License-Identifier: Apache-2.0
 *
 * One lock guards the device, which makes every run the same.
 */
#include "tests/nic/verbs_memory_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

pthread_mutex_t vm_lock = PTHREAD_MUTEX_INITIALIZER;
struct vm_state vm;

static struct ibv_device **vm_get_device_list(int *n_out)
{
    pthread_mutex_lock(&vm_lock);
    struct ibv_device **list = calloc((size_t)vm.n_devices + 1, sizeof(*list));
    for (int i = 0; i < vm.n_devices; i++)
        list[i] = &vm.devices[i].ibv;
    *n_out = vm.n_devices;
    vm.n_objects++;
    pthread_mutex_unlock(&vm_lock);
    return list;
}

static void vm_free_device_list(struct ibv_device **list)
{
    pthread_mutex_lock(&vm_lock);
    vm.n_objects--;
    pthread_mutex_unlock(&vm_lock);
    free(list);
}

static struct ibv_context *vm_open_device(struct ibv_device *device)
{
    struct context *context = calloc(1, sizeof(*context));
    context->ibv.device = device;
    context->ibv.async_fd = eventfd(0, EFD_CLOEXEC);
    context->ibv.ops.poll_cq = vm_poll_cq;
    context->ibv.ops.req_notify_cq = vm_req_notify_cq;
    context->ibv.ops.post_send = vm_post_send;
    context->ibv.ops.post_recv = vm_post_recv;
    pthread_mutex_lock(&vm_lock);
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        if (vm.contexts[i] == NULL) {
            vm.contexts[i] = context;
            pthread_mutex_unlock(&vm_lock);
            return &context->ibv;
        }
    }
    abort();
}

static int vm_close_device(struct ibv_context *ibv)
{
    struct context *context = (struct context *)(void *)ibv;
    pthread_mutex_lock(&vm_lock);
    for (int i = 0; i < MAX_CONTEXTS; i++)
        if (vm.contexts[i] == context)
            vm.contexts[i] = NULL;
    pthread_mutex_unlock(&vm_lock);
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
    pthread_mutex_lock(&vm_lock);
    vm_fill_port(&device_of(context)->model, port, (struct ibv_port_attr *)(void *)compat);
    pthread_mutex_unlock(&vm_lock);
    return 0;
}

static int vm_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    pthread_mutex_lock(&vm_lock);
    (void)vm_parse_gid(device_of(context)->model.ports[port - 1].gids[index].address, gid);
    pthread_mutex_unlock(&vm_lock);
    return 0;
}

static ssize_t vm_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                                  size_t max_entries, uint32_t flags, size_t entry_bytes)
{
    (void)flags;
    pthread_mutex_lock(&vm_lock);
    const ssize_t n = vm_fill_gids(&device_of(context)->model, entries, max_entries, entry_bytes);
    pthread_mutex_unlock(&vm_lock);
    return n;
}

static void count_objects(int n)
{
    pthread_mutex_lock(&vm_lock);
    vm.n_objects += n;
    pthread_mutex_unlock(&vm_lock);
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
    pthread_mutex_lock(&vm_lock);
    if (vm.reg_errno != 0 && vm.reg_after-- <= 0) {
        errno = vm.reg_errno;
        pthread_mutex_unlock(&vm_lock);
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
        pthread_mutex_unlock(&vm_lock);
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
    pthread_mutex_lock(&vm_lock);
    vm.regions[mr->lkey - 0x1000] = NULL;
    pthread_mutex_unlock(&vm_lock);
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
    pthread_mutex_lock(&vm_lock);
    for (uint32_t i = 0; i < MAX_QUEUE_PAIRS; i++) {
        if (vm.queue_pairs[i] == NULL) {
            vm.queue_pairs[i] = qp;
            qp->ibv.qp_num = 0x11 + i;
            pthread_mutex_unlock(&vm_lock);
            return &qp->ibv;
        }
    }
    abort();
}

static int vm_destroy_qp(struct ibv_qp *ibv)
{
    struct queue_pair *qp = (struct queue_pair *)(void *)ibv;
    pthread_mutex_lock(&vm_lock);
    vm.queue_pairs[ibv->qp_num - 0x11] = NULL;
    pthread_mutex_unlock(&vm_lock);
    while (qp->waiting != NULL) {
        struct waiting *next = qp->waiting->next;
        free(qp->waiting);
        qp->waiting = next;
    }
    free(qp->recv_ids);
    free(qp);
    return 0;
}

static int vm_get_async_event(struct ibv_context *ibv, struct ibv_async_event *event)
{
    struct context *context = (struct context *)(void *)ibv;
    uint64_t value;
    pthread_mutex_lock(&vm_lock);
    const bool has_event = context->n_events > 0;
    if (has_event) {
        vm.counters.n_events_taken++;
        *event = context->events[0];
        context->n_events--;
        memmove(context->events, context->events + 1,
                (size_t)context->n_events * sizeof(context->events[0]));
        if (context->n_events == 0 && read(ibv->async_fd, &value, sizeof(value)) < 0)
            abort();
    }
    pthread_mutex_unlock(&vm_lock);
    return has_event ? 0 : -1;
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
    pthread_mutex_lock(&vm_lock);
    vm_raise_event(find_device(device), &event);
    pthread_mutex_unlock(&vm_lock);
}

void vm_port_set(const char *device, int port, bool is_active)
{
    pthread_mutex_lock(&vm_lock);
    find_device(device)->model.ports[port - 1].state = is_active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    for (int i = 0; i < MAX_QUEUE_PAIRS; i++)
        if (vm.queue_pairs[i] != NULL)
            vm_go_on(vm.queue_pairs[i]);
    pthread_mutex_unlock(&vm_lock);
    vm_event(device, is_active ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, port);
}

void vm_expire(const char *device)
{
    pthread_mutex_lock(&vm_lock);
    for (int i = 0; i < MAX_QUEUE_PAIRS; i++) {
        struct queue_pair *qp = vm.queue_pairs[i];
        if (qp == NULL || qp->waiting == NULL || device_of(qp->ibv.context) != find_device(device))
            continue;
        struct waiting *first = qp->waiting;
        qp->waiting = first->next;
        vm_fail_request(qp, &first->wr, first->position, IBV_WC_RETRY_EXC_ERR);
        free(first);
    }
    pthread_mutex_unlock(&vm_lock);
}

void vm_fail_send(enum ibv_wr_opcode opcode, enum ibv_wc_status status)
{
    pthread_mutex_lock(&vm_lock);
    vm.is_send_failing = true;
    vm.failing_opcode = opcode;
    vm.failing_status = status;
    pthread_mutex_unlock(&vm_lock);
}

void vm_fail_recv(enum ibv_wc_status status)
{
    pthread_mutex_lock(&vm_lock);
    vm.failing_recv = status;
    pthread_mutex_unlock(&vm_lock);
}

void vm_fail_modify(enum ibv_qp_state state, int error_number, int times)
{
    pthread_mutex_lock(&vm_lock);
    vm.failing_state = state;
    vm.failing_errno = error_number;
    vm.failing_times = times;
    pthread_mutex_unlock(&vm_lock);
}

void vm_fail_reg_mr(int error_number, int after)
{
    pthread_mutex_lock(&vm_lock);
    vm.reg_errno = error_number;
    vm.reg_after = after;
    pthread_mutex_unlock(&vm_lock);
}

void vm_hide(bool is_hiding)
{
    pthread_mutex_lock(&vm_lock);
    vm.is_hiding = is_hiding;
    pthread_mutex_unlock(&vm_lock);
}

void vm_scramble(bool is_scrambling)
{
    pthread_mutex_lock(&vm_lock);
    vm.is_scrambling = is_scrambling;
    pthread_mutex_unlock(&vm_lock);
}

struct vm_counters vm_counters(void)
{
    pthread_mutex_lock(&vm_lock);
    const struct vm_counters counters = vm.counters;
    pthread_mutex_unlock(&vm_lock);
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
    pthread_mutex_lock(&vm_lock);
    const bool clean = is_clean();
    vm_hidden_drop(&vm.hidden);
    memset(&vm, 0, sizeof(vm));
    for (; devices[vm.n_devices].name != NULL; vm.n_devices++) {
        struct device *device = &vm.devices[vm.n_devices];
        device->model = devices[vm.n_devices];
        snprintf(device->ibv.name, sizeof(device->ibv.name), "%s", device->model.name);
    }
    pthread_mutex_unlock(&vm_lock);
    gyre_verbs_install(&table);
    return clean;
}

bool vm_uninstall(void)
{
    gyre_verbs_install(NULL);
    pthread_mutex_lock(&vm_lock);
    const bool clean = is_clean();
    vm_hidden_drop(&vm.hidden);
    memset(&vm, 0, sizeof(vm));
    pthread_mutex_unlock(&vm_lock);
    return clean;
}
