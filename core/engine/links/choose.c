/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses one transport for each pair of ranks. Every rank names the first transport with which it
 * reaches each other rank, and all ranks come to the same table.
 */
#include "core/engine/links/links.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_TRANSPORT 127

/* A bit of the same byte: this rank finds that only NVLink is between the two GPUs. LL128 needs
 * NVLink, because over PCIe a store of 128 bytes may arrive in parts. */
#define OVER_NVLINK 128

/* Find the first transport with which this rank reaches the peer, and the reasons why the
 * transports before it do not. */
static uint8_t first_reachable(const struct gyre_member *member, const struct gyre_peer_info *infos,
                               int peer, char *whys_out, size_t why_bytes)
{
    size_t used = 0;
    whys_out[0] = '\0';
    for (int i = 0; gyre_transports[i] != NULL; i++) {
        const struct gyre_transport_ops *ops = gyre_transports[i];
        char why[160] = "";
        if (member->config.transport != NULL &&
            !gyre_text_same(member->config.transport, ops->name))
            snprintf(why, sizeof(why), "only %s is allowed", member->config.transport);
        else if (ops->reachable(&member->params, &infos[member->rank], &infos[peer], why,
                                sizeof(why)))
            return (uint8_t)i;
        if (infos[member->rank].host_hash == infos[peer].host_hash)
            GYRE_INFO(INIT, "rank %d -> %d not via %s: %s", member->rank, peer, ops->name, why);
        if (used < why_bytes)
            used += (size_t)snprintf(whys_out + used, why_bytes - used, "%s%s: %s",
                                     used > 0 ? "; " : "", ops->name, why);
    }
    return NO_TRANSPORT;
}

/* Choose the transport of a pair from the answers of its two ranks. Transports are in order of
 * preference, and each rank names its first possible one; the later of the two is chosen. Returns
 * NO_TRANSPORT if there is none.
 * @rank: this rank. @all: the answer of rank i about rank j stands at i * n + j. */
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

/* Fill in this rank's row of the table of pairs. @whys_out: the reasons why the last peer without a
 * transport has none. */
static void fill_own_row(const struct gyre_member *member, const struct gyre_links *links,
                         char *whys_out, size_t why_bytes)
{
    uint8_t *row = links->transport_of;
    char whys[640];
    for (int peer = 0; peer < member->n_ranks; peer++) {
        if (peer == member->rank)
            continue;
        row[peer] = first_reachable(member, links->infos, peer, whys, sizeof(whys));
        if (row[peer] == NO_TRANSPORT)
            snprintf(whys_out, why_bytes, "%s", whys);
        if (links->infos[peer].path_level <= GYRE_TOPO_NVB)
            row[peer] |= OVER_NVLINK;
    }
}

gyre_status gyre_links_choose_transports(const struct gyre_member *member, struct gyre_links *links)
{
    const size_t n = (size_t)member->n_ranks;
    uint8_t *all = malloc(n * n);
    char whys[640] = "";
    links->transport_of = calloc(n, 1);
    if (all == NULL || links->transport_of == NULL) {
        free(all);
        return gyre_fail_errno(ENOMEM, "init");
    }
    fill_own_row(member, links, whys, sizeof(whys));
    gyre_status status =
        member->bootstrap->ops->all_gather(member->bootstrap, links->transport_of, n, all);
    for (size_t a = 0; a < n && status == GYRE_SUCCESS; a++)
        for (size_t b = a + 1; b < n && status == GYRE_SUCCESS; b++)
            if (agree_on_pair(links, member->rank, all, n, (const size_t[]){a, b}) == NO_TRANSPORT)
                status = gyre_fail(GYRE_ERROR_UNSUPPORTED,
                                   "init: no transport between rank %zu (%s) and rank %zu (%s)%s%s",
                                   a, links->infos[a].host_name, b, links->infos[b].host_name,
                                   whys[0] != '\0' ? " - " : "", whys);
    free(all);
    return status;
}
