/* SPDX-License-Identifier: Apache-2.0
 *
 * Completion queues, queue pairs, and what ranks tell each other to connect them. Blobs travel over
 * the authenticated bootstrap: keys and addresses of memory are worth as much as the memory.
 */
#include "transport/ib/ib_transport.h"

#include "core/base/log.h"
#include "core/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOB_MAGIC 0x67796962u /* and the byte order */
#define MAX_SENDS  1024

struct blob_rail {
    uint32_t mtu;
    uint32_t is_roce;
    uint32_t lid;
    uint32_t max_msg_bytes;
    uint32_t n_gids;
    struct {
        uint32_t index;
        uint32_t type;
        uint32_t vlan;
        uint8_t raw[16];
    } gids[GYRE_IB_PAIR_GIDS];
};

struct blob_header {
    uint32_t magic;
    uint32_t rank;
    uint32_t n_rails;
    uint32_t n_qps; /* per rail and peer */
    uint32_t n_fifos;
    uint32_t depth;
    uint32_t takes_boxes;
    uint32_t n_peers;
    uint64_t slots_stride;
    struct blob_rail rails[GYRE_IB_MAX_RAILS];
};

/* For one peer. */
struct blob_peer {
    uint32_t rank;
    uint32_t pad;
    uint64_t slots;
    uint64_t boxes;
    uint64_t credits;
    uint32_t slots_rkey[GYRE_IB_MAX_RAILS];
    uint32_t landing_rkey[GYRE_IB_MAX_RAILS];
    uint32_t qpn[GYRE_IB_MAX_LANES + 1]; /* the last one used is the control lane */
    uint32_t psn[GYRE_IB_MAX_LANES + 1];
};

/* ---- completion queues and queue pairs --------------------------------------------------------
 */

static uint32_t n_slots_of_peer(const struct gyre_ib_transport *ib)
{
    return gyre_ib_n_fifos(ib) * ib->config.spec.depth;
}

static void size_lane(const struct gyre_ib_transport *ib, struct gyre_ib_lane *lane)
{
    const uint32_t n_slots = n_slots_of_peer(ib);
    const uint32_t device_max = (uint32_t)lane->rail->attr.max_qp_wr;
    /* A slot takes a write and an imm; more only where a message is larger than the device sends.
     */
    uint32_t n_send = 2 * n_slots + 2 * GYRE_IB_BATCH;
    n_send = n_send > MAX_SENDS ? MAX_SENDS : n_send;
    lane->size.n_send = n_send > device_max ? device_max : n_send;
    lane->size.n_recv = n_slots + GYRE_IB_RECV_BATCH;
    lane->size.inline_bytes = GYRE_IB_BOX_BYTES;
}

static gyre_status open_cq(struct gyre_ib_transport *ib, struct gyre_ib_rail *rail)
{
    uint64_t n_cqe = 0;
    /* An error flushes everything that is posted: each work request may need its own entry. */
    for (int i = 0; i < ib->n_lanes; i++)
        if (ib->lanes[i].rail == rail)
            n_cqe += ib->lanes[i].size.n_send + ib->lanes[i].size.n_recv;
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

static gyre_status open_lane(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane)
{
    struct gyre_ib_rail *rail = lane->rail;
    struct gyre_ib_qp_path *path = &lane->path;
    path->port = rail->port.port;
    path->is_roce = rail->port.is_roce;
    path->traffic_class =
        (uint8_t)(lane->is_control && rail->port.is_roce ? ib->control_class : ib->traffic_class);
    path->service_level = (uint8_t)ib->service_level;
    path->pkey_index = (uint16_t)gyre_param_number(ib->config.params, GYRE_PARAM_IB_PKEY);
    path->timeout = (uint8_t)ib->timeout;
    path->retries = (uint8_t)ib->retries;
    path->local.lid = rail->port.lid;
    path->local.mtu = rail->port.active_mtu;
    if ((uint32_t)rail->attr.max_qp_wr < lane->size.n_recv)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%s: a queue pair holds %d requests, %u FIFOs of %u slots need %u; lower "
                         "GYRE_MAX_NCHANNELS",
                         rail->port.name, rail->attr.max_qp_wr, gyre_ib_n_fifos(ib),
                         ib->config.spec.depth, lane->size.n_recv);
    GYRE_TRY(gyre_ib_random_psn(&path->local.psn));
    GYRE_TRY(gyre_ib_qp_create(ib->verbs, rail->pd, rail->cq, path, IBV_ACCESS_REMOTE_WRITE,
                               &lane->size, &lane->qp));
    path->local.qpn = lane->qp->qp_num;
    return gyre_ib_post_receives(lane, lane->size.n_recv);
}

