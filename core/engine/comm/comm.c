/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator's end never frees what a peer may still use: a thread waits, within a bound, until
 * the other ranks have left too.
 */
#include "core/engine/comm/parts.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* for its peers to leave; those that stay end by their own limits */
#define LEAVE_TIMEOUT_NS 10000000000ULL
#define DRAIN_NAP_NS     50000

/* An abort during init cannot tell the other ranks, so this function does. No abort is lost: it
 * raises the fault first and then looks at the phase. */
void gyre_comm_set_made(gyre_comm *comm)
{
    if (gyre_registry_set_ready(comm))
        return;
    if (comm->is_made)
        gyre_health_pass_on(comm->health);
    gyre_comm_set_phase(comm, GYRE_PHASE_READY);
}

void gyre_comm_attach(const gyre_comm *comm)
{
    /* after an error the thread's own work fails and reports it */
    if (comm != NULL && comm->self.device != NULL)
        (void)comm->self.device->ops->attach(comm->self.device);
}

static void leave(gyre_comm *comm)
{
    if (!comm->is_made || gyre_load_relaxed_u32(&comm->self.has_left) != 0)
        return;
    gyre_comm_drain(comm);
    /* else this rank would seem to have ended the communicator */
    gyre_health_pass_on(comm->health);
    gyre_put_peers_leave(comm);
    gyre_store_release_u32(&comm->self.has_left, 1);
    comm->self.bootstrap->ops->leave(comm->self.bootstrap);
}

static void *finalize_in_background(void *argument)
{
    gyre_comm *comm = argument;
    gyre_comm_attach(comm);
    leave(comm);
    gyre_comm_set_phase(comm, GYRE_PHASE_READY);
    return NULL;
}

/* Then this rank says goodbye as if nothing had happened. */
static bool is_unharmed(const gyre_comm *comm)
{
    return comm->is_made && comm->windows.n_made == 0 && !comm->has_captured &&
           gyre_health_is_unharmed(comm->health);
}

static gyre_status finalize(gyre_comm *comm)
{
    pthread_t thread;
    if (gyre_load_acquire_u32(&comm->is_finalized) != 0 || !is_unharmed(comm))
        GYRE_TRY(gyre_comm_check(comm));
    gyre_store_release_u32(&comm->is_finalized, 1);
    if (comm->self.config.blocking == 0) {
        gyre_comm_set_phase(comm, GYRE_PHASE_LEAVING);
        if (gyre_thread_start(&thread, 0, finalize_in_background, comm, "finalize") ==
            GYRE_SUCCESS) {
            pthread_detach(thread);
            gyre_group_note_background();
            return GYRE_IN_PROGRESS;
        }
        gyre_comm_set_phase(comm, GYRE_PHASE_READY);
    }
    leave(comm);
    return is_unharmed(comm) ? GYRE_SUCCESS : gyre_fault_status(&comm->self.fault);
}

gyre_status gyre_comm_finalize(gyre_comm *comm)
{
    GYRE_TRY(gyre_comm_enter(comm));
    const gyre_status status = finalize(comm);
    gyre_comm_end_call(comm);
    return status;
}

static void end_comm(gyre_comm *comm)
{
    gyre_registry_wait_unpinned(comm);
    gyre_comm_wait_ready(comm); /* another thread may have begun a shrink */
    const uint64_t patience_ns =
        gyre_fault_is_raised(&comm->self.fault) ? LEAVE_TIMEOUT_NS / 10 : LEAVE_TIMEOUT_NS;
    if (comm->is_made)
        gyre_health_wait_left(comm->health, gyre_now_ns() + patience_ns);
    gyre_comm_free(comm);
}

static void *end_in_background(void *argument)
{
    gyre_comm_attach(argument);
    end_comm(argument);
    return NULL;
}

