/* SPDX-License-Identifier: Apache-2.0
 *
 * A call holds its communicator and a question pins it, so neither is freed meanwhile.
 */
#include "core/engine/comm.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <unistd.h>

/* CUDA frees memory after the kernels that run, also those of other communicators. Such a kernel
 * may wait for this thread's next call, so a thread does not wait for ever for what is freed. */
#define FREE_TIMEOUT_NS GYRE_SECOND_NS

/* A destroyed handle is refused without being read. A child of fork() has none of its parent's
 * communicators, because it lacks their threads, sockets and devices. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    gyre_comm *first;
    gyre_comm *first_inherited; /* made before the fork, to recognise their handles */
    uint64_t newest_number;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

__attribute__((constructor)) static void make_changed(void)
{
    gyre_cond_init(&registry.changed);
}

static void disown_inherited(void)
{
    gyre_comm **at = &registry.first;
    while (*at != NULL)
        at = &(*at)->next;
    *at = registry.first_inherited;
    registry.first_inherited = registry.first;
    registry.first = NULL;
    gyre_cond_init(&registry.changed); /* the parent's waiting threads are not here */
}

GYRE_WATCH_FORKS(&registry.lock, disown_inherited)

void gyre_registry_add(gyre_comm *comm, enum gyre_phase phase)
{
    GYRE_LOCKED(&registry.lock);
    gyre_store_release_u32(&comm->phase, phase);
    comm->next = registry.first;
    registry.first = comm;
}

void gyre_registry_remove(gyre_comm *comm)
{
    GYRE_LOCKED(&registry.lock);
    for (gyre_comm **at = &registry.first; *at != NULL; at = &(*at)->next) {
        if (*at == comm) {
            *at = comm->next;
            break;
        }
    }
    pthread_cond_broadcast(&registry.changed);
}

void gyre_registry_set(bool *flag)
{
    GYRE_LOCKED(&registry.lock);
    *flag = true;
    pthread_cond_broadcast(&registry.changed);
}

void gyre_registry_wait(const bool *flag)
{
    GYRE_LOCKED(&registry.lock);
    while (!*flag)
        pthread_cond_wait(&registry.changed, &registry.lock);
}

void gyre_comm_set_phase(gyre_comm *comm, enum gyre_phase phase)
{
    GYRE_LOCKED(&registry.lock);
    gyre_store_release_u32(&comm->phase, phase);
    pthread_cond_broadcast(&registry.changed);
}

uint64_t gyre_registry_raise_number(uint64_t number)
{
    GYRE_LOCKED(&registry.lock);
    if (registry.newest_number < number)
        registry.newest_number = number;
    return registry.newest_number;
}

/* Under the lock. */
static bool occupies(const gyre_comm *comm, uint64_t stream)
{
    if (comm->is_ending || gyre_load_acquire_u64(&comm->stream) != stream ||
        gyre_fault_is_raised(&comm->self.fault))
        return false;
    const struct gyre_progress progress = comm->executor->ops->progress(comm->executor);
    return progress.completed < gyre_load_acquire_u64(&comm->stream_works);
}

int gyre_registry_take_stream(gyre_comm *comm, gyre_stream stream)
{
    const uint64_t address = (uint64_t)(uintptr_t)stream;
    int rank = -1;
    GYRE_LOCKED(&registry.lock);
    for (gyre_comm *at = registry.first; at != NULL && rank < 0; at = at->next) {
        if (at == comm || at->self.job != comm->self.job)
            continue;
        if (occupies(at, address))
            rank = at->self.rank;
        else if (gyre_load_acquire_u64(&at->stream) == address)
            gyre_store_release_u64(&at->stream, 0); /* its next launch then checks again */
    }
    if (rank < 0)
        gyre_store_release_u64(&comm->stream, address);
    return rank;
}

void gyre_comm_set_job(gyre_comm *comm, uint64_t job)
{
    GYRE_LOCKED(&registry.lock);
    comm->self.job = job;
}