gyre_status gyre_ib_lanes_open(struct gyre_ib_transport *ib)
{
    const int n_qps = (int)gyre_param_number(ib->config.params, GYRE_PARAM_IB_QPS_PER_CONNECTION);
    if (ib->n_rails * n_qps > GYRE_IB_MAX_LANES)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "GYRE_IB_QPS_PER_CONNECTION=%d on %d rails is more than %d queue pairs a "
                         "connection",
                         n_qps, ib->n_rails, GYRE_IB_MAX_LANES);
    ib->lanes_per_peer = ib->n_rails * n_qps + 1;
    ib->n_lanes = ib->config.n_peers * ib->lanes_per_peer;
    ib->lanes = calloc((size_t)ib->n_lanes, sizeof(*ib->lanes));
    if (ib->lanes == NULL)
        return gyre_fail_errno(ENOMEM, "%d queue pairs", ib->n_lanes);
    for (int i = 0; i < ib->n_lanes; i++) {
        struct gyre_ib_lane *lane = &ib->lanes[i];
        const int nth = i % ib->lanes_per_peer;
        lane->id = (uint32_t)i;
        lane->peer = &ib->peers[i / ib->lanes_per_peer];
        lane->is_control = nth == ib->lanes_per_peer - 1;
        lane->rail = &ib->rails[lane->is_control ? 0 : nth / n_qps];
        size_lane(ib, lane);
        if (nth == 0)
            lane->peer->lanes = lane;
        if (lane->is_control)
            lane->peer->control = lane;
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
    /* All stop before the first is destroyed, so that none writes into memory that goes. */
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

/* ---- blobs ------------------------------------------------------------------------------------
 */

static void fill_rail(const struct gyre_ib_rail *rail, struct blob_rail *out)
{
    out->mtu = rail->port.active_mtu;
    out->is_roce = rail->port.is_roce;
    out->lid = rail->port.lid;
    out->max_msg_bytes = rail->port.max_msg_bytes;
    out->n_gids = (uint32_t)rail->n_gids;
    for (int i = 0; i < rail->n_gids; i++) {
        out->gids[i].index = rail->gids[i].index;
        out->gids[i].type = (uint32_t)rail->gids[i].type;
        out->gids[i].vlan = rail->gids[i].vlan;
        memcpy(out->gids[i].raw, rail->gids[i].raw, sizeof(out->gids[i].raw));
    }
}

static void fill_peer(const struct gyre_ib_transport *ib, int index, struct blob_peer *out)
{
    const struct gyre_ib_peer *peer = &ib->peers[index];
    out->rank = (uint32_t)peer->rank;
    out->slots = (uintptr_t)peer->recvs[0].fifo.slots;
    out->boxes = (uintptr_t)peer->recvs[0].boxes;
    out->credits = (uintptr_t)peer->credit_words;
    for (int i = 0; i < ib->n_rails; i++) {
        out->slots_rkey[i] = ib->rails[i].recv_slots->rkey;
        out->landing_rkey[i] = ib->rails[i].landing->rkey;
    }
    for (int i = 0; i < ib->lanes_per_peer; i++) {
        out->qpn[i] = peer->lanes[i].path.local.qpn;
        out->psn[i] = peer->lanes[i].path.local.psn;
    }
}

gyre_status gyre_ib_blob(const struct gyre_ib_transport *ib, void **blob_out, size_t *n_bytes_out)
{
    const size_t n_bytes =
        sizeof(struct blob_header) + (size_t)ib->config.n_peers * sizeof(struct blob_peer);
    struct blob_header *header = calloc(1, n_bytes);
    if (header == NULL)
        return gyre_fail_errno(ENOMEM, "ib: blob of %zu bytes", n_bytes);
    struct blob_peer *peers = (struct blob_peer *)(void *)(header + 1);
    *header = (struct blob_header){
        .magic = BLOB_MAGIC,
        .rank = (uint32_t)ib->config.rank,
        .n_rails = (uint32_t)ib->n_rails,
        .n_qps = (uint32_t)((ib->lanes_per_peer - 1) / ib->n_rails),
        .n_fifos = gyre_ib_n_fifos(ib),
        .depth = ib->config.spec.depth,
        .takes_boxes = ib->recv_gdr == GYRE_IB_GDR_NONE,
        .n_peers = (uint32_t)ib->config.n_peers,
        .slots_stride = ib->slots_stride,
    };
    for (int i = 0; i < ib->n_rails; i++)
        fill_rail(&ib->rails[i], &header->rails[i]);
    for (int i = 0; i < ib->config.n_peers; i++)
        fill_peer(ib, i, &peers[i]);
    *blob_out = header;
    *n_bytes_out = n_bytes;
    return GYRE_SUCCESS;
}

/* The peer's header and its part for this rank, checked; copies, because blobs are unaligned. */
static gyre_status read_blob(const struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                             const unsigned char *blob, size_t n_bytes,
                             struct blob_header *header_out, struct blob_peer *mine_out)
{
    if (n_bytes < sizeof(*header_out))
        return gyre_fail(GYRE_ERROR_REMOTE, "ib: rank %d told %zu bytes, not enough", peer->rank,
                         n_bytes);
    memcpy(header_out, blob, sizeof(*header_out));
    const struct blob_header *header = header_out;
    if (header->magic != BLOB_MAGIC || header->rank != (uint32_t)peer->rank ||
        header->n_rails < 1 || header->n_rails > GYRE_IB_MAX_RAILS ||
        header->n_peers > (uint32_t)ib->config.n_ranks ||
        n_bytes != sizeof(*header) + header->n_peers * sizeof(struct blob_peer))
        return gyre_fail(GYRE_ERROR_REMOTE, "ib: what rank %d told is not what this build expects",
                         peer->rank);
    const uint32_t n_qps = (uint32_t)((ib->lanes_per_peer - 1) / ib->n_rails);
    if (header->n_qps != n_qps || header->n_fifos != gyre_ib_n_fifos(ib) ||
        header->depth != ib->config.spec.depth)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "ib: rank %d has %u QPs a connection and %u FIFOs of %u slots, this rank "
                         "%u, %u and %u",
                         peer->rank, header->n_qps, header->n_fifos, header->depth, n_qps,
                         gyre_ib_n_fifos(ib), ib->config.spec.depth);
    for (uint32_t i = 0; i < header->n_peers; i++) {
        memcpy(mine_out, blob + sizeof(*header) + i * sizeof(*mine_out), sizeof(*mine_out));
        if (mine_out->rank == (uint32_t)ib->config.rank)
            return GYRE_SUCCESS;
    }
    return gyre_fail(GYRE_ERROR_REMOTE, "ib: rank %d has no connection to this rank", peer->rank);
}

