/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the connectors of a communicator after bootstrap. All ranks check that they agree on their
 * settings (agreement.c), choose one transport for each pair together (choose.c), and connect.
 */
#include "core/engine/links/links.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- facts about all ranks and their hosts ------------------------------------------------ */

static gyre_status gather_infos(const struct gyre_member *member, struct gyre_links *links)
{
    struct gyre_peer_info mine;
    memset(&mine, 0, sizeof(mine));
    GYRE_TRY(gyre_peer_info_fill(&member->params, member->device, member->rank, &mine));
    /* Without an interface the communicator cannot be shrunk later; everything else works. */
    if (member->n_ranks > 1 && gyre_regroup_listen(&member->params, &links->regroup_listener,
                                                   &mine.regroup_addresses) != GYRE_SUCCESS)
        GYRE_INFO(INIT, "no regroup listener for gyre_comm_shrink: %s", gyre_cause());
    mine.topo_hash = gyre_topology_hash(links);
    mine.trace_hash = gyre_trace_hash(member->trace);
    links->infos = calloc((size_t)member->n_ranks, sizeof(*links->infos));
    if (links->infos == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    GYRE_TRY(
        member->bootstrap->ops->all_gather(member->bootstrap, &mine, sizeof(mine), links->infos));
    links->grouping.n_hosts = 0;
    for (int rank = 0; rank < member->n_ranks; rank++) {
        int host = -1;
        for (int before = 0; before < rank && host < 0; before++)
            if (links->infos[before].host_hash == links->infos[rank].host_hash)
                host = links->grouping.host_of[before];
        if (host < 0)
            host = links->grouping.n_hosts++;
        links->grouping.host_of[rank] = (uint16_t)host;
        gyre_peer_info_measure(&links->topo, &mine, &links->infos[rank]);
    }
    return GYRE_SUCCESS;
}

/* The number of NICs that the ranks of a host use; all ranks find the same number. Over sockets it
 * is the number of interfaces over which the ranks spread. Over RDMA it is the number of ports that
 * a rank may use. A host with more ports than ranks uses one for each rank. */
static uint16_t count_nics(const struct gyre_member *member, const struct gyre_links *links)
{
    uint32_t most = 1;
    for (int rank = 0; rank < member->n_ranks; rank++) {
        const struct gyre_peer_info *info = &links->infos[rank];
        const uint32_t n = links->uses_rdma ? info->ib_n_ports : info->n_interfaces;
        most = n > most ? n : most;
    }
    return (uint16_t)gyre_min_u64(most, UINT16_MAX);
}

/* ---- connecting --------------------------------------------------------------------------- */

static gyre_status check_ranks(void *context)
{
    struct gyre_bootstrap *bootstrap = context;
    return bootstrap->ops->check(bootstrap);
}

gyre_status gyre_links_open_transport(struct gyre_member *member, struct gyre_links *links,
                                      int index, uint64_t deadline_ns)
{
    const struct gyre_transport_ops *ops = gyre_transports[index];
    uint16_t *peers = calloc((size_t)member->n_ranks, sizeof(*peers));
    size_t *offsets = calloc((size_t)member->n_ranks + 1, sizeof(*offsets));
    void *blob = NULL;
    void *blobs = NULL;
    size_t blob_bytes = 0;
    int n_peers = 0;
    gyre_status status = GYRE_SUCCESS;
    if (peers == NULL || offsets == NULL) {
        status = gyre_fail_errno(ENOMEM, "init");
        goto out;
    }
    for (int peer = 0; peer < member->n_ranks; peer++)
        if (peer != member->rank && links->transport_of[peer] == index)
            peers[n_peers++] = (uint16_t)peer;
    const struct gyre_transport_config config = {
        .device = member->device,
        .params = &member->params,
        .rank = member->rank,
        .n_ranks = member->n_ranks,
        .infos = links->infos,
        .peers = peers,
        .n_peers = n_peers,
        .for_puts = links->for_puts,
        .spec = links->spec,
        .ring_prev = links->ring_prev,
        .is_far = links->is_far,
        .rendezvous = &member->bootstrap->own_address,
        .secret = member->bootstrap->secret,
        .traffic_class = member->config.traffic_class,
        .service_level = member->config.service_level,
        .fault = &member->fault,
        .trace = member->trace,
        .authenticate = gyre_authenticate,
        .check_ranks = check_ranks,
        .check_context = member->bootstrap,
    };
    if (n_peers > 0) {
        GYRE_TRY_GOTO(status, ops->open(&config, &links->transports[index], &blob, &blob_bytes),
                      out);
        gyre_member_end_stage(member, "making slots");
    }
    GYRE_TRY_GOTO(
        status,
        member->bootstrap->ops->all_gather_v(member->bootstrap, blob, blob_bytes, &blobs, offsets),
        out);
    if (n_peers > 0)
        status =
            ops->connect(links->transports[index], blobs, offsets, deadline_ns, links->connectors);
out:
    free(blob);
    free(blobs);
    free(offsets);
    free(peers);
    return status;
}

/* Fill in each rank's predecessor in the ring. It matters only inside one host, where slots have
 * different sizes, and there the ring follows the numbers of the ranks. */
static gyre_status fill_before(struct gyre_links *links, int n_ranks)
{
    links->ring_prev = calloc((size_t)n_ranks, sizeof(*links->ring_prev));
    if (links->ring_prev == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    for (int rank = 0; rank < n_ranks; rank++)
        links->ring_prev[rank] = (uint16_t)((rank + n_ranks - 1) % n_ranks);
    return GYRE_SUCCESS;
}

/* Does another protocol than SIMPLE come first behind some slash of GYRE_PROTO? All ranks have the
 * same text. */
static bool asks_for_net_lines(const struct gyre_member *member)
{
    static const char simple[] = "simple";
    const char *text = gyre_param_text(&member->params, GYRE_PARAM_PROTO);
    for (const char *at = strchr(text, '/'); at != NULL; at = strchr(at + 1, '/'))
        if (!gyre_text_same_n(at + 1, simple, strlen(simple)))
            return true;
    return false;
}

/* Is memory set aside for lines between hosts? GPUs use them by themselves over TCP, and two GPUs
 * over RDMA, too. With more ranks over RDMA they take 32 MiB of GPU memory, and on the host device
 * over TCP they cost the proxy a look at twice as many FIFOs. So there they must be asked for. */
static bool wants_net_lines(const struct gyre_member *member, const struct gyre_links *links)
{
    const bool is_host = member->device_info.kind == GYRE_DEVICE_HOST;
    return links->has_net_lines && links->is_proxied &&
           (is_host == links->uses_rdma || (!is_host && member->n_ranks == 2) ||
            asks_for_net_lines(member));
}

/* Compute the sizes of the FIFOs, and which ranks are far from this one. */
static gyre_status size_fifos(const struct gyre_member *member, struct gyre_links *links)
{
    const gyre_device_kind kind = (gyre_device_kind)member->device_info.kind;
    const uint32_t n_ranks = (uint32_t)member->n_ranks;
    const int64_t wanted_bytes = gyre_param_number(&member->params, GYRE_PARAM_BUFFSIZE);
    const uint64_t buffer_bytes = wanted_bytes > 0 ? (uint64_t)wanted_bytes : 0;
    const uint32_t max_channels = gyre_member_max_channels(member);
    links->is_far = calloc(n_ranks, 1);
    if (links->is_far == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    const bool has_lines = wants_net_lines(member, links);
    if (links->grouping.n_hosts == 1) {
        links->spec =
            gyre_tuner_fifo_spec(kind, n_ranks, links->is_proxied, buffer_bytes, max_channels);
        if (has_lines && kind == GYRE_DEVICE_HOST)
            links->spec.net_line_bytes = gyre_net_line_bytes(kind, &links->spec, n_ranks - 1, 0);
        return GYRE_SUCCESS;
    }
    struct gyre_peer_counts peers;
    GYRE_TRY(gyre_near_peers_count(&links->grouping, n_ranks, &peers));
    GYRE_TRY(gyre_near_peers_find(&links->grouping, n_ranks, member->rank, links->is_far));
    links->spec = gyre_tuner_fifo_spec_across(kind, &peers, links->is_proxied_inside,
                                              links->uses_rdma, buffer_bytes, max_channels);
    if (has_lines)
        gyre_fifo_spec_add_net_lines(&links->spec, kind, &peers, links->is_proxied_inside);
    if (member->rank == 0)
        GYRE_INFO(INIT,
                  "FIFOs: %u of %u x %u B with %u near ranks at most, %u of %u x %u B with %u far "
                  "ones",
                  links->spec.n_fifos, links->spec.depth, links->spec.slot_bytes[GYRE_PROTO_SIMPLE],
                  peers.n_inside + peers.n_near, links->spec.far.n_fifos, links->spec.depth,
                  links->spec.far.slot_bytes, peers.n_far);
    return GYRE_SUCCESS;
}

/* Go on without lines between hosts if some rank has none. On the host device all ranks have them.
 */
static gyre_status agree_on_lines(const struct gyre_member *member, struct gyre_links *links)
{
    const size_t n = (size_t)member->n_ranks;
    uint8_t has_lines = 1;
    if (links->spec.net_line_bytes == 0 || member->device_info.kind == GYRE_DEVICE_HOST)
        return GYRE_SUCCESS;
    uint8_t *all = malloc(n);
    if (all == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    for (int i = 0; gyre_transports[i] != NULL; i++)
        if (links->transports[i] != NULL && gyre_transports[i]->has_lines &&
            !gyre_transports[i]->takes_lines(links->transports[i]))
            has_lines = 0;
    const gyre_status status =
        member->bootstrap->ops->all_gather(member->bootstrap, &has_lines, 1, all);
    for (size_t rank = 0; rank < n && status == GYRE_SUCCESS; rank++) {
        if (all[rank] != 0)
            continue;
        links->spec.net_line_bytes = 0;
        if (member->rank == 0)
            GYRE_INFO(
                TUNING,
                "between hosts protocol simple alone: the NIC of rank %zu (%s) does not reach "
                "GPU memory, where kernels poll lines",
                rank, links->infos[rank].host_name);
        break;
    }
    free(all);
    return status;
}

uint64_t gyre_links_timeout_ns(const struct gyre_member *member)
{
    return (uint64_t)gyre_param_number(&member->params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) *
           1000000000ULL;
}

gyre_status gyre_links_open(struct gyre_member *member, const struct gyre_links_terms *terms,
                            struct gyre_links *links)
{
    const uint64_t deadline_ns = gyre_now_ns() + gyre_links_timeout_ns(member);
    GYRE_TRY(gyre_topology_open(member, links));
    gyre_member_end_stage(member, "finding the topology");
    GYRE_TRY(gyre_links_agree(member, terms));
    GYRE_TRY(gather_infos(member, links));
    GYRE_TRY(gyre_links_check_gpus(member, links));
    GYRE_TRY(gyre_links_check_traces(member, links));
    GYRE_TRY(gyre_topology_dump(member, links));
    gyre_topology_compare(member, links);
    links->is_ll128_safe = member->device_info.kind == GYRE_DEVICE_CUDA;
    links->is_p2p = true;
    links->has_net_lines = true;
    GYRE_TRY(gyre_links_choose_transports(member, links));
    gyre_member_end_stage(member, "agreeing on transports");
    links->grouping.n_nics = count_nics(member, links);
    GYRE_TRY(size_fifos(member, links));
    GYRE_TRY(fill_before(links, member->n_ranks));
    links->connectors =
        calloc((size_t)member->n_ranks * links->spec.n_fifos * 2, sizeof(*links->connectors));
    if (links->connectors == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    for (int i = 0; gyre_transports[i] != NULL; i++)
        GYRE_TRY(gyre_links_open_transport(member, links, i, deadline_ns));
    gyre_member_end_stage(member, "connecting");
    GYRE_TRY(agree_on_lines(member, links));
    GYRE_TRY(gyre_links_measure(member, links));
    gyre_member_end_stage(member, "measuring the network");
    return GYRE_SUCCESS;
}

void gyre_links_wake(const struct gyre_links *links)
{
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++)
        if (links->transports[i] != NULL)
            links->transports[i]->ops->wake(links->transports[i]);
}

bool gyre_links_help(void *context, bool is_last)
{
    const struct gyre_links *links = context;
    bool has_moved = false;
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++) {
        struct gyre_transport *transport = links->transports[i];
        if (transport != NULL)
            has_moved = transport->ops->help(transport, is_last) || has_moved;
    }
    return has_moved;
}

void gyre_links_close(struct gyre_links *links)
{
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++)
        if (links->transports[i] != NULL)
            links->transports[i]->ops->close(links->transports[i]);
    gyre_regroup_close(links->regroup_listener);
    free(links->connectors);
    free(links->transport_of);
    free(links->ring_prev);
    free(links->is_far);
    free(links->infos);
    gyre_topo_fini(&links->topo);
    memset(links, 0, sizeof(*links));
}
