/* SPDX-License-Identifier: Apache-2.0
 *
 * All ranks gather the results of exports and imports before any
 * uses the window, so a failure of one rank is an error on all.
 */
#include "core/engine/comm/parts.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An exported buffer, or the result of imports. Gathered: fixed layout. */
struct window_offer {
    int32_t status;
    uint32_t pad;
    uint64_t n_bytes;
    struct gyre_share_handle handle;
    struct gyre_share_handle signals; /* the rank's counters */
    char cause[256];                  /* of a failure */
};

static void free_entry(gyre_comm *comm, struct gyre_window_entry *entry)
{
    for (int rank = 0; entry->mappings != NULL && rank < comm->self.n_ranks; rank++)
        gyre_share_release(&entry->mappings[rank]);
    free(entry->mappings);
    free(entry->bases);
    free(entry);
}

void gyre_windows_fini(gyre_comm *comm)
{
    while (comm->windows.newest != NULL) {
        struct gyre_window_entry *entry = comm->windows.newest;
        comm->windows.newest = entry->next;
        free_entry(comm, entry);
    }
}

static gyre_status end_together(gyre_comm *comm, struct window_offer *mine, gyre_status status,
                                struct window_offer *all)
{
    mine->status = (int32_t)status;
    if (status != GYRE_SUCCESS)
        snprintf(mine->cause, sizeof(mine->cause), "%s", gyre_cause());
    GYRE_TRY(gyre_comm_gather(comm, mine, sizeof(*mine), all));
    for (int rank = 0; rank < comm->self.n_ranks; rank++) {
        all[rank].cause[sizeof(all[rank].cause) - 1] = '\0';
        if (all[rank].status != GYRE_SUCCESS)
            return gyre_fail((gyre_status)all[rank].status, "window: rank %d (%s): %s", rank,
                             comm->links.infos[rank].host_name, all[rank].cause);
    }
    return GYRE_SUCCESS;
}

/* On the host device ranks that share no memory send messages. */
static bool can_reach(const gyre_comm *comm)
{
    return comm->links.is_p2p || comm->self.device_info.kind == GYRE_DEVICE_HOST;
}

static bool is_near(const gyre_comm *comm, int rank)
{
    return rank == comm->self.rank || !gyre_links_is_proxied_to(&comm->links, rank);
}

static gyre_status export_own(gyre_comm *comm, void *buffer, size_t n_bytes,
                              struct window_offer *mine)
{
    const struct gyre_peer_info *infos = comm->links.infos;
    bool to_processes = false;
    for (int rank = 0; rank < comm->self.n_ranks; rank++)
        to_processes =
            to_processes ||
            (is_near(comm, rank) && infos[rank].process_id != infos[comm->self.rank].process_id);
    if (buffer == NULL || n_bytes == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s",
                         buffer == NULL ? "buffer or window_out is NULL" : "a buffer of 0 bytes");
    GYRE_TRY(comm->self.device->ops->check_pointer(comm->self.device, buffer));
    if (!can_reach(comm))
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "not all GPUs of this communicator can address each other (%s); windows "
                         "of several hosts need host memory (GYRE_DEVICE_HOST)",
                         comm->links.summary);
    mine->n_bytes = n_bytes;
    GYRE_TRY(gyre_signals_export(comm, to_processes, &mine->signals));
    GYRE_TRY(gyre_share_export(&infos[comm->self.rank], to_processes, buffer, &mine->handle));
    const struct gyre_share_handle *handle = &mine->handle;
    const uint64_t room_bytes = handle->allocation_bytes - handle->offset_bytes;
    if (comm->self.device_info.kind == GYRE_DEVICE_HOST && handle->allocation_bytes > 0 &&
        n_bytes > room_bytes) /* other processes map the allocation and nothing behind it */
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%zu bytes, but the allocation has %" PRIu64 " bytes from there on",
                         n_bytes, room_bytes);
    return GYRE_SUCCESS;
}

static gyre_status import_all(gyre_comm *comm, const struct window_offer *all,
                              struct gyre_window_entry *entry)
{
    const struct gyre_peer_info *infos = comm->links.infos;
    for (int rank = 0; rank < comm->self.n_ranks; rank++) {
        if (all[rank].n_bytes < entry->n_bytes)
            entry->n_bytes = all[rank].n_bytes;
        entry->bases[rank] = entry->base;
        if (rank == comm->self.rank)
            continue;
        entry->bases[rank] = NULL;
        if (!is_near(comm, rank))
            continue;
        GYRE_TRY(gyre_share_import(comm->self.device, &infos[comm->self.rank], &infos[rank],
                                   &all[rank].handle, &entry->mappings[rank]));
        GYRE_TRY(gyre_signals_import(comm, rank, &all[rank].signals));
        entry->bases[rank] = entry->mappings[rank].address;
    }
    entry->residue = (int8_t)((uintptr_t)entry->base & 15);
    for (int rank = 0; rank < comm->self.n_ranks; rank++)
        if (((uintptr_t)entry->bases[rank] & 15) != ((uintptr_t)entry->base & 15))
            entry->residue = -1;
    entry->placement.bases = entry->bases;
    return comm->executor->ops->place(comm->executor, &entry->placement);
}