gyre_status gyre_comm_destroy(gyre_comm *comm)
{
    const struct timespec nap = {0, DRAIN_NAP_NS};
    GYRE_TRY(gyre_registry_claim_end(comm));
    const uint64_t deadline_ns = gyre_now_ns() + LEAVE_TIMEOUT_NS / 10;
    while (gyre_load_acquire_u32(&comm->in_call) != 0) { /* another thread is in a call */
        if (gyre_now_ns() > deadline_ns) /* an abort ends a call that waits for other ranks */
            (void)gyre_comm_abort(comm);
        nanosleep(&nap, NULL);
    }
    const enum gyre_phase phase = gyre_comm_phase(comm);
    if (phase == GYRE_PHASE_INIT || phase == GYRE_PHASE_REGROUPING)
        GYRE_TRY(gyre_comm_abort(comm)); /* nothing else ends the init or the split */
    gyre_comm_wait_ready(comm);
    leave(comm);
    const size_t n_registered = gyre_registrations_count(&comm->registrations);
    if (n_registered > 0)
        GYRE_INFO(REG, "communicator %s: %zu registered buffers go with it", comm->self.name,
                  n_registered);
    const uint64_t job = comm->self.job;
    gyre_registry_end(comm);
    pthread_t thread;
    if (gyre_thread_start(&thread, 0, end_in_background, comm, "destroy") != GYRE_SUCCESS)
        end_comm(comm);
    else
        pthread_detach(thread);
    gyre_registry_wait_job(job);
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_abort(gyre_comm *comm)
{
    char text[160];
    GYRE_TRY(gyre_comm_pin(comm));
    if (gyre_comm_phase(comm) != GYRE_PHASE_INIT && comm->is_made)
        snprintf(text, sizeof(text), "rank %d (pid %d) aborted communicator %s", comm->self.rank,
                 (int)getpid(), comm->self.name);
    else
        snprintf(text, sizeof(text), "pid %d gave up a communicator that was being made",
                 (int)getpid());
    if (gyre_fault_raise(&comm->self.fault, GYRE_ERROR_ABORTED, text) &&
        !gyre_registry_is_init_running(comm) && comm->is_made)
        gyre_health_pass_on(comm->health);
    gyre_comm_unpin(comm);
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_count(const gyre_comm *comm, int *n_ranks_out)
{
    GYRE_PINNED((gyre_comm *)(uintptr_t)comm);
    if (n_ranks_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "comm_count: n_ranks_out is NULL");
    *n_ranks_out = comm->self.n_ranks;
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_rank(const gyre_comm *comm, int *rank_out)
{
    GYRE_PINNED((gyre_comm *)(uintptr_t)comm);
    if (rank_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "comm_rank: rank_out is NULL");
    *rank_out = comm->self.rank;
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_device(const gyre_comm *comm, gyre_device_kind *kind_out, int *ordinal_out)
{
    gyre_comm *pinned = (gyre_comm *)(uintptr_t)comm;
    GYRE_TRY(gyre_comm_pin(pinned));
    if (kind_out != NULL)
        *kind_out = (gyre_device_kind)comm->self.device_info.kind;
    if (ordinal_out != NULL)
        *ordinal_out = comm->self.device_info.ordinal;
    gyre_comm_unpin(pinned);
    return GYRE_SUCCESS;
}

const char *gyre_comm_last_error(gyre_comm *comm)
{
    if (gyre_registry_check(comm) != GYRE_SUCCESS || !gyre_fault_is_raised(&comm->self.fault))
        return "";
    return comm->self.fault.cause; /* never changes once raised */
}

gyre_status gyre_comm_async_error(gyre_comm *comm, gyre_status *status_out)
{
    if (status_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "async_error: status_out is NULL");
    GYRE_TRY(gyre_comm_pin(comm));
    const bool is_over = gyre_load_acquire_u32(&comm->is_finalized) != 0 && is_unharmed(comm);
    if (gyre_fault_is_raised(&comm->self.fault) && !is_over)
        *status_out = comm->self.fault.status;
    else
        *status_out = gyre_comm_phase(comm) == GYRE_PHASE_READY ? GYRE_SUCCESS : GYRE_IN_PROGRESS;
    gyre_comm_unpin(comm);
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_dump(gyre_comm *comm, int fd)
{
    GYRE_FREED char *text = NULL;
    GYRE_TRY(gyre_comm_pin_made(comm));
    gyre_status status = gyre_health_dump(comm->health, &text);
    gyre_comm_unpin(comm);
    const int error = status == GYRE_SUCCESS ? gyre_descriptor_write(fd, text, strlen(text)) : 0;
    if (error != 0)
        status = gyre_fail_errno(error, "comm_dump: write to descriptor %d", fd);
    return status;
}

gyre_status gyre_comm_properties(gyre_comm *comm, gyre_properties *properties_out)
{
    gyre_properties facts = GYRE_PROPERTIES_INIT;
    if (properties_out == NULL || properties_out->struct_bytes < offsetof(gyre_properties, rank) ||
        properties_out->version == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "properties: the struct is NULL or was not initialised with "
                         "GYRE_PROPERTIES_INIT");
    GYRE_TRY(gyre_comm_pin_made(comm));
    facts.rank = comm->self.rank;
    facts.n_ranks = comm->self.n_ranks;
    facts.n_hosts = (int)comm->links.grouping.n_hosts;
    facts.device_kind = (int)comm->self.device_info.kind;
    facts.device_ordinal = comm->self.device_info.ordinal;
    facts.can_window = comm->links.is_p2p;
    facts.max_channels = (int)gyre_plan_facts(&comm->plans)->max_channels;
    facts.id = comm->self.job;
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++) {
        const struct gyre_transport *transport = comm->links.transports[i];
        if (transport == NULL)
            continue;
        const bool is_on_gpu =
            facts.device_kind == GYRE_DEVICE_CUDA && transport->ops == &gyre_transport_p2p;
        *(is_on_gpu ? &facts.device_bytes : &facts.host_bytes) +=
            transport->ops->memory_bytes(transport);
    }
    snprintf(facts.transports, sizeof(facts.transports), "%s", comm->links.summary);
    snprintf(facts.name, sizeof(facts.name), "%s", comm->self.name);
    gyre_comm_unpin(comm);
    facts.struct_bytes = properties_out->struct_bytes;
    facts.version = properties_out->version;
    memcpy(properties_out, &facts,
           facts.struct_bytes < sizeof(facts) ? facts.struct_bytes : sizeof(facts));
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_observe(gyre_comm *comm, const gyre_observer *observer)
{
    if (observer == NULL || observer->struct_bytes < offsetof(gyre_observer, connection) ||
        observer->version == 0 || observer->submitted == NULL || observer->launching == NULL ||
        observer->launched == NULL || observer->begun == NULL || observer->ended == NULL ||
        observer->finished == NULL || observer->closed == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "observe: the observer is NULL, lacks a function, or its struct_bytes and "
                         "version are not set");
    GYRE_IN_CALL(comm);
    if (comm->observing != NULL)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "observe: rank %d of %s has an observer already",
                         comm->self.rank, comm->self.name);
    const bool is_host = comm->self.device_info.kind == GYRE_DEVICE_HOST;
    GYRE_TRY(gyre_observing_open(observer, is_host ? NULL : comm->executor, &comm->observing));
    gyre_store_release_u32(&comm->has_observer, 1);
    return GYRE_SUCCESS;
}
