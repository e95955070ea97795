/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of registered ranges, and gyre_comm_register() and gyre_comm_deregister().
 */
#include "core/engine/comm/registration.h"

#include "core/engine/comm/comm.h"

#include <errno.h>
#include <stdlib.h>

struct gyre_registered {
    struct gyre_registered *next;
    const void *buffer;
    size_t n_bytes;
    uint64_t handle;
    uint64_t n_users; /* how often the range was registered and not yet given back */
};

void gyre_registrations_init(struct gyre_registrations *registrations)
{
    registrations->first = NULL;
    registrations->last_handle = 0;
    pthread_mutex_init(&registrations->lock, NULL);
}

void gyre_registrations_fini(struct gyre_registrations *registrations)
{
    for (struct gyre_registered *range = registrations->first, *next; range != NULL; range = next) {
        next = range->next;
        free(range);
    }
    pthread_mutex_destroy(&registrations->lock);
}

size_t gyre_registrations_count(struct gyre_registrations *registrations)
{
    size_t n = 0;
    pthread_mutex_lock(&registrations->lock);
    for (const struct gyre_registered *range = registrations->first; range; range = range->next)
        n++;
    pthread_mutex_unlock(&registrations->lock);
    return n;
}

/* Called under the lock. NULL when there is no memory. */
static struct gyre_registered *find_or_add(struct gyre_registrations *registrations,
                                           const void *buffer, size_t n_bytes)
{
    struct gyre_registered *range = registrations->first;
    while (range != NULL && (range->buffer != buffer || range->n_bytes != n_bytes))
        range = range->next;
    if (range != NULL)
        return range;
    range = malloc(sizeof(*range));
    if (range != NULL) {
        *range = (struct gyre_registered){registrations->first, buffer, n_bytes,
                                          ++registrations->last_handle, 0};
        registrations->first = range;
    }
    return range;
}

static gyre_status add(struct gyre_registrations *registrations, const void *buffer, size_t n_bytes,
                       gyre_registration *handle_out)
{
    pthread_mutex_lock(&registrations->lock);
    struct gyre_registered *range = find_or_add(registrations, buffer, n_bytes);
    if (range != NULL) {
        range->n_users++;
        *handle_out = (gyre_registration)(uintptr_t)range->handle;
    }
    pthread_mutex_unlock(&registrations->lock);
    return range != NULL ? GYRE_SUCCESS : gyre_fail_errno(ENOMEM, "a registered buffer");
}

static gyre_status drop(struct gyre_registrations *registrations, gyre_registration handle)
{
    pthread_mutex_lock(&registrations->lock);
    struct gyre_registered **link = &registrations->first;
    while (*link != NULL && (*link)->handle != (uintptr_t)handle)
        link = &(*link)->next;
    struct gyre_registered *range = *link;
    if (range != NULL && --range->n_users == 0) {
        *link = range->next;
        free(range);
    }
    pthread_mutex_unlock(&registrations->lock);
    if (range == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%p is not a registration of this communicator, or was given back",
                         (void *)handle);
    return GYRE_SUCCESS;
}

static gyre_status register_buffer(gyre_comm *comm, const void *buffer, size_t n_bytes,
                                   gyre_registration *handle_out)
{
    GYRE_TRY(gyre_comm_check(comm));
    if (buffer == NULL || n_bytes == 0 || handle_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "register: %s",
                         handle_out == NULL ? "handle_out is NULL" : "no buffer, or no bytes");
    const uintptr_t last = (uintptr_t)buffer + (n_bytes - 1);
    if (last < (uintptr_t)buffer)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "register: [%p, +%zu) runs past the end of memory", buffer, n_bytes);
    gyre_status status = comm->member.device->ops->check_pointer(comm->member.device, buffer);
    if (status == GYRE_SUCCESS)
        status = comm->member.device->ops->check_pointer(comm->member.device, (const void *)last);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "register: [%p, +%zu)", buffer, n_bytes);
    return add(&comm->registrations, buffer, n_bytes, handle_out);
}

gyre_status gyre_comm_register(gyre_comm *comm, const void *buffer, size_t n_bytes,
                               gyre_registration *handle_out)
{
    GYRE_TRY(gyre_comm_pin_made(comm));
    const gyre_status status = register_buffer(comm, buffer, n_bytes, handle_out);
    gyre_comm_unpin(comm);
    return status;
}

gyre_status gyre_comm_deregister(gyre_comm *comm, gyre_registration handle)
{
    /* This works on a failed communicator too, because its buffers must come free. */
    GYRE_TRY(gyre_comm_pin_made(comm));
    const gyre_status status = drop(&comm->registrations, handle);
    gyre_comm_unpin(comm);
    return status;
}