/* With an allocation that is no multiple of a large page other ranks map small pages, and copy
 * engines reach two thirds of a link's speed (docs/performance.md). GPUs only. */
static bool has_large_pages(const gyre_comm *comm, const struct window_offer *all)
{
    const struct gyre_peer_info *infos = comm->links.infos;
    bool is_several = false, is_whole = true;
    if (comm->self.device_info.kind == GYRE_DEVICE_HOST)
        return true;
    for (int rank = 0; rank < comm->self.n_ranks; rank++) {
        is_several = is_several || infos[rank].process_id != infos[0].process_id;
        is_whole = is_whole && all[rank].handle.allocation_bytes % GYRE_LARGE_PAGE_BYTES == 0;
    }
    return !is_several || is_whole;
}

static gyre_status make_entry(gyre_comm *comm, void *buffer, size_t n_bytes,
                              struct window_offer *all, struct gyre_window_entry *entry)
{
    struct window_offer mine;
    memset(&mine, 0, sizeof(mine));
    entry->base = buffer;
    entry->n_bytes = n_bytes;
    entry->mappings = calloc((size_t)comm->self.n_ranks, sizeof(*entry->mappings));
    entry->bases = calloc((size_t)comm->self.n_ranks, sizeof(*entry->bases));
    entry->number = comm->windows.n_made + 1;
    entry->is_remote = comm->links.is_proxied;
    if (can_reach(comm))
        GYRE_TRY(gyre_put_peers_open(comm));
    gyre_status status = entry->mappings == NULL || entry->bases == NULL
                             ? gyre_fail_errno(ENOMEM, "window")
                             : export_own(comm, buffer, n_bytes, &mine);
    GYRE_TRY(end_together(comm, &mine, status, all));
    entry->has_large_pages = has_large_pages(comm, all);
    status = import_all(comm, all, entry);
    gyre_put_peers_expect(comm, entry); /* ranks that are ahead may write into it already */
    return end_together(comm, &mine, status, all);
}

gyre_status gyre_window_register(gyre_comm *comm, void *buffer, size_t n_bytes,
                                 gyre_window *window_out)
{
    GYRE_IN_CALL(comm);
    if (window_out == NULL)
        buffer = NULL; /* refused below, where all ranks learn of it */
    GYRE_FREED struct window_offer *all = calloc((size_t)comm->self.n_ranks, sizeof(*all));
    struct gyre_window_entry *entry = calloc(1, sizeof(*entry));
    gyre_status status = all == NULL || entry == NULL
                             ? gyre_comm_give_up(comm, gyre_fail_errno(ENOMEM, "window"))
                             : make_entry(comm, buffer, n_bytes, all, entry);
    if (status != GYRE_SUCCESS) {
        gyre_put_peers_expect(comm, NULL);
        if (entry != NULL) {
            comm->executor->ops->unplace(comm->executor, &entry->placement);
            free_entry(comm, entry);
        }
        return status;
    }
    comm->windows.n_made++;
    pthread_mutex_lock(&comm->puts.lock);
    entry->next = comm->windows.newest;
    comm->windows.newest = entry;
    comm->puts.newest = NULL;
    pthread_mutex_unlock(&comm->puts.lock);
    *window_out = entry->number;
    if (!entry->has_large_pages && entry->n_bytes >= GYRE_LARGE_PAGE_BYTES && comm->self.rank == 0)
        GYRE_WARN(
            "window %u lies in an allocation whose size is no multiple of 2 MiB: other processes "
            "map it in small pages and copy engines stay unused; gyre_mem_alloc and ncclMemAlloc "
            "round up",
            entry->number);
    GYRE_INFO(REG, "window %u: %" PRIu64 " bytes at %p", entry->number, entry->n_bytes, buffer);
    return GYRE_SUCCESS;
}

