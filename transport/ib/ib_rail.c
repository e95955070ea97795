/* SPDX-License-Identifier: Apache-2.0
 *
 * Rails are the ports nearest to the device.
 */
#include "transport/ib/ib_transport.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_gids(const void *a, const void *b)
{
    return gyre_ib_gid_prefer(b, a);
}

gyre_status gyre_ib_rail_gids(const struct gyre_verbs *verbs, const struct gyre_params *params,
                              struct ibv_context *context, const struct gyre_ib_port *port,
                              struct gyre_ib_gid_row *gids_out, int *n_out)
{
    struct gyre_ib_gid_rules rules;
    int n = 0;
    int chosen = 0;
    int n_usable = 0;
    *n_out = 0;
    if (!port->is_roce)
        return GYRE_SUCCESS;
    struct gyre_ib_gid_row *rows = calloc(GYRE_IB_MAX_GIDS, sizeof(*rows));
    char(*reasons)[GYRE_IB_GID_REASON_BYTES] = calloc(GYRE_IB_MAX_GIDS, sizeof(*reasons));
    gyre_status status = rows != NULL && reasons != NULL
                             ? gyre_ib_gid_rules_from(params, port->name, &rules)
                             : gyre_fail_errno(ENOMEM, "GID table");
    if (status == GYRE_SUCCESS)
        status = gyre_ib_gid_table(verbs, context, port->port, rows, &n);
    if (status == GYRE_SUCCESS)
        status = gyre_ib_gid_choose(rows, n, &rules, &chosen, reasons);
    if (status == GYRE_SUCCESS && rules.forced_index >= 0) {
        gids_out[n_usable++] = rows[chosen];
    } else if (status == GYRE_SUCCESS) {
        for (int i = 0; i < n; i++) {
            char address[48];
            if (reasons[i][0] == '\0')
                rows[n_usable++] = rows[i];
            else
                GYRE_INFO(NET, "NET/IB : %s:%u GID %u %s not used: %s", port->name, port->port,
                          rows[i].index, gyre_ib_gid_to_text(rows[i].raw, address, sizeof(address)),
                          reasons[i]);
        }
        qsort(rows, (size_t)n_usable, sizeof(*rows), compare_gids);
        n_usable = n_usable > GYRE_IB_PAIR_GIDS ? GYRE_IB_PAIR_GIDS : n_usable;
        memcpy(gids_out, rows, (size_t)n_usable * sizeof(*rows));
    }
    free(rows);
    free(reasons);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "%s:%u", port->name, port->port);
    *n_out = n_usable;
    return GYRE_SUCCESS;
}

