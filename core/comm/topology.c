/* SPDX-License-Identifier: Apache-2.0
 *
 * The topology in a communicator's life: read or detected when it is made, written where the user
 * wants to see it, compared between hosts. Plans depend on it only through what the ranks agree on
 * pair by pair (transport, NVLink or not), so hosts may differ; a difference is told, not refused.
 */
#include "core/comm/comm.h"

#include "core/base/log.h"
#include "core/base/util.h"

#include <string.h>

/* Detection asks NVML for every link of every GPU: only where somebody will look at the result. */
static bool is_wanted(const gyre_comm *comm)
{
    return (comm->device_info.kind == GYRE_DEVICE_CUDA && comm->n_ranks > 1) ||
           gyre_param_is_set(&comm->params, GYRE_PARAM_TOPO_FILE) ||
           gyre_param_is_set(&comm->params, GYRE_PARAM_TOPO_DUMP_FILE);
}

gyre_status gyre_topology_open(gyre_comm *comm)
{
    const char *level_text = gyre_param_text(&comm->params, GYRE_PARAM_P2P_LEVEL);
    const char *file = gyre_param_text(&comm->params, GYRE_PARAM_TOPO_FILE);
    enum gyre_topo_level level;
    gyre_topo_init(&comm->links.topo);
    if (level_text[0] != '\0')
        GYRE_TRY(gyre_topo_level_parse(gyre_param_source(&comm->params, GYRE_PARAM_P2P_LEVEL),
                                       level_text, &level));
    if (!is_wanted(comm))
        return GYRE_SUCCESS;
    if (file[0] == '\0')
        return gyre_topo_detect(NULL, &comm->links.topo);
    const gyre_status status = gyre_topo_xml_read(file, &comm->links.topo);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "%s",
                                 gyre_param_source(&comm->params, GYRE_PARAM_TOPO_FILE));
    GYRE_INFO(GRAPH, "topology from %s: %d GPUs, %d network ports", file,
              gyre_topo_count(&comm->links.topo, GYRE_TOPO_GPU),
              gyre_topo_count(&comm->links.topo, GYRE_TOPO_NET));
    return GYRE_SUCCESS;
}

uint64_t gyre_topology_hash(const gyre_comm *comm)
{
    return comm->links.topo.n_nodes > 0 ? gyre_topo_hash(&comm->links.topo) : 0;
}

gyre_status gyre_topology_dump(const gyre_comm *comm)
{
    const char *file = gyre_param_text(&comm->params, GYRE_PARAM_TOPO_DUMP_FILE);
    const uint16_t *host_of = comm->links.grouping.host_of;
    if (file[0] == '\0')
        return GYRE_SUCCESS;
    for (int rank = 0; rank < comm->rank; rank++)
        if (host_of[rank] == host_of[comm->rank])
            return GYRE_SUCCESS;
    const gyre_status status = gyre_topo_xml_write(&comm->links.topo, file);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "%s",
                                 gyre_param_source(&comm->params, GYRE_PARAM_TOPO_DUMP_FILE));
    GYRE_INFO(GRAPH, "topology written to %s", file);
    return GYRE_SUCCESS;
}

void gyre_topology_compare(const gyre_comm *comm)
{
    const struct gyre_peer_info *infos = comm->links.infos;
    int first = -1;
    int n_others = 0;
    if (comm->rank != 0) /* one line a job */
        return;
    for (int rank = 1; rank < comm->n_ranks; rank++) {
        if (infos[rank].topo_hash == infos[0].topo_hash)
            continue;
        if (first < 0)
            first = rank;
        else
            n_others++;
    }
    if (first >= 0)
        GYRE_WARN("the topology of rank %d (%s) differs from that of rank 0 (%s), and so for %d "
                  "more ranks: other GPUs, a link that is down or slower, or another "
                  "GYRE_TOPO_FILE; the slowest link sets the pace. Compare build/bench/topo there",
                  first, infos[first].host_name, infos[0].host_name, n_others);
}
