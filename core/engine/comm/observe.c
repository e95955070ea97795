/* SPDX-License-Identifier: Apache-2.0
 *
 * The public call that gives a communicator its observer.
 */
#include "core/engine/call/observe.h"
#include "core/engine/comm/comm.h"

static bool is_complete(const gyre_observer *observer)
{
    return observer != NULL && observer->struct_bytes >= sizeof(*observer) &&
           observer->version != 0 && observer->submitted != NULL && observer->launching != NULL &&
           observer->launched != NULL && observer->begun != NULL && observer->ended != NULL &&
           observer->finished != NULL && observer->closed != NULL;
}

static gyre_status observe(gyre_comm *comm, const gyre_observer *observer)
{
    if (comm->caller.observing != NULL)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "observe: rank %d of %s has an observer already",
                         comm->member.rank, comm->member.name);
    const bool is_host = comm->member.device_info.kind == GYRE_DEVICE_HOST;
    return gyre_observing_open(observer, is_host ? NULL : comm->caller.executor,
                               &comm->caller.observing);
}

gyre_status gyre_comm_observe(gyre_comm *comm, const gyre_observer *observer)
{
    if (!is_complete(observer))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "observe: the observer is NULL, lacks a function, or its struct_bytes and "
                         "version are not set");
    GYRE_TRY(gyre_comm_begin_call(comm));
    const gyre_status status = observe(comm, observer);
    gyre_comm_end_call(comm);
    return status;
}
