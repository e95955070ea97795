/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/verbs_wire/client/client.h"

#include <stdlib.h>
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