/* ---- connecting -------------------------------------------------------------------------------
 */

static int read_gids(const struct blob_rail *rail, struct gyre_ib_gid_row *rows_out)
{
    const uint32_t n = rail->n_gids < GYRE_IB_PAIR_GIDS ? rail->n_gids : GYRE_IB_PAIR_GIDS;
    for (uint32_t i = 0; i < n; i++) {
        memset(&rows_out[i], 0, sizeof(rows_out[i]));
        rows_out[i].index = rail->gids[i].index;
        rows_out[i].type =
            rail->gids[i].type == GYRE_IB_GID_ROCE_V2 ? GYRE_IB_GID_ROCE_V2 : GYRE_IB_GID_ROCE_V1;
        rows_out[i].vlan = (uint16_t)rail->gids[i].vlan;
        memcpy(rows_out[i].raw, rail->gids[i].raw, sizeof(rows_out[i].raw));
    }
    return (int)n;
}

/* Which GIDs the two ends of a lane use; both ranks come to the same answer. */
static gyre_status pair_lane(const struct gyre_ib_transport *ib, struct gyre_ib_lane *lane,
                             const struct blob_rail *remote)
{
    struct gyre_ib_gid_row theirs[GYRE_IB_PAIR_GIDS];
    const struct gyre_ib_rail *rail = lane->rail;
    int mine_index = 0;
    int their_index = 0;
    if (remote->is_roce != (uint32_t)rail->port.is_roce)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "one end is RoCE, the other InfiniBand");
    lane->path.remote.mtu = (enum ibv_mtu)remote->mtu;
    lane->path.remote.lid = (uint16_t)remote->lid;
    if (!rail->port.is_roce)
        return GYRE_SUCCESS;
    const int n_theirs = read_gids(remote, theirs);
    if (ib->config.rank < lane->peer->rank)
        GYRE_TRY(gyre_ib_gid_pair(rail->gids, rail->n_gids, theirs, n_theirs, &mine_index,
                                  &their_index));
    else
        GYRE_TRY(gyre_ib_gid_pair(theirs, n_theirs, rail->gids, rail->n_gids, &their_index,
                                  &mine_index));
    lane->path.gid_index = (uint8_t)rail->gids[mine_index].index;
    lane->remote_gid_index = theirs[their_index].index;
    memcpy(lane->path.local.gid, rail->gids[mine_index].raw, sizeof(lane->path.local.gid));
    memcpy(lane->path.remote.gid, theirs[their_index].raw, sizeof(lane->path.remote.gid));
    return GYRE_SUCCESS;
}

