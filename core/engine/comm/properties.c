/* SPDX-License-Identifier: Apache-2.0
 *
 * The facts about a communicator that a caller may ask for.
 */
#include "core/engine/comm/comm.h"

#include <stdio.h>
#include <string.h>

static void add_memory(const gyre_comm *comm, gyre_properties *facts)
{
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++) {
        const struct gyre_transport *transport = comm->links.transports[i];
        if (transport == NULL)
            continue;
        const uint64_t n_bytes = transport->ops->memory_bytes(transport);
        const bool is_on_gpu = comm->member.device_info.kind == GYRE_DEVICE_CUDA &&
                               transport->ops == &gyre_transport_p2p;
        *(is_on_gpu ? &facts->device_bytes : &facts->host_bytes) += n_bytes;
    }
}

static void gather_facts(const gyre_comm *comm, gyre_properties *facts)
{
    facts->rank = comm->member.rank;
    facts->n_ranks = comm->member.n_ranks;
    facts->n_hosts = (int)comm->links.grouping.n_hosts;
    facts->device_kind = (int)comm->member.device_info.kind;
    facts->device_ordinal = comm->member.device_info.ordinal;
    facts->can_window = comm->links.is_p2p;
    facts->max_channels = (int)gyre_plan_facts(comm->plans)->max_channels;
    facts->id = comm->member.job;
    add_memory(comm, facts);
    snprintf(facts->transports, sizeof(facts->transports), "%s", comm->links.summary);
    snprintf(facts->name, sizeof(facts->name), "%s", comm->member.name);
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
    gather_facts(comm, &facts);
    gyre_comm_unpin(comm);
    facts.struct_bytes = properties_out->struct_bytes;
    facts.version = properties_out->version;
    memcpy(properties_out, &facts,
           facts.struct_bytes < sizeof(facts) ? facts.struct_bytes : sizeof(facts));
    return GYRE_SUCCESS;
}
