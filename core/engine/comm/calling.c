/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a thread may use a communicator: to make a call, which at most one thread does at a time,
 * or to look at it. A refusal says what the user has to change.
 */
#include "core/engine/comm/comm.h"

#include "core/foundation/base/sync.h"

static gyre_status check_made(const gyre_comm *comm)
{
    const enum gyre_phase phase = gyre_comm_phase(comm);
    /* A communicator that failed during init stays in that phase for a moment after its error is
     * known. */
    const bool is_lost = phase == GYRE_PHASE_INIT && gyre_fault_is_raised(&comm->member.fault);
    if (!is_lost && (phase == GYRE_PHASE_INIT || phase == GYRE_PHASE_REGROUPING))
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "the communicator is still %s: poll gyre_comm_async_error until it is not "
                         "in progress",
                         phase == GYRE_PHASE_INIT
                             ? "being made"
                             : "busy with a split, shrink or growth (in a group, other calls on it "
                               "stand before that)");
    if (is_lost || !comm->is_made)
        return gyre_fail(comm->member.fault.status, "the communicator was never made: %s",
                         comm->member.fault.cause);
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

/* Checks everything except the phase. */
static gyre_status check_live(gyre_comm *comm)
{
    GYRE_TRY(gyre_fault_status(&comm->member.fault));
    if (gyre_load_acquire_u32(&comm->is_finalized) != 0)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "communicator %s was finalized on rank %d",
                         comm->member.name, comm->member.rank);
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_check(gyre_comm *comm)
{
    GYRE_TRY(check_live(comm));
    return check_made(comm);
}

gyre_status gyre_comm_give_up(gyre_comm *comm, gyre_status status)
{
    if (gyre_fault_raise(&comm->member.fault, status, gyre_cause()))
        gyre_health_pass_on(comm->health);
    return gyre_fault_status(&comm->member.fault);
}

/* Refuses a call on a pinned communicator that another thread destroys or makes a call on. */
static gyre_status refuse_call(gyre_comm *comm, bool is_destroyed)
{
    if (is_destroyed)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "communicator %s is being destroyed by another thread", comm->member.name);
    GYRE_TRY(gyre_comm_check(comm));
    return gyre_comm_give_up(
        comm, gyre_fail(GYRE_ERROR_INVALID_USAGE,
                        "two threads called on rank %d of communicator %s at the same time: the "
                        "ranks would not all have the same order of calls; let the threads take "
                        "turns, in an order that is the same on all ranks, or give each thread a "
                        "communicator",
                        comm->member.rank, comm->member.name));
}

/* Takes the communicator for a call, in any state. */
static gyre_status enter(gyre_comm *comm)
{
    const enum gyre_entry entry = gyre_registry_enter(comm);
    if (entry == GYRE_ENTRY_TAKEN)
        return GYRE_SUCCESS;
    if (entry == GYRE_ENTRY_NO_HANDLE)
        return gyre_registry_check(comm);
    const gyre_status status = refuse_call(comm, entry == GYRE_ENTRY_DESTROYED);
    gyre_comm_unpin(comm);
    return status;
}

void gyre_comm_end_call(gyre_comm *comm)
{
    gyre_store_release_u32(&comm->in_call, 0);
}

gyre_status gyre_comm_begin_call(gyre_comm *comm)
{
    GYRE_TRY(enter(comm));
    const gyre_status status = gyre_comm_check(comm);
    if (status != GYRE_SUCCESS)
        gyre_comm_end_call(comm);
    return status;
}

gyre_status gyre_comm_begin_launch(gyre_comm *comm)
{
    GYRE_TRY(enter(comm));
    const gyre_status status = check_live(comm);
    if (status != GYRE_SUCCESS)
        gyre_comm_end_call(comm);
    return status;
}
