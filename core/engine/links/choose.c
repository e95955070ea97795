/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans depend on the topology only through transports and NVLinks that both ranks of a pair agree
 * on, so hosts may have different topologies.
 */
#include "core/engine/links/links.h"

#include "algorithms/algorithm.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gyre_status gyre_topology_open(const struct gyre_rank *self, struct gyre_links *links)
{
    const char *level_text = gyre_param_text(&self->params, GYRE_PARAM_P2P_LEVEL);
    const char *file = gyre_param_text(&self->params, GYRE_PARAM_TOPO_FILE);
    const struct gyre_params *params = &self->params;
    enum gyre_topo_level level;
    gyre_status status = GYRE_SUCCESS;
    gyre_topo_init(&links->topo);
    if (level_text[0] != '\0')
        status = gyre_topo_level_parse(gyre_param_source(params, GYRE_PARAM_P2P_LEVEL), level_text,
                                       &level);
    GYRE_TRY(gyre_param_forgive(params, GYRE_PARAM_P2P_LEVEL, status));
    /* Detection asks NVML for every link of every GPU. */
    if (!((self->device_info.kind == GYRE_DEVICE_CUDA && self->n_ranks > 1) ||
          gyre_param_is_set(&self->params, GYRE_PARAM_TOPO_FILE) ||
          gyre_param_is_set(&self->params, GYRE_PARAM_TOPO_DUMP_FILE)))
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

gyre_status gyre_topology_dump(const struct gyre_rank *self, const struct gyre_links *links)
{
    const char *file = gyre_param_text(&self->params, GYRE_PARAM_TOPO_DUMP_FILE);
    const uint16_t *host_of = links->grouping.host_of;
    if (file[0] == '\0')
        return GYRE_SUCCESS;
    for (int rank = 0; rank < self->rank; rank++)
        if (host_of[rank] == host_of[self->rank])
            return GYRE_SUCCESS;
    const gyre_status status = gyre_topo_xml_write(&links->topo, file);
    if (status != GYRE_SUCCESS) {
        gyre_fail_context(status, "%s",
                          gyre_param_source(&self->params, GYRE_PARAM_TOPO_DUMP_FILE));
        return gyre_param_forgive(&self->params, GYRE_PARAM_TOPO_DUMP_FILE, status);
    }
    GYRE_INFO(GRAPH, "topology written to %s", file);
    return GYRE_SUCCESS;
}

void gyre_topology_compare(const struct gyre_rank *self, const struct gyre_links *links)
{
    const struct gyre_peer_info *infos = links->infos;
    int first = -1;
    int n_others = 0;
    if (self->rank != 0)
        return;
    for (int rank = 1; rank < self->n_ranks; rank++) {
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

#define NO_TRANSPORT 127

/* A bit of the same byte: this rank sees only NVLink between the two GPUs. LL128 needs it: over
 * PCIe a store of 128 bytes may arrive in parts. */
#define OVER_NVLINK 128

static uint8_t first_reachable(const struct gyre_rank *self, const struct gyre_peer_info *infos,
                               int peer, char *whys_out, size_t why_bytes)
{
    whys_out[0] = '\0';
    for (int i = 0; gyre_transports[i] != NULL; i++) {
        const struct gyre_transport_ops *ops = gyre_transports[i];
        char why[160] = "";
        if (self->config.transport != NULL && !gyre_text_same(self->config.transport, ops->name))
            snprintf(why, sizeof(why), "only %s is allowed", self->config.transport);
        else if (ops->reachable(&self->params, &infos[self->rank], &infos[peer], why, sizeof(why)))
            return (uint8_t)i;
        if (infos[self->rank].host_hash == infos[peer].host_hash)
            GYRE_INFO(INIT, "rank %d -> %d not via %s: %s", self->rank, peer, ops->name, why);
        gyre_text_append(whys_out, why_bytes, "%s%s: %s", whys_out[0] != '\0' ? "; " : "",
                         ops->name, why);
    }
    return NO_TRANSPORT;
}

/* The later of the two ranks' first possible transports, in order of preference. @all: rank i's
 * answer about rank j stands at i * n + j. */
static uint8_t agree_on_pair(struct gyre_links *links, int rank, const uint8_t *all, size_t n,
                             const size_t pair[2])
{
    const size_t a = pair[0], b = pair[1];
    const uint8_t says_a = all[a * n + b], says_b = all[b * n + a];
    const uint8_t index_a = says_a & NO_TRANSPORT;
    const uint8_t index_b = says_b & NO_TRANSPORT;
    const uint8_t agreed = index_a > index_b ? index_a : index_b;
    if (agreed == NO_TRANSPORT)
        return agreed;
    const struct gyre_transport_ops *ops = gyre_transports[agreed];
    const bool is_nvlink = (says_a & says_b & OVER_NVLINK) != 0 && ops->is_direct;
    const bool is_inside = links->grouping.host_of[a] == links->grouping.host_of[b];
    const bool can_be_ll128 = is_inside || !ops->is_proxied; /* LL128 stays inside hosts */
    if (links->is_ll128_safe && can_be_ll128 && !is_nvlink)
        GYRE_INFO(TUNING, "no ll128: ranks %zu and %zu see no NVLink between their GPUs", a, b);
    links->is_ll128_safe = links->is_ll128_safe && (is_nvlink || !can_be_ll128);
    links->is_p2p = links->is_p2p && ops->is_direct;
    links->is_proxied = links->is_proxied || ops->is_proxied;
    links->is_proxied_inside = links->is_proxied_inside || (ops->is_proxied && is_inside);
    links->uses_rdma = links->uses_rdma || ops->is_rdma;
    links->has_net_lines = links->has_net_lines && (ops->has_lines || !ops->is_proxied);
    if ((int)a == rank)
        links->transport_of[b] = agreed;
    if ((int)b == rank)
        links->transport_of[a] = agreed;
    return agreed;
}

gyre_status gyre_links_choose_transports(const struct gyre_rank *self, struct gyre_links *links)
{
    const size_t n = (size_t)self->n_ranks;
    GYRE_FREED uint8_t *all = malloc(n * n);
    uint8_t *row = links->transport_of;
    char whys[640], last_whys[640] = ""; /* of the last peer without a transport */
    for (int peer = 0; peer < self->n_ranks; peer++) {
        if (peer == self->rank)
            continue;
        row[peer] = first_reachable(self, links->infos, peer, whys, sizeof(whys));
        if (row[peer] == NO_TRANSPORT)
            memcpy(last_whys, whys, sizeof(whys));
        if (links->infos[peer].path_level <= GYRE_TOPO_NVB)
            row[peer] |= OVER_NVLINK;
    }
    GYRE_TRY(gyre_rank_gather(self, row, n, all));
    for (size_t a = 0; a < n; a++)
        for (size_t b = a + 1; b < n; b++)
            if (agree_on_pair(links, self->rank, all, n, (const size_t[]){a, b}) == NO_TRANSPORT)
                return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                                 "init: no transport between rank %zu (%s) and rank %zu (%s)%s%s",
                                 a, links->infos[a].host_name, b, links->infos[b].host_name,
                                 last_whys[0] != '\0' ? " - " : "", last_whys);
    return GYRE_SUCCESS;
}

/* Ranks of one host with different users talk as if on two hosts. The host's lowest rank warns,
 * once. */
static void warn_of_users(const struct gyre_rank *self, const struct gyre_links *links)
{
    const struct gyre_peer_info *own = &links->infos[self->rank];
    for (int peer = 0; peer < self->n_ranks; peer++) {
        const struct gyre_peer_info *other = &links->infos[peer];
        if (other->host_hash != own->host_hash || peer == self->rank)
            continue;
        if (peer < self->rank)
            return;
        if (other->uid == own->uid || !gyre_transports[links->transport_of[peer]]->is_proxied)
            continue;
        GYRE_WARN("rank %d runs as user %u and rank %d, on the same host, as user %u: they cannot "
                  "map each other's memory and talk via %s; start all ranks as one user",
                  self->rank, own->uid, peer, other->uid,
                  gyre_transports[links->transport_of[peer]]->name);
        return;
    }
}

void gyre_links_log(const struct gyre_rank *self, struct gyre_links *links)
{
    size_t n_bytes = 0;
    links->summary[0] = '\0';
    for (int peer = 0; peer < self->n_ranks; peer++) {
        if (peer == self->rank)
            continue;
        const struct gyre_transport *transport = links->transports[links->transport_of[peer]];
        const char *words = transport->ops->describe(transport, peer);
        GYRE_INFO(INIT, "rank %d -> %d via %s", self->rank, peer, words);
        if (strstr(links->summary, words) == NULL)
            gyre_text_append(links->summary, sizeof(links->summary), "%s%s",
                             links->summary[0] != '\0' ? "+" : "", words);
    }
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++)
        if (links->transports[i] != NULL)
            n_bytes += links->transports[i]->ops->memory_bytes(links->transports[i]);
    GYRE_INFO(INIT, "communicator %s: rank %d of %d, %u hosts, %s, %zu bytes of connection memory",
              self->name, self->rank, self->n_ranks, links->grouping.n_hosts,
              links->summary[0] != '\0' ? links->summary : "alone", n_bytes);
    const struct gyre_peer_info *own = &links->infos[self->rank];
    if (self->rank == 0 && strstr(links->summary, "NET/Socket") != NULL && !own->ib_usable &&
        !gyre_param_is_set(&self->params, GYRE_PARAM_NET) &&
        !gyre_param_number(&self->params, GYRE_PARAM_IB_DISABLE) && self->config.transport == NULL)
        GYRE_WARN("hosts talk over NET/Socket, not over RDMA: %s (GYRE_NET=Socket says that this "
                  "is meant)",
                  own->ib_reason);
    warn_of_users(self, links);
    if (self->rank != 0 || links->grouping.n_hosts == 1 ||
        !gyre_log_enabled(GYRE_LOG_INFO, GYRE_LOG_GRAPH))
        return;
    struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE,
                               .n_ranks = (uint16_t)self->n_ranks,
                               .grouping = &links->grouping};
    const int n_variants = gyre_algorithm_variants(&gyre_algorithm_ring, &shape);
    for (; shape.variant < n_variants; shape.variant++) {
        GYRE_FREED char *text = NULL;
        if (gyre_ring_to_text(&shape, &text) != GYRE_SUCCESS)
            return; /* only a log line is lost */
        GYRE_INFO(GRAPH, "channel %u: %s", shape.variant, text);
    }
}
