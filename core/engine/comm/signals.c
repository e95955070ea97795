/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm/parts.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void free_counters(gyre_comm *comm, void *memory)
{
    const struct gyre_device_ops *ops = comm->self.device->ops;
    if (comm->signals.is_exported || ops->kind == GYRE_DEVICE_HOST)
        (void)ops->mem_free(comm->self.device, memory);
    else
        (void)ops->pool_free(comm->self.device, memory);
}

gyre_status gyre_signals_export(gyre_comm *comm, bool to_processes,
                                struct gyre_share_handle *handle_out)
{
    struct gyre_signals *signals = &comm->signals;
    const int rank = comm->self.rank;
    const size_t n = (size_t)comm->self.n_ranks;
    /* on the host device all ranks hold the counters, among threads too */
    const bool is_shared = to_processes || comm->self.device->ops->kind == GYRE_DEVICE_HOST;
    if (signals->counters == NULL)
        signals->counters = calloc(n, sizeof(*signals->counters));
    if (signals->mappings == NULL)
        signals->mappings = calloc(n, sizeof(*signals->mappings));
    if (signals->counters == NULL || signals->mappings == NULL)
        return gyre_fail_errno(ENOMEM, "signals of %zu ranks", n);
    if (signals->counters[rank] == NULL) {
        /* On GPUs not from a pool, because a peer that aborts late may still write to memory that
         * it maps. */
        struct gyre_device *device = comm->self.device;
        const size_t n_bytes =
            gyre_signal_index((int)n, GYRE_N_SIGNAL_ARRAYS, 0, 0) * sizeof(uint64_t);
        void *memory = NULL;
        signals->is_exported = to_processes;
        GYRE_TRY(to_processes || device->ops->kind == GYRE_DEVICE_HOST
                     ? device->ops->mem_alloc(device, n_bytes, &memory)
                     : device->ops->pool_alloc(device, n_bytes, &memory));
        const gyre_status zeroed = device->ops->zero(device, memory, n_bytes);
        if (zeroed != GYRE_SUCCESS) {
            free_counters(comm, memory);
            return zeroed;
        }
        signals->counters[rank] = memory;
    }
    const gyre_status status =
        gyre_share_export(&comm->links.infos[rank], is_shared, signals->counters[rank], handle_out);
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "counters of signals");
}

gyre_status gyre_signals_import(gyre_comm *comm, int rank, const struct gyre_share_handle *handle)
{
    struct gyre_signals *signals = &comm->signals;
    const struct gyre_peer_info *infos = comm->links.infos;
    if (signals->counters[rank] != NULL)
        return GYRE_SUCCESS;
    const gyre_status status = gyre_share_import(comm->self.device, &infos[comm->self.rank],
                                                 &infos[rank], handle, &signals->mappings[rank]);
    if (status == GYRE_ERROR_REMOTE)
        return gyre_fail_context(status, "rank %d has ended the communicator", rank);
    if (status == GYRE_SUCCESS)
        signals->counters[rank] = signals->mappings[rank].address;
    return status;
}

void gyre_signals_fini(gyre_comm *comm)
{
    struct gyre_signals *signals = &comm->signals;
    if (signals->counters != NULL && signals->counters[comm->self.rank] != NULL)
        free_counters(comm, signals->counters[comm->self.rank]);
    for (int rank = 0; signals->mappings != NULL && rank < comm->self.n_ranks; rank++)
        gyre_share_release(&signals->mappings[rank]);
    free(signals->mappings);
    free(signals->counters);
    memset(signals, 0, sizeof(*signals));
}

static gyre_status check(const gyre_comm *comm, const char *name, int peer, int signal)
{
    if (comm->windows.n_made == 0)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "%s: the communicator has had no window; register one first", name);
    if (peer < 0 || peer >= comm->self.n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: peer %d is not a rank of 0..%d", name,
                         peer, comm->self.n_ranks - 1);
    if (signal < 0 || signal >= GYRE_N_SIGNALS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: signal %d is not in 0..%d", name, signal,
                         GYRE_N_SIGNALS - 1);
    return GYRE_SUCCESS;
}

