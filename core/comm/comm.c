/* SPDX-License-Identifier: Apache-2.0
 *
 * Live communicators, what may be asked about them, and how they end. Ending needs nobody's help
 * and never frees what a peer may still use: destroy says goodbye and leaves the rest to a thread
 * that waits, within a bound, until the others have left too.
 */
#include "core/comm/comm.h"

#include "core/base/log.h"
#include "core/base/sync.h"
#include "core/base/thread.h"
#include "core/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Peers that have not left by then are left alone: their own bounds end them. */
#define LEAVE_TIMEOUT_NS   10000000000ULL
#define DRAIN_NAP_NS       50000
#define EXCHANGE_MAX_BYTES (1u << 20)

/* ---- the registry of live handles --------------------------------------------------------- *
 *
 * Process-wide, so that a handle that was destroyed is refused instead of followed, and so that
 * the ranks of one job in one process can end together. A process that fork() made has none of its
 * parent's: their threads, sockets and devices stayed behind. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    gyre_comm *first;
    gyre_comm *first_inherited; /* made before this process was forked; only told apart */
    uint64_t newest_number;     /* of the communicators that were made here */
} registry = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, NULL, 0};

static void before_fork(void)
{
    pthread_mutex_lock(&registry.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&registry.lock);
}

static void after_fork_in_child(void)
{
    gyre_comm **at = &registry.first;
    while (*at != NULL)
        at = &(*at)->next;
    *at = registry.first_inherited;
    registry.first_inherited = registry.first;
    registry.first = NULL;
    pthread_cond_init(&registry.changed, NULL); /* the parent's threads that waited are not here */
    pthread_mutex_unlock(&registry.lock);
}

static void watch_forks(void)
{
    /* Out of memory here, and a child's use of a handle goes unnoticed. */
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

void gyre_registry_add(gyre_comm *comm, enum gyre_phase phase)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&registry.lock);
    gyre_store_release_u32(&comm->phase, phase);
    comm->next = registry.first;
    registry.first = comm;
    pthread_mutex_unlock(&registry.lock);
}

void gyre_registry_remove(gyre_comm *comm)
{
    pthread_mutex_lock(&registry.lock);
    for (gyre_comm **at = &registry.first; *at != NULL; at = &(*at)->next) {
        if (*at == comm) {
            *at = comm->next;
            break;
        }
    }
    pthread_cond_broadcast(&registry.changed);
    pthread_mutex_unlock(&registry.lock);
}

void gyre_registry_set(bool *flag)
{
    pthread_mutex_lock(&registry.lock);
    *flag = true;
    pthread_cond_broadcast(&registry.changed);
    pthread_mutex_unlock(&registry.lock);
}

void gyre_registry_wait(const bool *flag)
{
    pthread_mutex_lock(&registry.lock);
    while (!*flag)
        pthread_cond_wait(&registry.changed, &registry.lock);
    pthread_mutex_unlock(&registry.lock);
}

void gyre_comm_set_phase(gyre_comm *comm, enum gyre_phase phase)
{
    pthread_mutex_lock(&registry.lock);
    gyre_store_release_u32(&comm->phase, phase);
    pthread_cond_broadcast(&registry.changed);
    pthread_mutex_unlock(&registry.lock);
}

uint64_t gyre_registry_number(void)
{
    pthread_mutex_lock(&registry.lock);
    const uint64_t number = registry.newest_number;
    pthread_mutex_unlock(&registry.lock);
    return number;
}

void gyre_registry_note_number(uint64_t number)
{
    pthread_mutex_lock(&registry.lock);
    if (registry.newest_number < number)
        registry.newest_number = number;
    pthread_mutex_unlock(&registry.lock);
}

void gyre_comm_set_job(gyre_comm *comm, uint64_t job)
{
    pthread_mutex_lock(&registry.lock);
    comm->job = job;
    pthread_mutex_unlock(&registry.lock);
}

