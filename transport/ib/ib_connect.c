/* SPDX-License-Identifier: Apache-2.0
 *
 * The blobs travel over the authenticated bootstrap, because a process that knows keys and
 * addresses of memory can write to it.
 */
#include "transport/ib/ib_path.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOB_MAGIC  0x67796962u /* differs with another byte order */

#define QP_SLICE_NS 500000000ULL

struct blob_rail {
    uint32_t mtu;
    uint32_t is_roce;
    uint32_t lid;
    uint32_t max_msg_bytes;
    uint32_t index; /* in the rank's scan: ports of one index are cabled together */
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
    uint32_t n_qps;
    uint32_t depth;
    uint32_t can_move;
    uint32_t n_peers;
    uint32_t cm_port; /* 0 = connected by these blobs alone */
    struct gyre_sock_list sockets;
    struct blob_rail rails[GYRE_IB_MAX_RAILS];
};

_Static_assert(sizeof(struct blob_header) % 8 == 0, "peers with 64-bit words follow it");

struct blob_peer {
    uint32_t rank;
    uint32_t n_fifos;
    uint64_t slots_stride;
    uint64_t line_stride; /* 0: no slots of LL */
    struct gyre_ib_remote memory;
    uint32_t qpn[GYRE_IB_MAX_QPS]; /* by rail: data channels, then control */
    uint32_t psn[GYRE_IB_MAX_QPS];
    uint8_t cm_token[GYRE_IB_CM_TOKEN_BYTES]; /* for the peer's connection request */
};

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
        .n_qps = (uint32_t)ib->channels_per_rail - 1,
        .depth = ib->config.spec.depth,
        .can_move = ib->can_move,
        .n_peers = (uint32_t)ib->config.n_peers,
        .cm_port = gyre_ib_cm_port(ib->cm),
        .sockets = ib->socket_list,
    };
    for (int i = 0; i < ib->n_rails; i++) {
        const struct gyre_ib_rail *rail = &ib->rails[i];
        struct blob_rail *out = &header->rails[i];
        out->mtu = rail->port.active_mtu;
        out->is_roce = rail->port.is_roce;
        out->lid = rail->port.lid;
        out->max_msg_bytes = rail->port.max_msg_bytes;
        out->index = (uint32_t)rail->index;
        out->n_gids = (uint32_t)rail->n_gids;
        for (int j = 0; j < rail->n_gids; j++) {
            out->gids[j].index = rail->gids[j].index;
            out->gids[j].type = (uint32_t)rail->gids[j].type;
            out->gids[j].vlan = rail->gids[j].vlan;
            memcpy(out->gids[j].raw, rail->gids[j].raw, sizeof(out->gids[j].raw));
        }
    }
    for (int i = 0; i < ib->config.n_peers; i++) {
        struct blob_peer *out = &peers[i];
        const struct gyre_ib_peer *peer = &ib->peers[i];
        out->rank = (uint32_t)peer->rank;
        out->n_fifos = peer->size.n_fifos;
        out->slots_stride = peer->slots_stride;
        out->line_stride = ib->line_stride;
        out->memory = (struct gyre_ib_remote){
            .slots = (uintptr_t)peer->recvs[0].fifo.slots,
            .boxes = (uintptr_t)peer->recvs[0].boxes,
            .lines = (uintptr_t)peer->recvs[0].lines.slots,
            .credits = (uintptr_t)peer->credit_words,
            .takes_boxes = ib->recv_gdr == GYRE_IB_GDR_NONE,
        };
        for (int j = 0; j < ib->n_rails; j++) {
            out->memory.slots_rkey[j] = ib->rails[j].recv_slots->rkey;
            out->memory.lines_rkey[j] = ib->recv_lines != NULL ? ib->rails[j].recv_lines->rkey : 0;
            out->memory.words_rkey[j] = ib->rails[j].recv_words->rkey;
        }
        for (int j = 0; j < ib->channels_per_peer; j++) {
            out->qpn[j] = peer->channels[j].path.local.qpn;
            out->psn[j] = peer->channels[j].path.local.psn;
        }
        memcpy(out->cm_token, peer->cm_token, sizeof(out->cm_token));
    }
    *blob_out = header;
    *n_bytes_out = n_bytes;
    return GYRE_SUCCESS;
}