gyre_status gyre_ib_rails_open(struct gyre_ib_transport *ib)
{
    struct gyre_device_info info;
    char gpu_path[256] = "";
    int gpu_node = -1;
    enum gyre_ib_distance nearest = GYRE_IB_DISTANCE_SYS;
    GYRE_TRY(gyre_ib_scan_open(ib->config.params, &ib->scan));
    ib->verbs = ib->scan.verbs;
    GYRE_TRY(ib->config.device->ops->info(ib->config.device, &info));
    gyre_ib_pci_path(info.pci_bus_id, gpu_path, sizeof(gpu_path), &gpu_node);
    enum gyre_ib_distance distances[GYRE_IB_MAX_PORTS];
    for (int i = 0; i < ib->scan.n_ports; i++) {
        const struct gyre_ib_port *port = &ib->scan.ports[i];
        distances[i] = gyre_ib_distance(gpu_path, gpu_node, port->pci_path, port->numa_node);
        if (distances[i] < nearest)
            nearest = distances[i];
    }
    int n_left_out = 0;
    for (int i = 0; i < ib->scan.n_ports; i++) {
        if (distances[i] != nearest)
            continue;
        if (ib->n_rails == GYRE_IB_MAX_RAILS) {
            n_left_out++;
            continue;
        }
        struct gyre_ib_rail *rail = &ib->rails[ib->n_rails++];
        rail->port = ib->scan.ports[i];
        rail->index = i;
        const struct gyre_verbs *verbs = ib->verbs;
        rail->context = verbs->open_device(rail->port.device);
        if (rail->context == NULL)
            return gyre_fail_errno(errno, "ibv_open_device(%s)", rail->port.name);
        const int error = verbs->query_device(rail->context, &rail->attr);
        if (error != 0)
            return gyre_fail_errno(error, "ibv_query_device(%s)", rail->port.name);
        GYRE_TRY(gyre_ib_rail_gids(verbs, ib->config.params, rail->context, &rail->port, rail->gids,
                                   &rail->n_gids));
        rail->pd = verbs->alloc_pd(rail->context);
        if (rail->pd == NULL)
            return gyre_fail_errno(errno, "ibv_alloc_pd(%s)", rail->port.name);
        char address[48] = "none";
        if (rail->n_gids > 0)
            gyre_ib_gid_to_text(rail->gids[0].raw, address, sizeof(address));
        GYRE_INFO(
            NET, "NET/IB : rail [%d]%s:%u MTU %u, %u Gbit/s, GID %u %s (%d usable), distance %s",
            rail->index, rail->port.name, rail->port.port, gyre_ib_mtu_bytes(rail->port.active_mtu),
            rail->port.gbit_per_s, rail->n_gids > 0 ? rail->gids[0].index : 0, address,
            rail->n_gids, gyre_ib_distance_names[nearest]);
    }
    if (n_left_out > 0)
        GYRE_INFO(NET,
                  "NET/IB : %d ports are near, and %d more as near ones are not used; %s chooses",
                  ib->n_rails, n_left_out, gyre_param_called(ib->config.params, GYRE_PARAM_IB_HCA));
    return GYRE_SUCCESS;
}

void gyre_ib_rails_close(struct gyre_ib_transport *ib)
{
    for (int i = 0; i < ib->n_rails; i++) {
        struct gyre_ib_rail *rail = &ib->rails[i];
        if (rail->pd != NULL)
            ib->verbs->dealloc_pd(rail->pd);
        if (rail->context != NULL)
            ib->verbs->close_device(rail->context);
    }
    ib->n_rails = 0;
    if (ib->scan.verbs != NULL)
        gyre_ib_scan_close(&ib->scan);
}

static void list_to_text(const struct gyre_ib_rail_list *list, char *text_out, size_t text_bytes)
{
    text_out[0] = '\0';
    for (int i = 0; i < list->n; i++)
        gyre_text_append(text_out, text_bytes, "%s%u", i > 0 ? "," : "", list->indices[i]);
}

gyre_status gyre_ib_pair_rails(const struct gyre_ib_rail_list *mine,
                               const struct gyre_ib_rail_list *theirs, int cross,
                               const char *variable, struct gyre_ib_rail_pairs *pairs_out)
{
    struct gyre_ib_rail_pairs pairs = {.n = 0};
    char mine_text[64];
    char theirs_text[64];
    /* By index: both ranks number their pairs alike. */
    for (uint32_t index = 0; index < GYRE_IB_MAX_PORTS && cross != 1; index++)
        for (int i = 0; i < mine->n; i++)
            for (int j = 0; j < theirs->n; j++)
                if (mine->indices[i] == index && theirs->indices[j] == index) {
                    pairs.mine[pairs.n] = i;
                    pairs.theirs[pairs.n++] = j;
                }
    const bool in_order = cross == 1 || (cross == 2 && pairs.n == 0);
    for (int i = 0; in_order && i < mine->n && i < theirs->n; i++) {
        pairs.mine[i] = i;
        pairs.theirs[i] = i;
        pairs.n = i + 1;
    }
    if (pairs.n == 0) {
        list_to_text(mine, mine_text, sizeof(mine_text));
        list_to_text(theirs, theirs_text, sizeof(theirs_text));
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "this rank is near rails %s, the peer near %s, and %s=0 allows "
                         "only pairs of the same rail; set it to 1 or 2 if the rails are routed to "
                         "each other",
                         mine_text, theirs_text, variable);
    }
    *pairs_out = pairs;
    return GYRE_SUCCESS;
}

