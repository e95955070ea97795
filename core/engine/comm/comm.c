/* SPDX-License-Identifier: Apache-2.0
 *
 * What may be asked about communicators, and how they end. Ending needs nobody's help and never
 * frees what a peer may still use: destroy says goodbye and leaves the rest to a thread that waits,
 * within a bound, until the others have left too.
 */
#include "core/engine/comm/comm.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long a rank waits for its peers to leave. Peers that stay longer end by their own limits. */
#define LEAVE_TIMEOUT_NS 10000000000ULL
#define DRAIN_NAP_NS     50000

/* ---- ending ------------------------------------------------------------------------------- */

/* An abort during init cannot tell the other ranks, so this function tells them when init ends. A
 * later abort tells them itself. No abort is lost between the two, because an abort raises the
 * fault first and then looks at the phase. */
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
    /* An error is ignored here, because the thread's own work then fails and reports it. */
    if (comm != NULL && comm->member.device != NULL)
        (void)comm->member.device->ops->attach(comm->member.device);
}

static void leave(gyre_comm *comm)
{
    if (!comm->is_made || gyre_load_relaxed_u32(&comm->member.has_left) != 0)
        return;
    gyre_comm_drain(comm);
    /* Tell the cause of a failure before leaving. Otherwise it would look as if this rank had ended
     * the communicator. */
    gyre_health_pass_on(comm->health);
    gyre_put_peers_leave(comm);
    gyre_store_release_u32(&comm->member.has_left, 1);
    comm->member.bootstrap->ops->leave(comm->member.bootstrap);
}

static void *finalize_in_background(void *argument)
{
    gyre_comm *comm = argument;
    gyre_comm_attach(comm);
    leave(comm);
    gyre_comm_set_phase(comm, GYRE_PHASE_READY);
    return NULL;
}

