/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests inject; devices, contexts, ports and GIDs.
 */
#include "tests/nic/verbs_wire/client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static const struct wire_faults *faults_of(const struct wire_context *context)
{
    return &wire.nic->faults[context->device->index];
}

bool wire_has_fault(const struct wire_context *context, enum wire_fault_kind kind)
{
    return (faults_of(context)->kinds & kind) != 0;
}

bool wire_hang(const struct wire_context *context, bool is_rtr)
{
    const struct wire_faults *faults = faults_of(context);
    const uint32_t ms = is_rtr ? faults->rtr_ms : faults->destroy_ms;
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    if (ms != 0)
        (void)nanosleep(&time, NULL);
    return ms != 0;
}

struct vm_device wire_model_of(const struct wire_context *context)
{
    struct vm_device model = context->device->model;
    struct vm_port *port = &model.ports[0];
    uint32_t n_rows = faults_of(context)->gid_rows;
    if (wire_has_fault(context, WIRE_DOWN))
        port->state = IBV_PORT_DOWN;
    if (n_rows > VM_MAX_GIDS)
        n_rows = VM_MAX_GIDS;
    for (uint32_t i = VM_MAX_GIDS; i-- > 0;)
        port->gids[i] = i >= n_rows ? port->gids[i - n_rows] : (struct vm_gid){"", 0};
    return model;
}

/* ---- events --------------------------------------------------------------------------------- */

/* Under wire_lock. */
static void raise_event(struct wire_context *context, enum ibv_event_type type)
{
    const uint64_t one = 1;
    if (context->n_events == WIRE_MAX_EVENTS)
        abort();
    context->events[context->n_events] = (struct ibv_async_event){.event_type = type};
    context->events[context->n_events++].element.port_num = 1;
    (void)!write(context->ibv.async_fd, &one, sizeof(one));
}

static void *watch(void *argument)
{
    struct wire_nic_entry *nic = argument;
    for (uint32_t n_seen = 0;;) {
        const uint32_t n_now = wire_load(&nic->n_fault_texts);
        if (n_now == n_seen) {
            wire_futex_wait(&nic->n_fault_texts, n_now, UINT64_C(3600000000000));
            continue;
        }
        n_seen = n_now;
        pthread_mutex_lock(&wire_lock);
        for (struct wire_context *c = wire.contexts; c != NULL; c = c->next) {
            const struct wire_faults now = *faults_of(c); /* the NIC may change them meanwhile */
            if (((now.kinds ^ c->seen.kinds) & WIRE_DOWN) != 0)
                raise_event(c, (now.kinds & WIRE_DOWN) != 0 ? IBV_EVENT_PORT_ERR
                                                            : IBV_EVENT_PORT_ACTIVE);
            if (now.gid_rows != c->seen.gid_rows)
                raise_event(c, IBV_EVENT_GID_CHANGE);
            c->seen = now;
        }
        pthread_mutex_unlock(&wire_lock);
    }
    return NULL;
}

bool wire_watch_faults(void)
{
    pthread_t thread;
    if (getenv("VERBS_WIRE_FAULTS") == NULL)
        return true;
    if (pthread_create(&thread, NULL, watch, wire.nic) != 0)
        return false;
    (void)pthread_detach(thread);
    return true;
}

int ibv_get_async_event(struct ibv_context *ibv, struct ibv_async_event *event)
{
    struct wire_context *context = (struct wire_context *)(void *)ibv;
    uint64_t value;
    if (read(ibv->async_fd, &value, sizeof(value)) != (ssize_t)sizeof(value))
        return -1;
    pthread_mutex_lock(&wire_lock);
    *event = context->events[0];
    context->n_events--;
    for (int i = 0; i < context->n_events; i++)
        context->events[i] = context->events[i + 1];
    pthread_mutex_unlock(&wire_lock);
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}

#undef ibv_query_port /* also a macro in verbs.h */

static struct wire_device devices[VM_MAX_DEVICES];
static int n_devices = -1; /* not read yet; as devices under wire_lock */

/* In "VALUE" or "NAME=VALUE;NAME=VALUE". 0 = none. */
static double read_value(const char *variable, const char *name)
{
    const char *text = getenv(variable);
    const char *rest = text;
    if (text == NULL || strchr(text, '=') == NULL)
        return text != NULL ? strtod(text, NULL) : 0;
    const size_t n = strlen(name);
    while (rest != NULL && !(strncmp(rest, name, n) == 0 && rest[n] == '='))
        rest = (rest = strchr(rest, ';')) != NULL ? rest + 1 : NULL;
    return rest != NULL ? strtod(rest + n + 1, NULL) : 0;
}