#define MAX_SENDS 1024

static gyre_status open_cq(struct gyre_ib_transport *ib, struct gyre_ib_rail *rail)
{
    uint64_t n_cqe = 0;
    /* An error completes all posted work requests. */
    for (int i = 0; i < ib->n_channels; i++)
        if (ib->channels[i].rail == rail)
            n_cqe += ib->channels[i].size.n_send + ib->channels[i].size.n_recv;
    n_cqe += ib->fence.is_needed ? 1 : 0;
    if (n_cqe > (uint64_t)rail->attr.max_cqe)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%s: %llu completions can be under way to %d peers, a queue of this "
                         "device holds %d; lower GYRE_MAX_NCHANNELS or GYRE_IB_QPS_PER_CONNECTION",
                         rail->port.name, (unsigned long long)n_cqe, ib->config.n_peers,
                         rail->attr.max_cqe);
    rail->n_cqe = (int)n_cqe;
    rail->events = ib->verbs->create_comp_channel(rail->context);
    if (rail->events == NULL)
        return gyre_fail_errno(errno, "ibv_create_comp_channel(%s)", rail->port.name);
    rail->cq = ib->verbs->create_cq(rail->context, rail->n_cqe, NULL, rail->events, 0);
    if (rail->cq == NULL && errno == ENOMEM)
        return gyre_ib_memlock_fail("ibv_create_cq", n_cqe * sizeof(struct ibv_wc));
    if (rail->cq == NULL)
        return gyre_fail_errno(errno, "ibv_create_cq(%s, %d entries)", rail->port.name,
                               rail->n_cqe);
    return GYRE_SUCCESS;
}

gyre_status gyre_ib_path_begin(const struct gyre_ib_transport *ib, const struct gyre_ib_rail *rail,
                               struct gyre_ib_qp_path *path_out)
{
    memset(path_out, 0, sizeof(*path_out));
    path_out->port = rail->port.port;
    path_out->is_roce = rail->port.is_roce;
    path_out->traffic_class = (uint8_t)ib->traffic_class;
    path_out->service_level = (uint8_t)ib->service_level;
    path_out->pkey_index = (uint16_t)gyre_param_number(ib->config.params, GYRE_PARAM_IB_PKEY);
    path_out->timeout = (uint8_t)ib->timeout;
    path_out->retries = (uint8_t)ib->retries;
    path_out->local.lid = rail->port.lid;
    path_out->local.mtu = rail->port.active_mtu;
    return gyre_ib_random_psn(&path_out->local.psn);
}

gyre_status gyre_ib_channel_open(struct gyre_ib_transport *ib, struct gyre_ib_channel *channel)
{
    struct gyre_ib_rail *rail = channel->rail;
    struct gyre_ib_qp_path *path = &channel->path;
    GYRE_TRY(gyre_ib_path_begin(ib, rail, path));
    if (channel->is_control && rail->port.is_roce)
        path->traffic_class = (uint8_t)ib->control_class;
    if ((uint32_t)rail->attr.max_qp_wr < channel->size.n_recv)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%s: a queue pair holds %d requests, %u FIFOs of %u slots need %u; lower "
                         "GYRE_MAX_NCHANNELS",
                         rail->port.name, rail->attr.max_qp_wr, channel->peer->size.n_fifos,
                         ib->config.spec.depth, channel->size.n_recv);
    GYRE_TRY(gyre_ib_qp_create(ib->verbs, rail->pd, rail->cq, path, IBV_ACCESS_REMOTE_WRITE,
                               &channel->size, &channel->qp));
    path->local.qpn = channel->qp->qp_num;
    return gyre_ib_post_receives(channel, channel->size.n_recv);
}

