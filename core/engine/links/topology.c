/* SPDX-License-Identifier: Apache-2.0
 *
 * The topology of a communicator. It is read or detected when the communicator is made, written to
 * a file if the user asks for that, and compared between hosts. Plans depend on the topology only
 * through the transports and NVLinks that the two ranks of each pair agree on. So hosts may have
 * different topologies; a difference causes a warning and no error.
 */
#include "core/engine/links/links.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/util.h"

#include <string.h>

/* Will the result of a detection be used? Detection asks NVML for every link of every GPU, so it
 * runs only then. */
static bool is_wanted(const struct gyre_member *member)
{
    return (member->device_info.kind == GYRE_DEVICE_CUDA && member->n_ranks > 1) ||
           gyre_param_is_set(&member->params, GYRE_PARAM_TOPO_FILE) ||
           gyre_param_is_set(&member->params, GYRE_PARAM_TOPO_DUMP_FILE);
}

gyre_status gyre_topology_open(const struct gyre_member *member, struct gyre_links *links)
{
    const char *level_text = gyre_param_text(&member->params, GYRE_PARAM_P2P_LEVEL);
    const char *file = gyre_param_text(&member->params, GYRE_PARAM_TOPO_FILE);
    const struct gyre_params *params = &member->params;
    enum gyre_topo_level level;
    gyre_status status = GYRE_SUCCESS;
    gyre_topo_init(&links->topo);
    if (level_text[0] != '\0')
        status = gyre_topo_level_parse(gyre_param_source(params, GYRE_PARAM_P2P_LEVEL), level_text,
                                       &level);
    GYRE_TRY(gyre_param_forgive(params, GYRE_PARAM_P2P_LEVEL, status));
    if (!is_wanted(member))
        return GYRE_SUCCESS;
    if (file[0] == '\0')
        return gyre_topo_detect(NULL, &links->topo);
    status = gyre_topo_xml_read(file, &links->topo);
    if (status != GYRE_SUCCESS) {
        gyre_fail_context(status, "%s", gyre_param_source(params, GYRE_PARAM_TOPO_FILE));
        GYRE_TRY(gyre_param_forgive(params, GYRE_PARAM_TOPO_FILE, status));
        return gyre_topo_detect(NULL, &links->topo);
    }
    GYRE_INFO(GRAPH, "topology from %s: %d GPUs, %d network ports", file,
              gyre_topo_count(&links->topo, GYRE_TOPO_GPU),
              gyre_topo_count(&links->topo, GYRE_TOPO_NET));
    return GYRE_SUCCESS;
}

uint64_t gyre_topology_hash(const struct gyre_links *links)
{
    return links->topo.n_nodes > 0 ? gyre_topo_hash(&links->topo) : 0;
}

gyre_status gyre_topology_dump(const struct gyre_member *member, const struct gyre_links *links)
{
    const char *file = gyre_param_text(&member->params, GYRE_PARAM_TOPO_DUMP_FILE);
    const uint16_t *host_of = links->grouping.host_of;
    if (file[0] == '\0')
        return GYRE_SUCCESS;
    for (int rank = 0; rank < member->rank; rank++)
        if (host_of[rank] == host_of[member->rank])
            return GYRE_SUCCESS;
    const gyre_status status = gyre_topo_xml_write(&links->topo, file);
    if (status != GYRE_SUCCESS) {
        gyre_fail_context(status, "%s",
                          gyre_param_source(&member->params, GYRE_PARAM_TOPO_DUMP_FILE));
        return gyre_param_forgive(&member->params, GYRE_PARAM_TOPO_DUMP_FILE, status);
    }
    GYRE_INFO(GRAPH, "topology written to %s", file);
    return GYRE_SUCCESS;
}

void gyre_topology_compare(const struct gyre_member *member, const struct gyre_links *links)
{
    const struct gyre_peer_info *infos = links->infos;
    int first = -1;
    int n_others = 0;
    if (member->rank != 0) /* one line a job */
        return;
    for (int rank = 1; rank < member->n_ranks; rank++) {
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
                  "GYRE_TOPO_FILE; the slowest link sets the pace. Compare gyre topo there",
                  first, infos[first].host_name, infos[0].host_name, n_others);
}