/* This rank's end is the others'. Who waits in an exchange is told by the rendezvous, and first:
 * who heard by the message might leave at once, and that would be all that the others learn. */
static void tell_others(gyre_comm *comm)
{
    comm->bootstrap->ops->fail(comm->bootstrap, comm->fault.cause);
    gyre_health_tell(comm->health, comm->fault.cause);
}

/* An abort that came while the ranks were meeting could not tell them; one that comes later can.
 * In between there is nothing: it raises the fault first and then looks at the phase. */
void gyre_comm_set_made(gyre_comm *comm)
{
    pthread_mutex_lock(&registry.lock);
    const bool is_aborted = gyre_fault_is_raised(&comm->fault);
    if (!is_aborted) {
        gyre_store_release_u32(&comm->phase, GYRE_PHASE_READY);
        pthread_cond_broadcast(&registry.changed);
    }
    pthread_mutex_unlock(&registry.lock);
    if (!is_aborted)
        return;
    if (comm->is_made)
        tell_others(comm);
    gyre_comm_set_phase(comm, GYRE_PHASE_READY);
}

static enum gyre_phase phase_of(const gyre_comm *comm)
{
    return (enum gyre_phase)gyre_load_acquire_u32(&comm->phase);
}

void gyre_comm_wait_ready(gyre_comm *comm)
{
    pthread_mutex_lock(&registry.lock);
    while (phase_of(comm) != GYRE_PHASE_READY)
        pthread_cond_wait(&registry.changed, &registry.lock);
    pthread_mutex_unlock(&registry.lock);
}

/* Under the lock: is it a handle that the user may still use? */
static bool is_listed(const gyre_comm *first, const gyre_comm *comm)
{
    while (first != NULL && first != comm)
        first = first->next;
    return first != NULL && !first->is_ending;
}

static gyre_status check_handle(const gyre_comm *comm)
{
    if (comm == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "the communicator is NULL");
    pthread_mutex_lock(&registry.lock);
    const bool is_live = is_listed(registry.first, comm);
    const bool is_inherited = !is_live && is_listed(registry.first_inherited, comm);
    pthread_mutex_unlock(&registry.lock);
    if (is_inherited)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "communicator %s belongs to the process that pid %d was forked from; a "
                         "forked process has to make its own",
                         comm->name, (int)getpid());
    if (!is_live)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "communicator %p was destroyed, or never made by gyre",
                         (const void *)comm);
    return GYRE_SUCCESS;
}

/* As check_handle; its memory stays until unpin(), also if another thread destroys it meanwhile. */
static gyre_status pin(gyre_comm *comm)
{
    pthread_mutex_lock(&registry.lock);
    const bool found = is_listed(registry.first, comm);
    if (found)
        comm->n_pins++;
    pthread_mutex_unlock(&registry.lock);
    return found ? GYRE_SUCCESS : check_handle(comm);
}

static void unpin(gyre_comm *comm)
{
    pthread_mutex_lock(&registry.lock);
    if (--comm->n_pins == 0)
        pthread_cond_broadcast(&registry.changed);
    pthread_mutex_unlock(&registry.lock);
}

void gyre_registry_wait_unpinned(gyre_comm *comm)
{
    pthread_mutex_lock(&registry.lock);
    while (comm->n_pins > 0)
        pthread_cond_wait(&registry.changed, &registry.lock);
    pthread_mutex_unlock(&registry.lock);
}

static gyre_status check_made(const gyre_comm *comm)
{
    const enum gyre_phase phase = phase_of(comm);
    /* One that failed while it was made keeps that phase for a moment after its error is known. */
    const bool is_lost = phase == GYRE_PHASE_MAKING && gyre_fault_is_raised(&comm->fault);
    if (!is_lost && (phase == GYRE_PHASE_MAKING || phase == GYRE_PHASE_EXCHANGING))
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "the communicator is still %s: poll gyre_comm_async_error until it is not "
                         "in progress",
                         phase == GYRE_PHASE_MAKING ? "being made" : "busy with a split or shrink");
    if (is_lost || !comm->is_made)
        return gyre_fail(comm->fault.status, "the communicator was never made: %s",
                         comm->fault.cause);
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_check_made(const gyre_comm *comm)
{
    GYRE_TRY(check_handle(comm));
    return check_made(comm);
}

