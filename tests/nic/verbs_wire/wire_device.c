/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices, contexts, ports and GIDs, and the thread that tries again what waits.
 */
#include "tests/nic/verbs_wire/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#undef ibv_query_port /* also a macro in verbs.h */

#define TICK_NS 1000000 /* between tries of what waits */

static struct wire_device devices[VM_MAX_DEVICES];
static int n_devices = -1; /* not read yet; under wire_lock, as devices are */

/* ---- VERBS_WIRE_DEVICES --------------------------------------------------------------------- */

/* A RoCE v1 and a v2 row, as the kernel makes them of every address. */
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

/* ---- devices and contexts ------------------------------------------------------------------- */

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

/* Tries what waits again, while something does. Where payloads go through rings it also empties
 * those of this process, since their owner may sleep while a peer waits for room. */
static void *thread_main(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&wire_lock);
    while (wire.file != NULL) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TICK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (wire.n_stalled > 0 || !wire.is_direct)
            pthread_cond_timedwait(&wire_work, &wire_lock, &until);
        else
            pthread_cond_wait(&wire_work, &wire_lock);
        for (struct wire_pair *pair = wire.pairs; pair != NULL; pair = pair->next) {
            wire_go_on(pair);
            (void)wire_take(pair, 0, NULL);
        }
    }
    pthread_mutex_unlock(&wire_lock);
    return NULL;
}

/* The file is joined and the thread started by the first that opens a device; they stay. */
static bool start(void)
{
    pthread_t thread;
    if (wire.file != NULL)
        return true;
    return wire_attach() && pthread_create(&thread, NULL, thread_main, NULL) == 0 &&
           pthread_detach(thread) == 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct wire_context *context = calloc(1, sizeof(*context));
    pthread_mutex_lock(&wire_lock);
    const bool is_fine = start();
    pthread_mutex_unlock(&wire_lock);
    if (!is_fine) {
        free(context);
        errno = EIO;
        return NULL;
    }
    context->device = (struct wire_device *)(void *)device;
    context->ibv.device = device;
    context->ibv.async_fd = eventfd(0, EFD_CLOEXEC);
    context->ibv.cmd_fd = -1;
    context->ibv.num_comp_vectors = 1;
    context->ibv.ops.poll_cq = wire_poll_cq;
    context->ibv.ops.req_notify_cq = wire_req_notify_cq;
    context->ibv.ops.post_send = wire_post_send;
    context->ibv.ops.post_recv = wire_post_recv;
    return &context->ibv;
}

int ibv_close_device(struct ibv_context *context)
{
    close(context->async_fd);
    free(context);
    return 0;
}

void wire_print_stats(void)
{
    pthread_mutex_lock(&wire_lock);
    for (int i = 0; i < n_devices && getenv("VERBS_WIRE_STATS") != NULL; i++) {
        const struct wire_stats *stats = &devices[i].stats;
        if (devices[i].is_used)
            wire_say("%s sent %llu writes, %llu with imm, %llu bytes: %llu direct, %llu by ring, "
                     "%llu by CUDA copy",
                     devices[i].ibv.name, (unsigned long long)stats->n_writes,
                     (unsigned long long)stats->n_imms, (unsigned long long)stats->n_bytes,
                     (unsigned long long)stats->n_direct, (unsigned long long)stats->n_ring,
                     (unsigned long long)stats->n_gpu);
    }
    pthread_mutex_unlock(&wire_lock);
}

static const struct vm_device *model_of(const struct ibv_context *context)
{
    return &((const struct wire_context *)(const void *)context)->device->model;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    vm_fill_device(model_of(context), attr);
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *compat)
{
    if (port < 1 || port > model_of(context)->n_ports)
        return EINVAL;
    vm_fill_port(model_of(context), port, (struct ibv_port_attr *)(void *)compat);
    return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    if (port < 1 || port > model_of(context)->n_ports || index < 0 || index >= VM_MAX_GIDS)
        return EINVAL;
    (void)vm_parse_gid(model_of(context)->ports[port - 1].gids[index].address, gid);
    return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                             size_t max_entries, uint32_t flags, size_t entry_bytes)
{
    (void)flags;
    return vm_fill_gids(model_of(context), entries, max_entries, entry_bytes);
}

/* There are none: port and device failures are the device in memory's matter. */
int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    uint64_t value;
    (void)event;
    (void)!read(context->async_fd, &value, sizeof(value));
    return -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}