gyre_status gyre_ib_channels_open(struct gyre_ib_transport *ib)
{
    const char *name = gyre_param_called(ib->config.params, GYRE_PARAM_IB_QPS_PER_CONNECTION);
    const int n_qps = (int)gyre_param_number(ib->config.params, GYRE_PARAM_IB_QPS_PER_CONNECTION);
    if (ib->n_rails * n_qps > GYRE_IB_MAX_CHANNELS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%s=%d on %d rails is more than %d queue pairs a connection", name, n_qps,
                         ib->n_rails, GYRE_IB_MAX_CHANNELS);
    ib->channels_per_rail = n_qps + 1;
    ib->channels_per_peer = ib->n_rails * ib->channels_per_rail;
    ib->n_channels = ib->config.n_peers * ib->channels_per_peer;
    if (ib->n_channels > GYRE_IB_MAX_ALL_CHANNELS)
        return gyre_fail(
            GYRE_ERROR_UNSUPPORTED,
            "%d peers over %d rails need %d queue pairs of this rank, at most %d can be "
            "told apart; lower %s=%d or use fewer ports (%s)",
            ib->config.n_peers, ib->n_rails, ib->n_channels, GYRE_IB_MAX_ALL_CHANNELS, name, n_qps,
            gyre_param_called(ib->config.params, GYRE_PARAM_IB_HCA));
    ib->channels = calloc((size_t)ib->n_channels, sizeof(*ib->channels));
    if (ib->channels == NULL)
        return gyre_fail_errno(ENOMEM, "%d queue pairs", ib->n_channels);
    for (int i = 0; i < ib->n_channels; i++) {
        struct gyre_ib_channel *channel = &ib->channels[i];
        const int nth = i % ib->channels_per_peer;
        channel->id = (uint32_t)i;
        channel->peer = &ib->peers[i / ib->channels_per_peer];
        channel->is_control = nth % ib->channels_per_rail == n_qps;
        channel->rail = &ib->rails[nth / ib->channels_per_rail];
        const uint32_t n_slots = channel->peer->size.n_fifos * ib->config.spec.depth;
        const uint32_t device_max = (uint32_t)channel->rail->attr.max_qp_wr;
        /* A slot takes a write and an imm; more only if it exceeds a message. */
        uint32_t n_send = 2 * n_slots + 2 * GYRE_IB_BATCH;
        n_send += ib->line_stride > 0 ? n_slots : 0;
        n_send = n_send > MAX_SENDS ? MAX_SENDS : n_send;
        channel->size.n_send = n_send > device_max ? device_max : n_send;
        /* Imms of their own return LL's credit. */
        channel->size.n_recv = n_slots + GYRE_IB_RECV_BATCH;
        if (channel->is_control && ib->line_stride > 0)
            channel->size.n_recv += n_slots;
        channel->size.inline_bytes = GYRE_IB_BOX_BYTES;
        if (nth == 0)
            channel->peer->channels = channel;
    }
    for (int i = 0; i < ib->n_rails; i++)
        GYRE_TRY(open_cq(ib, &ib->rails[i]));
    for (int i = 0; i < ib->n_channels; i++) {
        const gyre_status status = gyre_ib_channel_open(ib, &ib->channels[i]);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "NET/IB %s:%u", ib->channels[i].rail->port.name,
                                     ib->channels[i].rail->port.port);
    }
    return GYRE_SUCCESS;
}

void gyre_ib_channels_close(struct gyre_ib_transport *ib)
{
    /* No peer may write into memory that is being freed. */
    for (int i = 0; i < ib->n_channels; i++)
        if (ib->channels[i].qp != NULL)
            gyre_ib_qp_stop(ib->verbs, ib->channels[i].qp);
    for (int i = 0; i < ib->n_channels; i++)
        if (ib->channels[i].qp != NULL)
            ib->verbs->destroy_qp(ib->channels[i].qp);
    for (int i = 0; i < ib->n_rails; i++) {
        if (ib->rails[i].fence != NULL) {
            gyre_ib_qp_stop(ib->verbs, ib->rails[i].fence);
            ib->verbs->destroy_qp(ib->rails[i].fence);
        }
        if (ib->rails[i].cq != NULL)
            ib->verbs->destroy_cq(ib->rails[i].cq);
        if (ib->rails[i].events != NULL)
            ib->verbs->destroy_comp_channel(ib->rails[i].events);
    }
    free(ib->channels);
    ib->channels = NULL;
    ib->n_channels = 0;
}
