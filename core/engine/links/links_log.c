/* SPDX-License-Identifier: Apache-2.0
 *
 * Logs the links of a communicator once all ranks are connected.
 */
#include "algorithms/algorithm.h"
#include "core/foundation/base/log.h"
#include "core/engine/links/links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Warn about ranks of one host that run as different users, because they talk to each other as if
 * they were on two hosts. The lowest rank of the host warns, once. */
static void warn_of_users(const struct gyre_member *member, const struct gyre_links *links)
{
    const struct gyre_peer_info *own = &links->infos[member->rank];
    for (int peer = 0; peer < member->n_ranks; peer++) {
        const struct gyre_peer_info *other = &links->infos[peer];
        if (other->host_hash != own->host_hash || peer == member->rank)
            continue;
        if (peer < member->rank)
            return;
        if (other->uid == own->uid || !gyre_transports[links->transport_of[peer]]->is_proxied)
            continue;
        GYRE_WARN("rank %d runs as user %u and rank %d, on the same host, as user %u: they cannot "
                  "map each other's memory and talk via %s; start all ranks as one user",
                  member->rank, own->uid, peer, other->uid,
                  gyre_transports[links->transport_of[peer]]->name);
        return;
    }
}

/* Says where each channel of a ring crosses between hosts. */
static void log_rings(const struct gyre_member *member, const struct gyre_links *links)
{
    struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE,
                               .n_ranks = (uint16_t)member->n_ranks,
                               .grouping = &links->grouping};
    const int n_variants = gyre_algorithm_variants(&gyre_algorithm_ring, &shape);
    for (; shape.variant < n_variants; shape.variant++) {
        char *text;
        if (gyre_ring_to_text(&shape, &text) != GYRE_SUCCESS)
            return; /* only a log line is lost */
        GYRE_INFO(GRAPH, "channel %u: %s", shape.variant, text);
        free(text);
    }
}

void gyre_links_log(const struct gyre_member *member, struct gyre_links *links)
{
    size_t n_bytes = 0;
    links->summary[0] = '\0';
    for (int peer = 0; peer < member->n_ranks; peer++) {
        if (peer == member->rank)
            continue;
        const struct gyre_transport *transport = links->transports[links->transport_of[peer]];
        const char *words = transport->ops->describe(transport, peer);
        GYRE_INFO(INIT, "rank %d -> %d via %s", member->rank, peer, words);
        const size_t used = strlen(links->summary);
        if (strstr(links->summary, words) == NULL)
            snprintf(links->summary + used, sizeof(links->summary) - used, "%s%s",
                     used > 0 ? "+" : "", words);
    }
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++)
        if (links->transports[i] != NULL)
            n_bytes += links->transports[i]->ops->memory_bytes(links->transports[i]);
    GYRE_INFO(INIT, "communicator %s: rank %d of %d, %u hosts, %s, %zu bytes of connection memory",
              member->name, member->rank, member->n_ranks, links->grouping.n_hosts,
              links->summary[0] != '\0' ? links->summary : "alone", n_bytes);
    const struct gyre_peer_info *own = &links->infos[member->rank];
    if (member->rank == 0 && strstr(links->summary, "NET/Socket") != NULL && !own->ib_usable &&
        !gyre_param_is_set(&member->params, GYRE_PARAM_NET) &&
        !gyre_param_number(&member->params, GYRE_PARAM_IB_DISABLE) &&
        member->config.transport == NULL)
        GYRE_WARN("hosts talk over NET/Socket, not over RDMA: %s (GYRE_NET=Socket says that this "
                  "is meant)",
                  own->ib_reason);
    warn_of_users(member, links);
    if (member->rank == 0 && links->grouping.n_hosts > 1 &&
        gyre_log_enabled(GYRE_LOG_INFO, GYRE_LOG_GRAPH))
        log_rings(member, links);
}