/* Blobs are not aligned. */
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
    const uint32_t n_qps = (uint32_t)ib->channels_per_rail - 1;
    if (header->n_qps != n_qps || header->depth != ib->config.spec.depth)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "ib: rank %d has %u QPs a connection and FIFOs of %u slots, this rank %u "
                         "and %u",
                         peer->rank, header->n_qps, header->depth, n_qps, ib->config.spec.depth);
    bool is_twice = false;
    for (uint32_t i = 0; i < header->n_rails; i++)
        for (uint32_t j = 0; j < i; j++)
            is_twice = is_twice || header->rails[i].index == header->rails[j].index;
    if (header->n_rails * n_qps > GYRE_IB_MAX_CHANNELS || is_twice)
        return gyre_fail(GYRE_ERROR_REMOTE, "ib: rank %d told of %u rails with %u QPs each",
                         peer->rank, header->n_rails, n_qps);
    if ((header->cm_port != 0) != (ib->cm != NULL))
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "ib: GYRE_IB_CONNECT=rdmacm here or on rank %d, not on both", peer->rank);
    for (uint32_t i = 0; i < header->n_peers; i++) {
        memcpy(mine_out, blob + sizeof(*header) + i * sizeof(*mine_out), sizeof(*mine_out));
        if (mine_out->rank != (uint32_t)ib->config.rank)
            continue;
        if (mine_out->n_fifos != peer->size.n_fifos || mine_out->slots_stride != peer->slots_stride)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "ib: rank %d has %u FIFOs of %llu bytes for this rank, expected %u "
                             "of %llu",
                             peer->rank, mine_out->n_fifos,
                             (unsigned long long)mine_out->slots_stride, peer->size.n_fifos,
                             (unsigned long long)peer->slots_stride);
        if (mine_out->line_stride != ib->line_stride && mine_out->line_stride != 0 &&
            ib->line_stride != 0)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "ib: rank %d has lines of %llu bytes a FIFO for this rank, expected "
                             "%llu",
                             peer->rank, (unsigned long long)mine_out->line_stride,
                             (unsigned long long)ib->line_stride);
        return GYRE_SUCCESS;
    }
    return gyre_fail(GYRE_ERROR_REMOTE, "ib: rank %d has no connection to this rank", peer->rank);
}

/* Both ranks choose alike. */
static gyre_status pair_channel(const struct gyre_ib_transport *ib, struct gyre_ib_channel *channel,
                                const struct blob_rail *remote)
{
    struct gyre_ib_gid_row theirs[GYRE_IB_PAIR_GIDS];
    const struct gyre_ib_rail *rail = channel->rail;
    int mine_index = 0;
    int their_index = 0;
    if (remote->is_roce != (uint32_t)rail->port.is_roce)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "one end is RoCE, the other InfiniBand");
    channel->path.remote.mtu = (enum ibv_mtu)remote->mtu;
    channel->path.remote.lid = (uint16_t)remote->lid;
    if (!rail->port.is_roce)
        return GYRE_SUCCESS;
    const int n_theirs = (int)gyre_min_u32(remote->n_gids, GYRE_IB_PAIR_GIDS);
    for (int i = 0; i < n_theirs; i++) {
        memset(&theirs[i], 0, sizeof(theirs[i]));
        theirs[i].index = remote->gids[i].index;
        theirs[i].type =
            remote->gids[i].type == GYRE_IB_GID_ROCE_V2 ? GYRE_IB_GID_ROCE_V2 : GYRE_IB_GID_ROCE_V1;
        theirs[i].vlan = (uint16_t)remote->gids[i].vlan;
        memcpy(theirs[i].raw, remote->gids[i].raw, sizeof(theirs[i].raw));
    }
    if (ib->config.rank < channel->peer->rank)
        GYRE_TRY(gyre_ib_gid_pair(rail->gids, rail->n_gids, theirs, n_theirs, &mine_index,
                                  &their_index));
    else
        GYRE_TRY(gyre_ib_gid_pair(theirs, n_theirs, rail->gids, rail->n_gids, &their_index,
                                  &mine_index));
    channel->gid_row = mine_index;
    channel->path.gid_index = (uint8_t)rail->gids[mine_index].index;
    channel->remote_gid_index = theirs[their_index].index;
    memcpy(channel->path.local.gid, rail->gids[mine_index].raw, sizeof(channel->path.local.gid));
    memcpy(channel->path.remote.gid, theirs[their_index].raw, sizeof(channel->path.remote.gid));
    return GYRE_SUCCESS;
}