gyre_status gyre_comm_check_live(gyre_comm *comm)
{
    GYRE_TRY(check_handle(comm));
    GYRE_TRY(gyre_fault_status(&comm->fault));
    if (comm->is_finalized)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "communicator %s was finalized on rank %d",
                         comm->name, comm->rank);
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_check(gyre_comm *comm)
{
    GYRE_TRY(gyre_comm_check_live(comm));
    return check_made(comm);
}

/* ---- ending ------------------------------------------------------------------------------- */

void gyre_comm_attach(const gyre_comm *comm)
{
    /* Where it fails, so does what the thread is there for, and says why. */
    if (comm != NULL && comm->device != NULL)
        (void)comm->device->ops->attach(comm->device);
}

/* All works that this rank launched are done, or nothing more can be done. */
static void drain(gyre_comm *comm)
{
    const struct timespec nap = {0, DRAIN_NAP_NS};
    while (!gyre_fault_is_raised(&comm->fault) && !comm->executor->ops->is_idle(comm->executor))
        nanosleep(&nap, NULL);
}

static void leave(gyre_comm *comm)
{
    if (!comm->is_made || gyre_load_relaxed_u32(&comm->has_left) != 0)
        return;
    drain(comm);
    gyre_store_release_u32(&comm->has_left, 1);
    comm->bootstrap->ops->leave(comm->bootstrap);
}

static void *finalize_in_background(void *argument)
{
    gyre_comm *comm = argument;
    gyre_comm_attach(comm);
    leave(comm);
    gyre_comm_set_phase(comm, GYRE_PHASE_READY);
    return NULL;
}