bool gyre_registry_set_ready(gyre_comm *comm)
{
    GYRE_LOCKED(&registry.lock);
    const bool is_healthy = !gyre_fault_is_raised(&comm->self.fault);
    if (is_healthy) {
        gyre_store_release_u32(&comm->phase, GYRE_PHASE_READY);
        pthread_cond_broadcast(&registry.changed);
    }
    return is_healthy;
}

enum gyre_phase gyre_comm_phase(const gyre_comm *comm)
{
    return (enum gyre_phase)gyre_load_acquire_u32(&comm->phase);
}

bool gyre_registry_is_init_running(const gyre_comm *comm)
{
    GYRE_LOCKED(&registry.lock);
    return gyre_comm_phase(comm) == GYRE_PHASE_INIT;
}

void gyre_comm_wait_ready(gyre_comm *comm)
{
    GYRE_LOCKED(&registry.lock);
    while (gyre_comm_phase(comm) != GYRE_PHASE_READY)
        pthread_cond_wait(&registry.changed, &registry.lock);
}

/* Under the lock. */
static bool is_listed(const gyre_comm *first, const gyre_comm *comm)
{
    while (first != NULL && first != comm)
        first = first->next;
    return first != NULL && !first->is_ending;
}

gyre_status gyre_registry_check(const gyre_comm *comm)
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
                         comm->self.name, (int)getpid());
    if (!is_live)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "communicator %p was destroyed, or never made by gyre",
                         (const void *)comm);
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_pin(gyre_comm *comm)
{
    pthread_mutex_lock(&registry.lock);
    const bool found = is_listed(registry.first, comm);
    if (found)
        comm->n_pins++;
    pthread_mutex_unlock(&registry.lock);
    return found ? GYRE_SUCCESS : gyre_registry_check(comm);
}

void gyre_comm_unpin(gyre_comm *comm)
{
    GYRE_LOCKED(&registry.lock);
    if (--comm->n_pins == 0)
        pthread_cond_broadcast(&registry.changed);
}

void gyre_registry_wait_unpinned(gyre_comm *comm)
{
    GYRE_LOCKED(&registry.lock);
    while (comm->n_pins > 0)
        pthread_cond_wait(&registry.changed, &registry.lock);
}

gyre_status gyre_registry_claim_end(gyre_comm *comm)
{
    pthread_mutex_lock(&registry.lock);
    const bool is_live = is_listed(registry.first, comm);
    const bool is_claimed = is_live && comm->is_destroyed;
    if (is_live)
        comm->is_destroyed = true;
    pthread_mutex_unlock(&registry.lock);
    if (is_claimed)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "communicator %p is being destroyed by another thread",
                         (const void *)comm);
    return is_live ? GYRE_SUCCESS : gyre_registry_check(comm);
}

void gyre_registry_end(gyre_comm *comm)
{
    GYRE_LOCKED(&registry.lock);
    comm->is_ending = true;
}

/* Under the lock. Is a communicator in use, or being freed? @job: of this job; 0 = of any. */
static bool has(uint64_t job, bool is_ending)
{
    const gyre_comm *at = registry.first;
    while (at != NULL && (at->is_ending != is_ending || (job != 0 && at->self.job != job)))
        at = at->next;
    return at != NULL;
}

void gyre_registry_wait_job(uint64_t job)
{
    GYRE_LOCKED(&registry.lock);
    const uint64_t deadline_ns = gyre_now_ns() + FREE_TIMEOUT_NS;
    while (has(0, false) ? !has(job, false) && has(job, true) && gyre_now_ns() < deadline_ns
                         : has(0, true))
        gyre_cond_wait_until(&registry.changed, &registry.lock, gyre_now_ns() + FREE_TIMEOUT_NS);
}