/* NULL = this rank addresses the peer's memory. */
static const struct gyre_remote_puts *remote_of(const gyre_comm *comm, int peer)
{
    return peer != comm->self.rank && gyre_links_is_proxied_to(&comm->links, peer)
               ? &comm->puts.remote
               : NULL;
}

gyre_status gyre_put(const void *local, size_t count, gyre_dtype dtype,
                     const gyre_put_target *target, gyre_comm *comm, gyre_stream stream)
{
    if (target == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "put: target is NULL");
    GYRE_IN_CALL(comm);
    struct gyre_device *device = comm->self.device;
    GYRE_TRY(
        check(comm, "put", target->peer, target->signal == GYRE_NO_SIGNAL ? 0 : target->signal));
    if ((unsigned)dtype >= GYRE_N_DTYPES || (local == NULL && count > 0))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "put: dtype %d, local %p", (int)dtype, local);
    const uint64_t element = gyre_dtype_bytes(dtype);
    if (count > (uint64_t)INT64_MAX / element)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "put: %zu elements are more than 2^63 bytes",
                         count);
    if (count > 0) {
        const gyre_status status = device->ops->check_pointer(device, local);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "put: local");
    }
    struct gyre_put work = {.counters = comm->signals.counters,
                            .peer = target->peer,
                            .signal = target->signal,
                            .from = local,
                            .n_bytes = count * element,
                            .timeout_ns = (uint64_t)comm->self.config.timeout_ms * 1000000};
    const uint64_t n_bytes = work.n_bytes;
    const struct gyre_window_entry *entry = comm->windows.newest;
    while (entry != NULL && entry->number != target->window)
        entry = entry->next;
    if (entry == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "put: window %u is none of this communicator",
                         target->window);
    if (target->offset_bytes > entry->n_bytes || n_bytes > entry->n_bytes - target->offset_bytes)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "put: %" PRIu64 " bytes at offset %" PRIu64
                         " do not fit into window %u of %" PRIu64 " bytes",
                         n_bytes, (uint64_t)target->offset_bytes, target->window, entry->n_bytes);
    work.remote = remote_of(comm, target->peer);
    work.window = target->window;
    work.offset_bytes = target->offset_bytes;
    if (work.remote == NULL)
        work.to = (unsigned char *)entry->bases[target->peer] + target->offset_bytes;
    return comm->executor->ops->put(comm->executor, &work, stream);
}

gyre_status gyre_signal(int peer, int signal, gyre_comm *comm, gyre_stream stream)
{
    GYRE_IN_CALL(comm);
    struct gyre_put work = {.counters = comm->signals.counters,
                            .peer = peer,
                            .signal = signal,
                            .timeout_ns = (uint64_t)comm->self.config.timeout_ms * 1000000};
    GYRE_TRY(check(comm, "signal", peer, signal));
    work.remote = remote_of(comm, peer);
    return comm->executor->ops->put(comm->executor, &work, stream);
}

gyre_status gyre_wait_signal(const gyre_signal_wait *waits, int n_waits, gyre_comm *comm,
                             gyre_stream stream)
{
    if (n_waits < 0 || (n_waits > 0 && waits == NULL))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "wait_signal: no list of %d waits", n_waits);
    GYRE_IN_CALL(comm);
    const struct gyre_signals_await work = {
        .counters = comm->signals.counters,
        .waits = waits,
        .n_waits = n_waits,
        .remote = comm->puts.links != NULL ? &comm->puts.remote : NULL,
        .timeout_ns = (uint64_t)comm->self.config.timeout_ms * 1000000};
    for (int i = 0; i < n_waits; i++) {
        GYRE_TRY(check(comm, "wait_signal", waits[i].peer, waits[i].signal));
        if (waits[i].count < 0)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "wait_signal: count %d is negative",
                             waits[i].count);
    }
    return n_waits > 0 ? comm->executor->ops->await_signals(comm->executor, &work, stream)
                       : GYRE_SUCCESS;
}