static gyre_status connect_lane(struct gyre_ib_transport *ib, struct gyre_ib_lane *lane, int nth,
                                const struct blob_header *header, const struct blob_peer *theirs,
                                uint64_t deadline_ns)
{
    const int rail_index = (int)(lane->rail - ib->rails);
    lane->path.remote.qpn = theirs->qpn[nth];
    lane->path.remote.psn = theirs->psn[nth] & 0xffffff;
    GYRE_TRY(pair_lane(ib, lane, &header->rails[rail_index]));
    const uint32_t remote_max_bytes = header->rails[rail_index].max_msg_bytes;
    lane->max_msg_bytes = remote_max_bytes < lane->rail->port.max_msg_bytes
                              ? remote_max_bytes
                              : lane->rail->port.max_msg_bytes;
    if (lane->max_msg_bytes < 4096)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "messages of at most %u bytes",
                         lane->max_msg_bytes);
    GYRE_TRY(gyre_ib_qp_connect(ib->verbs, lane->qp, &lane->path, deadline_ns));
    if (nth == 0 || lane->is_control) {
        char words[320];
        GYRE_INFO(NET, "NET/IB : %s QP %s", lane->is_control ? "control" : "data",
                  gyre_ib_lane_to_text(ib, lane, words, sizeof(words)));
    }
    return GYRE_SUCCESS;
}

static gyre_status connect_peer(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                                const struct blob_header *header, const struct blob_peer *theirs,
                                uint64_t deadline_ns)
{
    const int n_qps = (ib->lanes_per_peer - 1) / ib->n_rails;
    const int n_rails = (int)header->n_rails < ib->n_rails ? (int)header->n_rails : ib->n_rails;
    peer->n_lanes = n_rails * n_qps;
    peer->remote = (struct gyre_ib_remote){.slots = theirs->slots,
                                           .slots_stride = header->slots_stride,
                                           .boxes = theirs->boxes,
                                           .credits = theirs->credits,
                                           .takes_boxes = header->takes_boxes != 0};
    memcpy(peer->remote.slots_rkey, theirs->slots_rkey, sizeof(theirs->slots_rkey));
    memcpy(peer->remote.landing_rkey, theirs->landing_rkey, sizeof(theirs->landing_rkey));
    for (int i = 0; i < peer->n_lanes; i++)
        GYRE_TRY(connect_lane(ib, &peer->lanes[i], i, header, theirs, deadline_ns));
    /* The peer's control lane comes after its own data lanes, of which it may have more. */
    return connect_lane(ib, peer->control, (int)header->n_rails * n_qps, header, theirs,
                        deadline_ns);
}

gyre_status gyre_ib_lanes_connect(struct gyre_ib_transport *ib, const void *blobs,
                                  const size_t *offsets, uint64_t deadline_ns)
{
    for (int i = 0; i < ib->config.n_peers; i++) {
        struct gyre_ib_peer *peer = &ib->peers[i];
        const unsigned char *blob = (const unsigned char *)blobs + offsets[peer->rank];
        const size_t n_bytes = offsets[peer->rank + 1] - offsets[peer->rank];
        struct blob_header header;
        struct blob_peer theirs;
        gyre_status status = read_blob(ib, peer, blob, n_bytes, &header, &theirs);
        if (status == GYRE_SUCCESS)
            status = connect_peer(ib, peer, &header, &theirs, deadline_ns);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "to rank %d (%s) over ib", peer->rank,
                                     ib->config.infos[peer->rank].host_name);
    }
    return GYRE_SUCCESS;
}