static gyre_status check_made(const gyre_comm *comm)
{
    const enum gyre_phase phase = gyre_comm_phase(comm);
    /* a failed one stays in that phase for a moment */
    const bool is_lost = phase == GYRE_PHASE_INIT && gyre_fault_is_raised(&comm->self.fault);
    if (!is_lost && (phase == GYRE_PHASE_INIT || phase == GYRE_PHASE_REGROUPING))
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "the communicator is still %s: poll gyre_comm_async_error until it is not "
                         "in progress",
                         phase == GYRE_PHASE_INIT
                             ? "being made"
                             : "busy with a split, shrink or growth (in a group, other calls on it "
                               "stand before that)");
    if (is_lost || !comm->is_made)
        return gyre_fail(comm->self.fault.status, "the communicator was never made: %s",
                         comm->self.fault.cause);
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_pin_made(gyre_comm *comm)
{
    GYRE_TRY(gyre_comm_pin(comm));
    const gyre_status status = check_made(comm);
    if (status != GYRE_SUCCESS)
        gyre_comm_unpin(comm);
    return status;
}

static gyre_status check_live(gyre_comm *comm)
{
    GYRE_TRY(gyre_fault_status(&comm->self.fault));
    if (gyre_load_acquire_u32(&comm->is_finalized) != 0)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "communicator %s was finalized on rank %d",
                         comm->self.name, comm->self.rank);
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_check(gyre_comm *comm)
{
    GYRE_TRY(check_live(comm));
    return check_made(comm);
}

gyre_status gyre_comm_give_up(gyre_comm *comm, gyre_status status)
{
    if (gyre_fault_raise(&comm->self.fault, status, gyre_cause()))
        comm->pass_on(comm->health);
    return gyre_fault_status(&comm->self.fault);
}

gyre_status gyre_comm_enter(gyre_comm *comm)
{
    pthread_mutex_lock(&registry.lock);
    const bool is_live = is_listed(registry.first, comm);
    const bool is_destroyed = is_live && comm->is_destroyed;
    const bool is_taken = is_live && !is_destroyed && gyre_load_acquire_u32(&comm->in_call) == 0;
    if (is_taken)
        gyre_store_relaxed_u32(&comm->in_call, 1);
    else if (is_live)
        comm->n_pins++;
    pthread_mutex_unlock(&registry.lock);
    if (is_taken)
        return GYRE_SUCCESS;
    if (!is_live)
        return gyre_registry_check(comm);
    gyre_status status = is_destroyed ? gyre_fail(GYRE_ERROR_INVALID_USAGE,
                                                  "communicator %s is being destroyed by another "
                                                  "thread",
                                                  comm->self.name)
                                      : gyre_comm_check(comm);
    if (status == GYRE_SUCCESS)
        status = gyre_comm_give_up(
            comm, gyre_fail(GYRE_ERROR_INVALID_USAGE,
                            "two threads called on rank %d of communicator %s at the same time: "
                            "the ranks would not all have the same order of calls; let the threads "
                            "take turns, in an order that is the same on all ranks, or give each "
                            "thread a communicator",
                            comm->self.rank, comm->self.name));
    gyre_comm_unpin(comm);
    return status;
}

void gyre_comm_end_call(gyre_comm *comm)
{
    gyre_store_release_u32(&comm->in_call, 0);
}

gyre_status gyre_comm_begin_call(gyre_comm *comm)
{
    GYRE_TRY(gyre_comm_enter(comm));
    if (comm->is_made && gyre_comm_phase(comm) == GYRE_PHASE_READY &&
        !gyre_fault_is_raised(&comm->self.fault) &&
        gyre_load_acquire_u32(&comm->is_finalized) == 0) /* the usual case */
        return GYRE_SUCCESS;
    const gyre_status status = gyre_comm_check(comm);
    if (status != GYRE_SUCCESS)
        gyre_comm_end_call(comm);
    return status;
}

gyre_status gyre_comm_begin_launch(gyre_comm *comm)
{
    GYRE_TRY(gyre_comm_enter(comm));
    const gyre_status status = check_live(comm);
    if (status != GYRE_SUCCESS)
        gyre_comm_end_call(comm);
    return status;
}