/* A RoCE v1 and a v2 row, as in the kernel. */
static bool add_gid(struct vm_port *port, int *n_gids, const char *address)
{
    union ibv_gid gid;
    if (!vm_parse_gid(address, &gid) || *n_gids + 2 > VM_MAX_GIDS) {
        wire_say("VERBS_WIRE_DEVICES: %s is no address, or one too many", address);
        return false;
    }
    for (int version = 1; version <= 2; version++)
        port->gids[(*n_gids)++] = (struct vm_gid){strdup(address), version};
    return true;
}

static bool add_device(char *text, int host)
{
    char link_local[48];
    char *addresses = strchr(text, '=');
    int n_gids = 0;
    if (n_devices == VM_MAX_DEVICES || addresses == NULL || addresses == text) {
        wire_say("VERBS_WIRE_DEVICES: \"%s\" is not name=address,..., or one too many", text);
        return false;
    }
    *addresses++ = '\0';
    struct wire_device *device = &devices[n_devices];
    struct vm_port *port = &device->model.ports[0];
    snprintf(device->ibv.name, sizeof(device->ibv.name), "%s", text);
    device->model = (struct vm_device){
        .name = device->ibv.name, .n_ports = 1, .max_cqe = 1 << 20, .max_qp_wr = WIRE_MAX_WR};
    port->state = IBV_PORT_ACTIVE;
    port->active_mtu = IBV_MTU_4096;
    port->max_msg_bytes = 1u << 30;
    device->index = (uint32_t)n_devices;
    device->ibv.node_type = IBV_NODE_CA;
    device->ibv.transport_type = IBV_TRANSPORT_IB;
    snprintf(device->ibv.dev_name, sizeof(device->ibv.dev_name), "uverbs%d", n_devices);
    snprintf(device->ibv.ibdev_path, sizeof(device->ibv.ibdev_path), "/sys/class/infiniband/%s",
             text);
    /* Codes of the InfiniBand specification for 2.5, 5, 10, 14, 25, 50 and 100 Gbit/s a lane, and
     * for lanes; 4 are tried first. */
    static const struct {
        uint8_t code;
        double gbit;
    } speeds[] = {{1, 2.5}, {2, 5}, {4, 10}, {16, 14}, {32, 25}, {64, 50}, {128, 100}},
      widths[] = {{2, 4}, {1, 1}, {4, 8}};
    const double gbit = read_value("VERBS_WIRE_GBIT", device->ibv.name);
    const double us = read_value("VERBS_WIRE_US", device->ibv.name);
    double best = 1e9;
    device->latency_ns = us > 0 && us < 1e6 ? (uint32_t)(us * 1000 + 0.5) : 0;
    device->ps_per_byte = gbit >= 0.01 && gbit <= 8000 ? (uint32_t)(8000 / gbit + 0.5) : 0;
    if ((gbit != 0 && device->ps_per_byte == 0) || us < 0 || us >= 1e6)
        wire_say("VERBS_WIRE_GBIT: legal are 0.01 to 8000; VERBS_WIRE_US: 0 to 999999; ignored");
    for (size_t k = 0; device->ps_per_byte != 0 && k < sizeof(widths) / sizeof(widths[0]); k++)
        for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++) {
            const double lanes = speeds[i].gbit * widths[k].gbit;
            const double distance = lanes > gbit ? lanes / gbit : gbit / lanes;
            if (distance < best) {
                best = distance;
                device->model.ports[0].active_speed = speeds[i].code;
                device->model.ports[0].active_width = widths[k].code;
            }
        }
    snprintf(link_local, sizeof(link_local), "fe80::5054:ff:fe%02x:%x", n_devices, host);
    if (!add_gid(port, &n_gids, link_local))
        return false;
    for (char *address; (address = strsep(&addresses, ",")) != NULL;)
        if (!add_gid(port, &n_gids, address))
            return false;
    n_devices++;
    return true;
}

