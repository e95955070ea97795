/* SPDX-License-Identifier: Apache-2.0
 *
 * An all-gather of the user's bytes over the bootstrap.
 */
#include "core/engine/comm/comm.h"

#define EXCHANGE_MAX_BYTES (1u << 20)

gyre_status gyre_comm_gather(gyre_comm *comm, const void *mine, size_t n_bytes, void *all_out)
{
    GYRE_TRY(gyre_comm_check(comm));
    if (mine == NULL || all_out == NULL || n_bytes == 0 ||
        n_bytes > EXCHANGE_MAX_BYTES / (size_t)comm->member.n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "exchange of %zu bytes a rank: %s", n_bytes,
                         mine == NULL || all_out == NULL ? "a buffer is NULL"
                                                         : "legal is 1..1 MiB / n_ranks");
    const gyre_status status =
        comm->member.bootstrap->ops->all_gather(comm->member.bootstrap, mine, n_bytes, all_out);
    if (status != GYRE_SUCCESS) /* if the communicator has failed, its fault says more */
        GYRE_TRY(gyre_fault_status(&comm->member.fault));
    return status == GYRE_ERROR_OUT_OF_MEMORY ? gyre_comm_give_up(comm, status) : status;
}

gyre_status gyre_comm_exchange(gyre_comm *comm, const void *mine, size_t n_bytes, void *all_out)
{
    GYRE_TRY(gyre_comm_begin_call(comm));
    const gyre_status status = gyre_comm_gather(comm, mine, n_bytes, all_out);
    gyre_comm_end_call(comm);
    return status;
}
