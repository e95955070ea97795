/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL's communicators can do since 2.29: grow, tell their properties and their memory.
 */
#include "core/nccl/nccl_later.h"

#include "core/nccl/nccl_device.h"
#include "core/nccl/nccl_shim.h"

#include <stdio.h>
#include <string.h>

NCCL_EXPORT ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId)
{
    ncclResult_t result;
    return nccl_usable(comm, NCCL_CALL, &result) == NULL ? result : pncclGetUniqueId(uniqueId);
}

static ncclResult_t grow(ncclComm_t comm, int n_ranks, const ncclUniqueId *id, int rank,
                         ncclComm_t *comm_out, const ncclConfig_t *given)
{
    gyre_unique_id own_id;
    ncclResult_t result;
    if (comm == NULL && id == NULL)
        return nccl_refuse(ncclInvalidArgument,
                           "ncclCommGrow: a new rank needs the unique id; a rank of the "
                           "communicator passes its communicator");
    if (comm == NULL)
        return nccl_comm_init(comm_out, n_ranks, id, rank, given);
    gyre_comm *own = nccl_usable(comm, "ncclCommGrow", &result);
    if (own == NULL)
        return result;
    if (id != NULL)
        memcpy(own_id.bytes, id->internal, sizeof(own_id.bytes));
    const gyre_unique_id *own_id_or_null = id != NULL ? &own_id : NULL;
    if (rank == -1 && comm_out != NULL)
        return nccl_comm_grow(own, n_ranks, own_id_or_null, comm_out, given);
    nccl_refuse(ncclInvalidArgument,
                comm_out == NULL
                    ? "ncclCommGrow: newcomm is NULL"
                    : "ncclCommGrow: a rank of the communicator keeps its rank and passes -1");
    nccl_comm_refuse_growth(own, n_ranks, own_id_or_null);
    return ncclInvalidArgument;
}

NCCL_EXPORT ncclResult_t pncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId,
                                       int rank, ncclComm_t *newcomm, ncclConfig_t *config)
{
    if (newcomm != NULL)
        *newcomm = NULL;
    return nccl_group_note(grow(comm, nRanks, uniqueId, rank, newcomm, config));
}

NCCL_EXPORT ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags)
{
    (void)comm;
    (void)flags;
    return nccl_unsupported("gyre does not suspend communicators (ncclCommSuspend), because other "
                            "ranks map the memory of their connections; destroy it instead");
}

NCCL_EXPORT ncclResult_t pncclCommResume(ncclComm_t comm)
{
    (void)comm;
    return nccl_unsupported("gyre does not suspend communicators (ncclCommResume)");
}

/* All connection memory is mapped by other ranks, so none of it can be suspended. */
NCCL_EXPORT ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value)
{
    gyre_properties facts = GYRE_PROPERTIES_INIT;
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own == NULL)
        return result;
    if (value == NULL || (int)stat < ncclStatGpuMemSuspend || (int)stat > ncclStatGpuMemTotal)
        return nccl_refuse(ncclInvalidArgument,
                           "ncclCommMemStats: value is NULL, or stat is none of 0..3");
    result = nccl_result_of(gyre_comm_properties(own, &facts));
    if (result == ncclSuccess)
        *value =
            stat == ncclStatGpuMemPersist || stat == ncclStatGpuMemTotal ? facts.device_bytes : 0;
    return result;
}

NCCL_EXPORT ncclResult_t pncclSetEncryption(const ncclEncryptionConfig_t *config)
{
    const ncclResult_t result = nccl_check_head(
        "ncclSetEncryption: the config is not as NCCL_ENCRYPTION_CONFIG_INITIALIZER makes it",
        config, NCCL_API_MAGIC, sizeof(*config));
    if (result != ncclSuccess)
        return result;
    if (config->mode == NCCL_ENCRYPTION_MODE_NONE)
        return ncclSuccess;
    return nccl_refuse(ncclInvalidUsage,
                       "gyre does not encrypt its sockets (ncclSetEncryption): ranks prove that "
                       "they know the job's secret, but the data is sent in the clear");
}

static void fill_in(const gyre_properties *facts, ncclCommProperties_t *props)
{
    props->rank = facts->rank;
    props->nRanks = facts->n_ranks;
    props->cudaDev = facts->device_ordinal;
    props->nvmlDev = facts->device_ordinal;
    props->nLsaTeams = facts->can_window ? 1 : facts->n_ranks;
    props->hostRmaSupport = facts->device_kind == GYRE_DEVICE_HOST;
    props->commHash = facts->id;
}

NCCL_EXPORT ncclResult_t pncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *props)
{
    gyre_properties facts = GYRE_PROPERTIES_INIT;
    ncclCommProperties_t known;
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own == NULL)
        return result;
    result = nccl_check_head("ncclCommQueryProperties: the properties are not as "
                             "NCCL_COMM_PROPERTIES_INITIALIZER makes them",
                             props, NCCL_API_MAGIC, offsetof(ncclCommProperties_t, rank));
    if (result == ncclSuccess)
        result = nccl_result_of(gyre_comm_properties(own, &facts));
    if (result != ncclSuccess)
        return result;
    memset(&known, 0, sizeof(known)); /* without the device API all that describes it is 0 */
    known.size = props->size;
    known.magic = props->magic;
    known.version = props->version;
    fill_in(&facts, &known);
    memcpy(props, &known, known.size < sizeof(known) ? known.size : sizeof(known));
    return ncclSuccess;
}

NCCL_LATER_COMM_FUNCTIONS(NCCL_ALIAS)
NCCL_PROPERTY_FUNCTIONS(NCCL_ALIAS)
