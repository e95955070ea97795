/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of registered ranges, and the public calls on it.
 */
#include "core/comm/registration.h"

#include "core/comm/comm.h"

#include <errno.h>
#include <stdlib.h>

/* A handle's low half is 1 + the place, its high half the generation: 0 is none. */
#define PLACE_BITS 32

_Static_assert(sizeof(gyre_registration) == sizeof(uint64_t), "place and generation fit");

void gyre_registrations_init(struct gyre_registrations *registrations)
{
    const struct gyre_registrations empty = {.ranges = NULL};
    *registrations = empty;
    pthread_mutex_init(&registrations->lock, NULL);
}

void gyre_registrations_fini(struct gyre_registrations *registrations)
{
    free(registrations->ranges);
    pthread_mutex_destroy(&registrations->lock);
}

static gyre_registration handle_of(const struct gyre_registrations *registrations, size_t place)
{
    const uint64_t generation = registrations->ranges[place].generation;
    return (gyre_registration)(uintptr_t)(generation << PLACE_BITS | (place + 1));
}

/* Under the lock: the place of the same range, else a free one, else n_ranges. */
static size_t find_place(const struct gyre_registrations *registrations, uintptr_t base,
                         size_t n_bytes)
{
    size_t free_place = registrations->n_ranges;
    for (size_t i = 0; i < registrations->n_ranges; i++) {
        const struct gyre_registered *range = &registrations->ranges[i];
        if (range->n_users == 0)
            free_place = i;
        else if (range->base == base && range->n_bytes == n_bytes)
            return i;
    }
    return free_place;
}

static gyre_status make_room(struct gyre_registrations *registrations)
{
    const size_t n = registrations->n_ranges > 0 ? registrations->n_ranges * 2 : 16;
    struct gyre_registered *ranges =
        n < UINT32_MAX ? realloc(registrations->ranges, n * sizeof(*ranges)) : NULL;
    if (ranges == NULL)
        return gyre_fail_errno(ENOMEM, "%zu registered buffers", n);
    const struct gyre_registered none = {.n_users = 0};
    for (size_t i = registrations->n_ranges; i < n; i++)
        ranges[i] = none;
    registrations->ranges = ranges;
    registrations->n_ranges = n;
    return GYRE_SUCCESS;
}

gyre_status gyre_registrations_add(struct gyre_registrations *registrations, const void *base,
                                   size_t n_bytes, gyre_registration *handle_out)
{
    gyre_status status = GYRE_SUCCESS;
    pthread_mutex_lock(&registrations->lock);
    const size_t place = find_place(registrations, (uintptr_t)base, n_bytes);
    if (place == registrations->n_ranges)
        status = make_room(registrations);
    if (status == GYRE_SUCCESS) {
        struct gyre_registered *range = &registrations->ranges[place];
        if (range->n_users++ == 0) {
            range->base = (uintptr_t)base;
            range->n_bytes = n_bytes;
            range->generation = ++registrations->generation;
        }
        *handle_out = handle_of(registrations, place);
    }
    pthread_mutex_unlock(&registrations->lock);
    return status;
}

gyre_status gyre_registrations_drop(struct gyre_registrations *registrations,
                                    gyre_registration handle)
{
    const uint64_t place = ((uint64_t)(uintptr_t)handle & UINT32_MAX) - 1;
    gyre_status status = GYRE_SUCCESS;
    pthread_mutex_lock(&registrations->lock);
    if (place >= registrations->n_ranges || registrations->ranges[place].n_users == 0 ||
        handle_of(registrations, place) != handle)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                           "%p is not a registration of this communicator, or was given back",
                           (void *)handle);
    else
        registrations->ranges[place].n_users--;
    pthread_mutex_unlock(&registrations->lock);
    return status;
}

size_t gyre_registrations_count(struct gyre_registrations *registrations)
{
    size_t n = 0;
    pthread_mutex_lock(&registrations->lock);
    for (size_t i = 0; i < registrations->n_ranges; i++)
        n += registrations->ranges[i].n_users > 0;
    pthread_mutex_unlock(&registrations->lock);
    return n;
}

/* ---- the public calls --------------------------------------------------------------------- */

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
    gyre_status status = comm->device->ops->check_pointer(comm->device, buffer);
    if (status == GYRE_SUCCESS)
        status = comm->device->ops->check_pointer(comm->device, (const void *)last);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "register: [%p, +%zu)", buffer, n_bytes);
    return gyre_registrations_add(&comm->registrations, buffer, n_bytes, handle_out);
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
    /* Of a failed communicator too: its buffers must come free. */
    GYRE_TRY(gyre_comm_pin_made(comm));
    const gyre_status status = gyre_registrations_drop(&comm->registrations, handle);
    gyre_comm_unpin(comm);
    return status;
}