static gyre_status connect_channel(struct gyre_ib_transport *ib, struct gyre_ib_channel *channel,
                                   const struct blob_header *header, const struct blob_peer *theirs,
                                   bool is_used, uint64_t deadline_ns)
{
    const struct blob_rail *remote = &header->rails[channel->remote_rail];
    channel->path.remote.qpn = theirs->qpn[channel->remote_nth];
    channel->path.remote.psn = theirs->psn[channel->remote_nth] & 0xffffff;
    GYRE_TRY(pair_channel(ib, channel, remote));
    channel->max_msg_bytes = gyre_min_u32(remote->max_msg_bytes, channel->rail->port.max_msg_bytes);
    if (channel->max_msg_bytes < 4096)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "messages of at most %u bytes",
                         channel->max_msg_bytes);
    if (!is_used) /* a control channel until its rail takes over */
        return GYRE_SUCCESS;
    if (ib->cm != NULL)
        return gyre_ib_cm_add(ib->cm, channel, header->cm_port, theirs->cm_token);
    /* Gives up if a rank failed meanwhile. */
    for (;;) {
        const uint64_t slice_ns = gyre_min_u64(deadline_ns, gyre_now_ns() + QP_SLICE_NS);
        const gyre_status status =
            gyre_ib_qp_connect(ib->verbs, channel->qp, &channel->path, slice_ns);
        if (status != GYRE_ERROR_TIMEOUT || gyre_now_ns() >= deadline_ns)
            return status;
        GYRE_TRY(gyre_transport_check(&ib->config));
    }
}

static gyre_status connect_peer(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                                const struct blob_header *header, const struct blob_peer *theirs,
                                uint64_t deadline_ns)
{
    struct gyre_ib_rail_pairs pairs;
    const int n_qps = ib->channels_per_rail - 1;
    struct gyre_ib_rail_list own = {.n = ib->n_rails};
    struct gyre_ib_rail_list others = {.n = (int)header->n_rails};
    for (int i = 0; i < own.n; i++)
        own.indices[i] = (uint32_t)ib->rails[i].index;
    for (int i = 0; i < others.n; i++)
        others.indices[i] = header->rails[i].index;
    const int cross = (int)gyre_param_number(ib->config.params, GYRE_PARAM_CROSS_NIC);
    GYRE_TRY(gyre_ib_pair_rails(
        &own, &others, cross, gyre_param_called(ib->config.params, GYRE_PARAM_CROSS_NIC), &pairs));
    for (int i = 0; i < pairs.n; i++)
        if (own.indices[pairs.mine[i]] != others.indices[pairs.theirs[i]])
            GYRE_INFO(NET, "NET/IB : rail %u of this rank and rail %u of rank %d are connected",
                      own.indices[pairs.mine[i]], others.indices[pairs.theirs[i]], peer->rank);
    peer->remote = theirs->memory;
    peer->move.is_possible = ib->can_move && header->can_move != 0;
    GYRE_TRY(gyre_ib_socket_open(ib, peer, &header->sockets));
    peer->move.n_pairs = pairs.n;
    for (int pair = 0; pair < pairs.n; pair++) {
        peer->move.pairs[pair].mine = pairs.mine[pair];
        peer->move.pairs[pair].theirs = pairs.theirs[pair];
        peer->move.used |= (uint8_t)(1U << pair);
        for (int i = 0; i < n_qps + 1; i++) {
            const bool is_used = pair == 0 || i < n_qps;
            struct gyre_ib_channel *channel =
                &peer->channels[pairs.mine[pair] * ib->channels_per_rail + i];
            channel->remote_rail = pairs.theirs[pair];
            channel->remote_nth = pairs.theirs[pair] * ib->channels_per_rail + i;
            if (!channel->is_control)
                peer->used[peer->n_used++] = channel;
            else if (is_used)
                peer->control = channel;
            GYRE_TRY(connect_channel(ib, channel, header, theirs, is_used, deadline_ns));
            peer->move.pairs[pair].remote = channel->path.remote;
            peer->move.pairs[pair].gid_row = channel->gid_row;
        }
    }
    snprintf(peer->words, sizeof(peer->words), "NET/IB/%d%s", peer->used[0]->rail->index,
             ib->recv_gdr != GYRE_IB_GDR_NONE ? "/GDRDMA" : "");
    return GYRE_SUCCESS;
}

gyre_status gyre_ib_channels_connect(struct gyre_ib_transport *ib, const void *blobs,
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
    if (ib->cm != NULL)
        GYRE_TRY(gyre_ib_cm_connect(ib->cm, deadline_ns));
    for (int i = 0; i < 2 * ib->config.n_peers; i++) {
        const struct gyre_ib_peer *peer = &ib->peers[i / 2];
        const struct gyre_ib_channel *channel = i % 2 == 0 ? peer->used[0] : peer->control;
        char words[320];
        GYRE_INFO(NET, "NET/IB : %s QP %s%s", channel->is_control ? "control" : "data",
                  gyre_ib_channel_to_text(ib, channel, words, sizeof(words)),
                  ib->cm != NULL ? ", by rdma_cm" : "");
    }
    return GYRE_SUCCESS;
}
