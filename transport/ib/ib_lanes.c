/* SPDX-License-Identifier: Apache-2.0
 *
 * Completion queues and queue pairs. For each peer and rail there are GYRE_IB_QPS_PER_CONNECTION
 * data lanes and a control lane. The peer's blob decides which of them are used.
 */
#include "transport/ib/ib_transport.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SENDS 1024

static uint32_t n_slots_of(const struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer)
{
    return peer->size.n_fifos * ib->config.spec.depth;
}

static void size_lane(const struct gyre_ib_transport *ib, struct gyre_ib_lane *lane)
{
    const uint32_t n_slots = n_slots_of(ib, lane->peer);
    const uint32_t device_max = (uint32_t)lane->rail->attr.max_qp_wr;
    /* A slot takes two sends: a write and an imm. It takes more only if it is larger than the
     * device's largest message. */
    uint32_t n_send = 2 * n_slots + 2 * GYRE_IB_BATCH;
    /* Slots of LL take a send each. The limit below holds anyway, and slots wait for room. */
    n_send += ib->line_stride > 0 ? n_slots : 0;
    n_send = n_send > MAX_SENDS ? MAX_SENDS : n_send;
    lane->size.n_send = n_send > device_max ? device_max : n_send;
    /* Credit of LL comes by imms of its own, on the control lane. */
    lane->size.n_recv = n_slots + GYRE_IB_RECV_BATCH;
    if (lane->is_control && ib->line_stride > 0)
        lane->size.n_recv += n_slots;
    lane->size.inline_bytes = GYRE_IB_BOX_BYTES;
}

static gyre_status open_cq(struct gyre_ib_transport *ib, struct gyre_ib_rail *rail)
{
    uint64_t n_cqe = 0;
    /* After an error the device flushes all posted work requests, with a completion for each. */
    for (int i = 0; i < ib->n_lanes; i++)
        if (ib->lanes[i].rail == rail)
            n_cqe += ib->lanes[i].size.n_send + ib->lanes[i].size.n_recv;
    n_cqe += ib->fence.is_needed ? 1 : 0;
    if (n_cqe > (uint64_t)rail->attr.max_cqe)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%s: %llu completions can be under way to %d peers, a queue of this "
                         "device holds %d; lower GYRE_MAX_NCHANNELS or GYRE_IB_QPS_PER_CONNECTION",
                         rail->port.name, (unsigned long long)n_cqe, ib->config.n_peers,
                         rail->attr.max_cqe);
    rail->n_cqe = (int)n_cqe;
    rail->channel = ib->verbs->create_comp_channel(rail->context);
    if (rail->channel == NULL)
        return gyre_fail_errno(errno, "ibv_create_comp_channel(%s)", rail->port.name);
    rail->cq = ib->verbs->create_cq(rail->context, rail->n_cqe, NULL, rail->channel, 0);
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

static gyre_status open_lane(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane)
{
    struct gyre_ib_rail *rail = lane->rail;
    struct gyre_ib_qp_path *path = &lane->path;
    GYRE_TRY(gyre_ib_path_begin(ib, rail, path));
    if (lane->is_control && rail->port.is_roce)
        path->traffic_class = (uint8_t)ib->control_class;
    if ((uint32_t)rail->attr.max_qp_wr < lane->size.n_recv)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%s: a queue pair holds %d requests, %u FIFOs of %u slots need %u; lower "
                         "GYRE_MAX_NCHANNELS",
                         rail->port.name, rail->attr.max_qp_wr, lane->peer->size.n_fifos,
                         ib->config.spec.depth, lane->size.n_recv);
    GYRE_TRY(gyre_ib_qp_create(ib->verbs, rail->pd, rail->cq, path, IBV_ACCESS_REMOTE_WRITE,
                               &lane->size, &lane->qp));
    path->local.qpn = lane->qp->qp_num;
    return gyre_ib_post_receives(lane, lane->size.n_recv);
}

gyre_status gyre_ib_lanes_open(struct gyre_ib_transport *ib)
{
    const char *name = gyre_param_called(ib->config.params, GYRE_PARAM_IB_QPS_PER_CONNECTION);
    const int n_qps = (int)gyre_param_number(ib->config.params, GYRE_PARAM_IB_QPS_PER_CONNECTION);
    if (ib->n_rails * n_qps > GYRE_IB_MAX_LANES)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%s=%d on %d rails is more than %d queue pairs a connection", name, n_qps,
                         ib->n_rails, GYRE_IB_MAX_LANES);
    ib->lanes_per_rail = n_qps + 1;
    ib->lanes_per_peer = ib->n_rails * ib->lanes_per_rail;
    ib->n_lanes = ib->config.n_peers * ib->lanes_per_peer;
    if (ib->n_lanes > GYRE_IB_MAX_ALL_LANES)
        return gyre_fail(
            GYRE_ERROR_UNSUPPORTED,
            "%d peers over %d rails need %d queue pairs of this rank, at most %d can be "
            "told apart; lower %s=%d or use fewer ports (%s)",
            ib->config.n_peers, ib->n_rails, ib->n_lanes, GYRE_IB_MAX_ALL_LANES, name, n_qps,
            gyre_param_called(ib->config.params, GYRE_PARAM_IB_HCA));
    ib->lanes = calloc((size_t)ib->n_lanes, sizeof(*ib->lanes));
    if (ib->lanes == NULL)
        return gyre_fail_errno(ENOMEM, "%d queue pairs", ib->n_lanes);
    for (int i = 0; i < ib->n_lanes; i++) {
        struct gyre_ib_lane *lane = &ib->lanes[i];
        const int nth = i % ib->lanes_per_peer;
        lane->id = (uint32_t)i;
        lane->peer = &ib->peers[i / ib->lanes_per_peer];
        lane->is_control = nth % ib->lanes_per_rail == n_qps;
        lane->rail = &ib->rails[nth / ib->lanes_per_rail];
        size_lane(ib, lane);
        if (nth == 0)
            lane->peer->lanes = lane;
    }
    for (int i = 0; i < ib->n_rails; i++)
        GYRE_TRY(open_cq(ib, &ib->rails[i]));
    for (int i = 0; i < ib->n_lanes; i++) {
        const gyre_status status = open_lane(ib, &ib->lanes[i]);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "NET/IB %s:%u", ib->lanes[i].rail->port.name,
                                     ib->lanes[i].rail->port.port);
    }
    return GYRE_SUCCESS;
}

void gyre_ib_lanes_close(struct gyre_ib_transport *ib)
{
    /* All queue pairs stop before the first is destroyed, so that no peer writes into memory that
     * is about to be freed. */
    for (int i = 0; i < ib->n_lanes; i++)
        if (ib->lanes[i].qp != NULL)
            gyre_ib_qp_stop(ib->verbs, ib->lanes[i].qp);
    for (int i = 0; i < ib->n_lanes; i++)
        if (ib->lanes[i].qp != NULL)
            ib->verbs->destroy_qp(ib->lanes[i].qp);
    for (int i = 0; i < ib->n_rails; i++) {
        if (ib->rails[i].cq != NULL)
            ib->verbs->destroy_cq(ib->rails[i].cq);
        if (ib->rails[i].channel != NULL)
            ib->verbs->destroy_comp_channel(ib->rails[i].channel);
    }
    free(ib->lanes);
    ib->lanes = NULL;
    ib->n_lanes = 0;
}