static gyre_status finalize(gyre_comm *comm)
{
    pthread_t thread;
    gyre_store_release_u32(&comm->is_finalized, 1);
    if (comm->member.config.blocking == 0) {
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
    return gyre_fault_status(&comm->member.fault);
}

gyre_status gyre_comm_finalize(gyre_comm *comm)
{
    GYRE_TRY(gyre_comm_begin_call(comm));
    const gyre_status status = finalize(comm);
    gyre_comm_end_call(comm);
    return status;
}

static void end_comm(gyre_comm *comm)
{
    gyre_registry_wait_unpinned(comm);
    gyre_comm_wait_ready(comm); /* another thread may have begun a shrink in the meantime */
    const uint64_t patience_ns =
        gyre_fault_is_raised(&comm->member.fault) ? LEAVE_TIMEOUT_NS / 10 : LEAVE_TIMEOUT_NS;
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

/* Waits until no other thread is in a call. An abort ends a call that waits for other
 * ranks. */
static void wait_for_call(gyre_comm *comm)
{
    const struct timespec nap = {0, DRAIN_NAP_NS};
    const uint64_t deadline_ns = gyre_now_ns() + LEAVE_TIMEOUT_NS / 10;
    while (gyre_load_acquire_u32(&comm->in_call) != 0) {
        if (gyre_now_ns() > deadline_ns)
            (void)gyre_comm_abort(comm);
        nanosleep(&nap, NULL);
    }
}

gyre_status gyre_comm_destroy(gyre_comm *comm)
{
    GYRE_TRY(gyre_registry_claim_end(comm));
    wait_for_call(comm);
    const enum gyre_phase phase = gyre_comm_phase(comm);
    if (phase == GYRE_PHASE_INIT || phase == GYRE_PHASE_REGROUPING)
        GYRE_TRY(gyre_comm_abort(comm)); /* no thread will see the end of the init or the split */
    gyre_comm_wait_ready(comm);
    leave(comm);
    const size_t n_registered = gyre_registrations_count(&comm->registrations);
    if (n_registered > 0)
        GYRE_INFO(REG, "communicator %s: %zu registered buffers go with it", comm->member.name,
                  n_registered);
    const uint64_t job = comm->member.job;
    gyre_registry_end(comm);
    pthread_t thread;
    if (gyre_thread_start(&thread, 0, end_in_background, comm, "destroy") != GYRE_SUCCESS)
        end_comm(comm);
    else
        pthread_detach(thread);
    gyre_registry_wait_job(job);
    return GYRE_SUCCESS;
}

static void abort_pinned(gyre_comm *comm)
{
    char text[160];
    if (gyre_comm_phase(comm) != GYRE_PHASE_INIT && comm->is_made)
        snprintf(text, sizeof(text), "rank %d (pid %d) aborted communicator %s", comm->member.rank,
                 (int)getpid(), comm->member.name);
    else
        snprintf(text, sizeof(text), "pid %d gave up a communicator that was being made",
                 (int)getpid());
    if (!gyre_fault_raise(&comm->member.fault, GYRE_ERROR_ABORTED, text))
        return;
    if (!gyre_registry_is_init_running(comm) && comm->is_made)
        gyre_health_pass_on(comm->health);
}

gyre_status gyre_comm_abort(gyre_comm *comm)
{
    GYRE_TRY(gyre_comm_pin(comm));
    abort_pinned(comm);
    gyre_comm_unpin(comm);
    return GYRE_SUCCESS;
}

/* ---- queries ------------------------------------------------------------------------------ */

gyre_status gyre_comm_count(const gyre_comm *comm, int *n_ranks_out)
{
    gyre_comm *pinned = (gyre_comm *)(uintptr_t)comm;
    GYRE_TRY(gyre_comm_pin_made(pinned));
    const int n_ranks = comm->member.n_ranks;
    gyre_comm_unpin(pinned);
    if (n_ranks_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "comm_count: n_ranks_out is NULL");
    *n_ranks_out = n_ranks;
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_rank(const gyre_comm *comm, int *rank_out)
{
    gyre_comm *pinned = (gyre_comm *)(uintptr_t)comm;
    GYRE_TRY(gyre_comm_pin_made(pinned));
    const int rank = comm->member.rank;
    gyre_comm_unpin(pinned);
    if (rank_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "comm_rank: rank_out is NULL");
    *rank_out = rank;
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_device(const gyre_comm *comm, gyre_device_kind *kind_out, int *ordinal_out)
{
    gyre_comm *pinned = (gyre_comm *)(uintptr_t)comm;
    GYRE_TRY(gyre_comm_pin(pinned));
    if (kind_out != NULL)
        *kind_out = (gyre_device_kind)comm->member.device_info.kind;
    if (ordinal_out != NULL)
        *ordinal_out = comm->member.device_info.ordinal;
    gyre_comm_unpin(pinned);
    return GYRE_SUCCESS;
}

const char *gyre_comm_last_error(gyre_comm *comm)
{
    if (gyre_registry_check(comm) != GYRE_SUCCESS || !gyre_fault_is_raised(&comm->member.fault))
        return "";
    return comm->member.fault.cause; /* never changes once raised */
}

gyre_status gyre_comm_async_error(gyre_comm *comm, gyre_status *status_out)
{
    if (status_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "async_error: status_out is NULL");
    GYRE_TRY(gyre_comm_pin(comm));
    if (gyre_fault_is_raised(&comm->member.fault))
        *status_out = comm->member.fault.status;
    else
        *status_out = gyre_comm_phase(comm) == GYRE_PHASE_READY ? GYRE_SUCCESS : GYRE_IN_PROGRESS;
    gyre_comm_unpin(comm);
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_dump(gyre_comm *comm, int fd)
{
    char *text = NULL;
    GYRE_TRY(gyre_comm_pin_made(comm));
    gyre_status status = gyre_health_dump(comm->health, &text);
    gyre_comm_unpin(comm);
    const int error = status == GYRE_SUCCESS ? gyre_descriptor_write(fd, text, strlen(text)) : 0;
    if (error != 0)
        status = gyre_fail_errno(error, "comm_dump: write to descriptor %d", fd);
    free(text);
    return status;
}