static void read_devices(void)
{
    char defaults[96];
    const char *host_text = getenv("VERBS_WIRE_HOST");
    const char *text = getenv("VERBS_WIRE_DEVICES");
    const int host = host_text != NULL ? atoi(host_text) : 1;
    n_devices = 0;
    if (host < 1 || host > 250) {
        wire_say("VERBS_WIRE_HOST=%s: legal are 1 to 250", host_text);
        return;
    }
    snprintf(defaults, sizeof(defaults), "wire0=10.77.0.%d;wire1=10.77.1.%d", host, host);
    char *list = strdup(text != NULL ? text : defaults);
    char *rest = list;
    for (char *item; (item = strsep(&rest, ";")) != NULL;)
        if (!add_device(item, host)) {
            n_devices = 0;
            break;
        }
    free(list);
}

struct ibv_device **ibv_get_device_list(int *n_out)
{
    struct ibv_device **list = calloc(VM_MAX_DEVICES + 1, sizeof(struct ibv_device *));
    pthread_mutex_lock(&wire_lock);
    if (n_devices < 0)
        read_devices();
    for (int i = 0; i < n_devices; i++)
        list[i] = &devices[i].ibv;
    if (n_out != NULL)
        *n_out = n_devices;
    pthread_mutex_unlock(&wire_lock);
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct wire_context *context = calloc(1, sizeof(*context));
    pthread_mutex_lock(&wire_lock);
    const bool is_fine = wire_start();
    pthread_mutex_unlock(&wire_lock);
    if (!is_fine) {
        free(context);
        errno = EIO;
        return NULL;
    }
    context->device = (struct wire_device *)(void *)device;
    context->ibv.device = device;
    context->ibv.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    context->ibv.cmd_fd = -1;
    context->ibv.num_comp_vectors = 1;
    context->ibv.ops.poll_cq = wire_poll_cq;
    context->ibv.ops.req_notify_cq = wire_req_notify_cq;
    context->ibv.ops.post_send = wire_post_send;
    context->ibv.ops.post_recv = wire_post_recv;
    pthread_mutex_lock(&wire_lock);
    context->next = wire.contexts;
    wire.contexts = context;
    pthread_mutex_unlock(&wire_lock);
    return &context->ibv;
}

int ibv_close_device(struct ibv_context *ibv)
{
    struct wire_context **at = &wire.contexts;
    pthread_mutex_lock(&wire_lock);
    while (*at != NULL && &(*at)->ibv != ibv)
        at = &(*at)->next;
    if (*at != NULL) /* not a forked child's, of its parent */
        *at = (*at)->next;
    pthread_mutex_unlock(&wire_lock);
    close(ibv->async_fd);
    free(ibv);
    return 0;
}

void wire_print_stats(void)
{
    pthread_mutex_lock(&wire_lock);
    for (int i = 0; i < n_devices && getenv("VERBS_WIRE_STATS") != NULL; i++) {
        const struct wire_stats *stats = &wire.process->stats[i];
        if (devices[i].is_used)
            wire_say("%s sent %llu writes, %llu with imm, %llu bytes: %llu direct, %llu by ring, "
                     "%llu by CUDA copy; its NIC waited %llu times for copies",
                     devices[i].ibv.name, (unsigned long long)stats->n_writes,
                     (unsigned long long)stats->n_imms, (unsigned long long)stats->n_bytes,
                     (unsigned long long)stats->n_direct, (unsigned long long)stats->n_ring,
                     (unsigned long long)stats->n_gpu,
                     (unsigned long long)gyre_load_relaxed_u64(&wire.nic->n_waits));
    }
    pthread_mutex_unlock(&wire_lock);
}

static struct vm_device model_of(const struct ibv_context *context)
{
    return wire_model_of((const struct wire_context *)(const void *)context);
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    const struct vm_device model = model_of(context);
    vm_fill_device(&model, attr);
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *compat)
{
    const struct vm_device model = model_of(context);
    if (port < 1 || port > model.n_ports)
        return EINVAL;
    vm_fill_port(&model, port, (struct ibv_port_attr *)(void *)compat);
    return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    const struct vm_device model = model_of(context);
    if (port < 1 || port > model.n_ports || index < 0 || index >= VM_MAX_GIDS)
        return EINVAL;
    (void)vm_parse_gid(model.ports[port - 1].gids[index].address, gid);
    return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                             size_t max_entries, uint32_t flags, size_t entry_bytes)
{
    (void)flags;
    const struct vm_device model = model_of(context);
    return vm_fill_gids(&model, entries, max_entries, entry_bytes);
}