gyre_status gyre_window_address(gyre_comm *comm, gyre_window window, int rank, void **address_out,
                                size_t *n_bytes_out)
{
    GYRE_IN_CALL(comm);
    const struct gyre_window_entry *entry = comm->windows.newest;
    while (entry != NULL && entry->number != window)
        entry = entry->next;
    if (entry == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "window %u is none of this communicator",
                         window);
    if (address_out == NULL || rank < 0 || rank >= comm->self.n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "window_address: address_out is NULL, or rank %d is not in 0..%d", rank,
                         comm->self.n_ranks - 1);
    if (entry->bases[rank] == NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "window_address: rank %d addresses no memory of rank %d (%s); gyre_put "
                         "reaches it",
                         comm->self.rank, rank, comm->links.infos[rank].host_name);
    *address_out = entry->bases[rank];
    if (n_bytes_out != NULL)
        *n_bytes_out = entry->n_bytes;
    return GYRE_SUCCESS;
}

gyre_status gyre_window_deregister(gyre_comm *comm, gyre_window window)
{
    GYRE_IN_CALL(comm);
    struct gyre_window_entry **at = &comm->windows.newest;
    while (*at != NULL && (*at)->number != window)
        at = &(*at)->next;
    struct gyre_window_entry *entry = *at;
    if (entry == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "window %u is none of this communicator",
                         window);
    gyre_status status = gyre_put_peers_fence(comm);
    GYRE_FREED uint32_t *all = calloc((size_t)comm->self.n_ranks, sizeof(*all));
    if (status == GYRE_SUCCESS && all == NULL)
        status = gyre_fail_errno(ENOMEM, "window");
    if (status != GYRE_SUCCESS)
        return gyre_comm_give_up(comm, status);
    pthread_mutex_lock(&comm->puts.lock);
    *at = entry->next;
    pthread_mutex_unlock(&comm->puts.lock);
    comm->executor->ops->unplace(comm->executor, &entry->placement);
    free_entry(comm, entry);
    /* No rank maps the buffers any more, so each rank may free its own. */
    GYRE_TRY(gyre_comm_gather(comm, &window, sizeof(window), all));
    for (int rank = 0; rank < comm->self.n_ranks; rank++)
        if (all[rank] != window)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "window %u is given back here, window %u on rank %d", window,
                             all[rank], rank);
    return GYRE_SUCCESS;
}

struct gyre_registered {
    struct gyre_registered *next;
    const void *buffer;
    size_t n_bytes;
    uint64_t handle;
    uint64_t n_users; /* registered and not yet given back */
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
    GYRE_LOCKED(&registrations->lock);
    for (const struct gyre_registered *range = registrations->first; range; range = range->next)
        n++;
    return n;
}

gyre_status gyre_comm_register(gyre_comm *comm, const void *buffer, size_t n_bytes,
                               gyre_registration *handle_out)
{
    GYRE_PINNED(comm);
    GYRE_TRY(gyre_comm_check(comm));
    if (buffer == NULL || n_bytes == 0 || handle_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "register: %s",
                         handle_out == NULL ? "handle_out is NULL" : "no buffer, or no bytes");
    const uintptr_t last = (uintptr_t)buffer + (n_bytes - 1);
    if (last < (uintptr_t)buffer)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "register: [%p, +%zu) runs past the end of memory", buffer, n_bytes);
    gyre_status status = comm->self.device->ops->check_pointer(comm->self.device, buffer);
    if (status == GYRE_SUCCESS)
        status = comm->self.device->ops->check_pointer(comm->self.device, (const void *)last);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "register: [%p, +%zu)", buffer, n_bytes);
    GYRE_LOCKED(&comm->registrations.lock);
    struct gyre_registered *range = comm->registrations.first;
    while (range != NULL && (range->buffer != buffer || range->n_bytes != n_bytes))
        range = range->next;
    if (range == NULL) {
        range = malloc(sizeof(*range));
        if (range == NULL)
            return gyre_fail_errno(ENOMEM, "a registered buffer");
        *range = (struct gyre_registered){comm->registrations.first, buffer, n_bytes,
                                          ++comm->registrations.last_handle, 0};
        comm->registrations.first = range;
    }
    range->n_users++;
    *handle_out = (gyre_registration)(uintptr_t)range->handle;
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_deregister(gyre_comm *comm, gyre_registration handle)
{
    /* a failed communicator too, because its buffers must come free */
    GYRE_PINNED(comm);
    GYRE_LOCKED(&comm->registrations.lock);
    struct gyre_registered **link = &comm->registrations.first;
    while (*link != NULL && (*link)->handle != (uintptr_t)handle)
        link = &(*link)->next;
    struct gyre_registered *range = *link;
    if (range == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%p is not a registration of this communicator, or was given back",
                         (void *)handle);
    if (--range->n_users == 0) {
        *link = range->next;
        free(range);
    }
    return GYRE_SUCCESS;
}