gyre_status gyre_comm_finalize(gyre_comm *comm)
{
    pthread_t thread;
    GYRE_TRY(gyre_comm_check(comm));
    comm->is_finalized = true;
    if (comm->config.blocking == 0) {
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
    return gyre_fault_status(&comm->fault);
}

static void end_comm(gyre_comm *comm)
{
    const uint64_t patience_ns =
        gyre_fault_is_raised(&comm->fault) ? LEAVE_TIMEOUT_NS / 10 : LEAVE_TIMEOUT_NS;
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

/* How many handles of the job are in use here, or still ending. */
static int count_job(uint64_t job, bool is_ending)
{
    int n = 0;
    for (const gyre_comm *at = registry.first; at != NULL; at = at->next)
        n += at->job == job && at->is_ending == is_ending;
    return n;
}

gyre_status gyre_comm_destroy(gyre_comm *comm)
{
    GYRE_TRY(check_handle(comm));
    const enum gyre_phase phase = phase_of(comm);
    if (phase == GYRE_PHASE_MAKING || phase == GYRE_PHASE_EXCHANGING)
        GYRE_TRY(gyre_comm_abort(comm)); /* nobody is left to see the end of it */
    gyre_comm_wait_ready(comm);
    leave(comm);
    const size_t n_registered = gyre_registrations_count(&comm->registrations);
    if (n_registered > 0)
        GYRE_INFO(REG, "communicator %s: %zu registered buffers go with it", comm->name,
                  n_registered);
    const uint64_t job = comm->job;
    pthread_mutex_lock(&registry.lock);
    comm->is_ending = true;
    pthread_mutex_unlock(&registry.lock);
    pthread_t thread;
    if (gyre_thread_start(&thread, 0, end_in_background, comm, "destroy") != GYRE_SUCCESS)
        end_comm(comm);
    else
        pthread_detach(thread);
    /* One thread may destroy several ranks one after the other; only the last can wait. */
    pthread_mutex_lock(&registry.lock);
    while (count_job(job, false) == 0 && count_job(job, true) > 0)
        pthread_cond_wait(&registry.changed, &registry.lock);
    pthread_mutex_unlock(&registry.lock);
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_give_up(gyre_comm *comm, gyre_status status)
{
    if (gyre_fault_raise(&comm->fault, status, gyre_cause()))
        tell_others(comm);
    return gyre_fault_status(&comm->fault);
}

static void abort_pinned(gyre_comm *comm)
{
    char text[160];
    if (phase_of(comm) != GYRE_PHASE_MAKING && comm->is_made)
        snprintf(text, sizeof(text), "rank %d (pid %d) aborted communicator %s", comm->rank,
                 (int)getpid(), comm->name);
    else
        snprintf(text, sizeof(text), "pid %d gave up a communicator that was being made",
                 (int)getpid());
    if (!gyre_fault_raise(&comm->fault, GYRE_ERROR_ABORTED, text))
        return;
    pthread_mutex_lock(&registry.lock);
    const bool is_ready = phase_of(comm) != GYRE_PHASE_MAKING;
    pthread_mutex_unlock(&registry.lock);
    if (is_ready && comm->is_made)
        tell_others(comm);
}

gyre_status gyre_comm_abort(gyre_comm *comm)
{
    GYRE_TRY(pin(comm));
    abort_pinned(comm);
    unpin(comm);
    return GYRE_SUCCESS;
}

/* ---- queries ------------------------------------------------------------------------------ */

gyre_status gyre_comm_count(const gyre_comm *comm, int *n_ranks_out)
{
    GYRE_TRY(gyre_comm_check_made(comm));
    if (n_ranks_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "comm_count: n_ranks_out is NULL");
    *n_ranks_out = comm->n_ranks;
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_rank(const gyre_comm *comm, int *rank_out)
{
    GYRE_TRY(gyre_comm_check_made(comm));
    if (rank_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "comm_rank: rank_out is NULL");
    *rank_out = comm->rank;
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_device(const gyre_comm *comm, gyre_device_kind *kind_out, int *ordinal_out)
{
    GYRE_TRY(check_handle(comm));
    if (kind_out != NULL)
        *kind_out = (gyre_device_kind)comm->device_info.kind;
    if (ordinal_out != NULL)
        *ordinal_out = comm->device_info.ordinal;
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_exchange(gyre_comm *comm, const void *mine, size_t n_bytes, void *all_out)
{
    GYRE_TRY(gyre_comm_check(comm));
    if (mine == NULL || all_out == NULL || n_bytes == 0 ||
        n_bytes > EXCHANGE_MAX_BYTES / (size_t)comm->n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "exchange of %zu bytes a rank: %s", n_bytes,
                         mine == NULL || all_out == NULL ? "a buffer is NULL"
                                                         : "legal is 1..1 MiB / n_ranks");
    const gyre_status status =
        comm->bootstrap->ops->all_gather(comm->bootstrap, mine, n_bytes, all_out);
    if (status != GYRE_SUCCESS) /* what ended the communicator, if it did, says more */
        GYRE_TRY(gyre_fault_status(&comm->fault));
    return status == GYRE_ERROR_OUT_OF_MEMORY ? gyre_comm_give_up(comm, status) : status;
}

const char *gyre_comm_last_error(gyre_comm *comm)
{
    if (check_handle(comm) != GYRE_SUCCESS || !gyre_fault_is_raised(&comm->fault))
        return "";
    return comm->fault.cause; /* never changes once raised */
}

gyre_status gyre_comm_async_error(gyre_comm *comm, gyre_status *status_out)
{
    if (status_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "async_error: status_out is NULL");
    GYRE_TRY(pin(comm));
    if (gyre_fault_is_raised(&comm->fault))
        *status_out = comm->fault.status;
    else
        *status_out = phase_of(comm) == GYRE_PHASE_READY ? GYRE_SUCCESS : GYRE_IN_PROGRESS;
    unpin(comm);
    return GYRE_SUCCESS;
}
