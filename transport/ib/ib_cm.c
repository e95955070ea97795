/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma_cm (GYRE_IB_CONNECT=rdmacm) gives attributes to the transport's queue pairs, for fabrics
 * whose administrators control connections through it.
 *
 * The higher rank of a pair connects, once for each channel, and proves its rank by a token from
 * the peer's blob, which only authenticated ranks have.
 */
#include "transport/ib/ib_transport.h"

#ifdef GYRE_WITH_RDMACM

#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define RESOLVE_MS 4000
#define CALL_MAGIC 0x6779636du

struct call {
    uint32_t magic;
    uint32_t rank; /* that connects */
    uint32_t nth;  /* among the accepting rank's channels to it */
    uint8_t token[GYRE_IB_CM_TOKEN_BYTES];
};

GYRE_STATIC_ASSERT(sizeof(struct call) <= 56, "what a call of rdma_cm carries");

struct conn {
    struct gyre_ib_channel *channel;
    struct rdma_cm_id *id; /* NULL: no request yet */
    uint32_t port;
    uint8_t token[GYRE_IB_CM_TOKEN_BYTES];
};

struct gyre_ib_cm {
    struct gyre_ib_transport *ib;
    const struct gyre_rdmacm *api;
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener;
    struct conn *conns; /* by channel */
    int n_connected;
    int n_conns;
};

static gyre_status fail_step(const struct conn *conn, const char *step, int error_number)
{
    char local[48];
    char remote[48];
    const struct gyre_ib_qp_path *path = &conn->channel->path;
    return gyre_fail_errno(error_number, "%s(%s -> %s port %u, qpn 0x%x) to rank %d: %s", step,
                           gyre_ib_gid_to_text(path->local.gid, local, sizeof(local)),
                           gyre_ib_gid_to_text(path->remote.gid, remote, sizeof(remote)),
                           conn->port, path->local.qpn, conn->channel->peer->rank,
                           gyre_ib_rtr_hint(error_number));
}

static void to_sockaddr(const uint8_t gid[16], uint32_t port, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof(*out));
    if (gyre_ib_gid_classify(gid) == GYRE_IB_GID_IPV4) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)out;
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        memcpy(&v4->sin_addr, gid + 12, sizeof(v4->sin_addr));
    } else {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)out;
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        memcpy(&v6->sin6_addr, gid, sizeof(v6->sin6_addr));
    }
}

uint32_t gyre_ib_cm_port(const struct gyre_ib_cm *cm)
{
    return cm == NULL ? 0 : ntohs(cm->api->get_src_port(cm->listener));
}

gyre_status gyre_ib_cm_open(struct gyre_ib_transport *ib)
{
    const struct gyre_rdmacm *api;
    /* IPv6's wildcard takes IPv4 as well. */
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    for (int i = 0; i < ib->n_rails; i++)
        if (!ib->rails[i].port.is_roce)
            return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                             "GYRE_IB_CONNECT=rdmacm needs RoCE, where a GID is an address; %s:%u "
                             "is InfiniBand",
                             ib->rails[i].port.name, ib->rails[i].port.port);
    GYRE_TRY(gyre_rdmacm_load(&api));
    struct gyre_ib_cm *cm = calloc(1, sizeof(*cm));
    struct conn *conns = calloc((size_t)ib->n_channels, sizeof(*conns));
    if (cm == NULL || conns == NULL) {
        free(cm);
        free(conns);
        return gyre_fail_errno(ENOMEM, "rdma_cm: %d queue pairs", ib->n_channels);
    }
    *cm = (struct gyre_ib_cm){.ib = ib, .api = api, .conns = conns};
    ib->cm = cm;
    cm->events = api->create_event_channel();
    if (cm->events == NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "GYRE_IB_CONNECT=rdmacm: rdma_create_event_channel: %s (modprobe rdma_ucm "
                         "makes /dev/infiniband/rdma_cm)",
                         gyre_text_error(errno));
    const int flags = fcntl(cm->events->fd, F_GETFL);
    if (flags < 0 || fcntl(cm->events->fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return gyre_fail_errno(errno, "fcntl(O_NONBLOCK)");
    if (api->create_id(cm->events, &cm->listener, NULL, RDMA_PS_TCP) != 0)
        return gyre_fail_errno(errno, "rdma_create_id");
    if (api->bind_addr(cm->listener, (struct sockaddr *)(void *)&any) != 0)
        return gyre_fail_errno(errno, "rdma_bind_addr");
    if (api->listen(cm->listener, cm->ib->n_channels) != 0)
        return gyre_fail_errno(errno, "rdma_listen");
    for (int i = 0; i < ib->config.n_peers; i++)
        GYRE_TRY(gyre_random_bytes(ib->peers[i].cm_token, sizeof(ib->peers[i].cm_token)));
    return GYRE_SUCCESS;
}

void gyre_ib_cm_close(struct gyre_ib_cm *cm)
{
    if (cm == NULL)
        return;
    for (int i = 0; i < cm->ib->config.n_peers * cm->ib->channels_per_peer; i++)
        if (cm->conns[i].id != NULL)
            cm->api->destroy_id(cm->conns[i].id);
    if (cm->listener != NULL)
        cm->api->destroy_id(cm->listener);
    if (cm->events != NULL)
        cm->api->destroy_event_channel(cm->events);
    free(cm->conns);
    free(cm);
}

gyre_status gyre_ib_cm_add(struct gyre_ib_cm *cm, struct gyre_ib_channel *channel, uint32_t port,
                           const uint8_t *token)
{
    struct conn *conn = &cm->conns[channel->id];
    const uint8_t *const gids[] = {channel->path.local.gid, channel->path.remote.gid};
    for (int i = 0; i < 2; i++)
        if (gyre_ib_gid_classify(gids[i]) == GYRE_IB_GID_LINK_LOCAL)
            return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                             "GYRE_IB_CONNECT=rdmacm does not route link-local GIDs; give the "
                             "interfaces addresses of one subnet");
    conn->channel = channel;
    conn->port = port;
    memcpy(conn->token, token, sizeof(conn->token));
    cm->n_conns++;
    return GYRE_SUCCESS;
}

/* The user sets the MTU (the smaller one of both), traffic class and timers. */
static gyre_status move_to(const struct gyre_ib_cm *cm, struct conn *conn, enum ibv_qp_state state)
{
    const struct gyre_ib_qp_path *path = &conn->channel->path;
    struct ibv_qp_attr attr;
    int mask = 0;
    memset(&attr, 0, sizeof(attr));
    attr.qp_state = state;
    if (cm->api->init_qp_attr(conn->id, &attr, &mask) != 0)
        return fail_step(conn, "rdma_init_qp_attr", errno);
    if (state == IBV_QPS_RTR) {
        const enum ibv_mtu most =
            path->local.mtu < path->remote.mtu ? path->local.mtu : path->remote.mtu;
        attr.path_mtu = attr.path_mtu < most ? attr.path_mtu : most;
        attr.ah_attr.grh.traffic_class = path->traffic_class;
    } else {
        attr.timeout = path->timeout;
        attr.retry_cnt = path->retries;
    }
    const int error = cm->ib->verbs->modify_qp(conn->channel->qp, &attr, mask);
    if (error != 0)
        return fail_step(conn,
                         state == IBV_QPS_RTR ? "ibv_modify_qp(RTR by rdma_cm"
                                              : "ibv_modify_qp(RTS by rdma_cm",
                         error);
    return GYRE_SUCCESS;
}

static struct rdma_conn_param make_param(const struct conn *conn, const struct call *call)
{
    return (struct rdma_conn_param){
        .private_data = call,
        .private_data_len = call == NULL ? 0 : sizeof(*call),
        .responder_resources = 1,
        .initiator_depth = 1,
        .retry_count = conn->channel->path.retries,
        .rnr_retry_count = 6,
        .qp_num = conn->channel->path.local.qpn,
    };
}

/* NULL: not from a rank of this job. */
static struct conn *find_called(struct gyre_ib_cm *cm, const struct rdma_conn_param *param)
{
    struct call call;
    if (param->private_data == NULL || param->private_data_len < sizeof(call))
        return NULL;
    memcpy(&call, param->private_data, sizeof(call));
    for (int i = 0; i < cm->ib->n_channels; i++) {
        struct conn *conn = &cm->conns[i];
        if (conn->channel == NULL || conn->id != NULL || call.magic != CALL_MAGIC ||
            conn->channel->peer->rank != (int)call.rank || (int)call.rank < cm->ib->config.rank ||
            conn->channel - conn->channel->peer->channels != (ptrdiff_t)call.nth ||
            conn->channel->path.remote.qpn != param->qp_num)
            continue;
        return memcmp(call.token, conn->channel->peer->cm_token, sizeof(call.token)) == 0 ? conn
                                                                                          : NULL;
    }
    return NULL;
}

static gyre_status on_event(struct gyre_ib_cm *cm, const struct rdma_cm_event *event)
{
    struct conn *conn = event->id->context;
    switch (event->event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST: {
        conn = find_called(cm, &event->param.conn);
        if (conn == NULL) {
            GYRE_INFO(NET, "NET/IB : rdma_cm: a call of a stranger is rejected");
            cm->api->reject(event->id, NULL, 0);
            return GYRE_SUCCESS;
        }
        conn->id = event->id;
        conn->id->context = conn;
        GYRE_TRY(move_to(cm, conn, IBV_QPS_RTR));
        GYRE_TRY(move_to(cm, conn, IBV_QPS_RTS));
        struct rdma_conn_param param = make_param(conn, NULL);
        if (cm->api->accept(conn->id, &param) != 0)
            return fail_step(conn, "rdma_accept", errno);
        return GYRE_SUCCESS;
    }
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (cm->api->resolve_route(event->id, RESOLVE_MS) != 0)
            return fail_step(conn, "rdma_resolve_route", errno);
        return GYRE_SUCCESS;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: {
        struct call call = {.magic = CALL_MAGIC,
                            .rank = (uint32_t)cm->ib->config.rank,
                            .nth = (uint32_t)conn->channel->remote_nth};
        memcpy(call.token, conn->token, sizeof(call.token));
        struct rdma_conn_param param = make_param(conn, &call);
        if (cm->api->connect(conn->id, &param) != 0)
            return fail_step(conn, "rdma_connect", errno);
        return GYRE_SUCCESS;
    }
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
        GYRE_TRY(move_to(cm, conn, IBV_QPS_RTR));
        GYRE_TRY(move_to(cm, conn, IBV_QPS_RTS));
        if (cm->api->establish(conn->id) != 0)
            return fail_step(conn, "rdma_establish", errno);
        cm->n_connected++;
        return GYRE_SUCCESS;
    case RDMA_CM_EVENT_ESTABLISHED:
        cm->n_connected++;
        return GYRE_SUCCESS;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
        /* Negative: an errno. Positive: the peer's reason. */
        return fail_step(conn, cm->api->event_str(event->event),
                         event->status < 0 ? -event->status : ECONNREFUSED);
    default:
        return GYRE_SUCCESS;
    }
}

static gyre_status take_event(struct gyre_ib_cm *cm)
{
    struct rdma_cm_event *event;
    if (cm->api->get_cm_event(cm->events, &event) != 0)
        return errno == EAGAIN || errno == EINTR ? GYRE_SUCCESS
                                                 : gyre_fail_errno(errno, "rdma_get_cm_event");
    struct rdma_cm_id *unowned = NULL;
    const gyre_status status = on_event(cm, event);
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && event->id->context == NULL)
        unowned = event->id;
    cm->api->ack_cm_event(event);
    /* rdma_destroy_id() waits for acknowledgement of the id's events. */
    if (unowned != NULL)
        cm->api->destroy_id(unowned);
    return status;
}

gyre_status gyre_ib_cm_connect(struct gyre_ib_cm *cm, uint64_t deadline_ns)
{
    for (int i = 0; i < cm->ib->n_channels; i++) {
        struct conn *conn = &cm->conns[i];
        if (conn->channel == NULL || conn->channel->peer->rank > cm->ib->config.rank)
            continue;
        struct sockaddr_storage from, to;
        uint8_t tos = conn->channel->path.traffic_class;
        const struct gyre_rdmacm *api = cm->api;
        if (api->create_id(cm->events, &conn->id, conn, RDMA_PS_TCP) != 0)
            return fail_step(conn, "rdma_create_id", errno);
        /* Both sides take the ToS from the route. */
        if (api->set_option(conn->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)) != 0)
            return fail_step(conn, "rdma_set_option(TOS)", errno);
        to_sockaddr(conn->channel->path.local.gid, 0, &from);
        to_sockaddr(conn->channel->path.remote.gid, conn->port, &to);
        if (api->resolve_addr(conn->id, (struct sockaddr *)&from, (struct sockaddr *)&to,
                              RESOLVE_MS) != 0)
            return fail_step(conn, "rdma_resolve_addr", errno);
    }
    while (cm->n_connected < cm->n_conns) {
        struct pollfd entry = {.fd = cm->events->fd, .events = POLLIN};
        GYRE_TRY(gyre_transport_check(&cm->ib->config));
        if (gyre_now_ns() >= deadline_ns)
            return gyre_fail(GYRE_ERROR_TIMEOUT, "rdma_cm: %d of %d queue pairs are not connected",
                             cm->n_conns - cm->n_connected, cm->n_conns);
        if (poll(&entry, 1, 100) > 0)
            GYRE_TRY(take_event(cm));
    }
    return GYRE_SUCCESS;
}

#else

uint32_t gyre_ib_cm_port(const struct gyre_ib_cm *cm)
{
    (void)cm;
    return 0;
}

gyre_status gyre_ib_cm_open(struct gyre_ib_transport *ib)
{
    (void)ib;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "GYRE_IB_CONNECT=rdmacm: built without rdma_cm "
                                             "(librdmacm-dev was not there)");
}

void gyre_ib_cm_close(struct gyre_ib_cm *cm)
{
    (void)cm;
}

gyre_status gyre_ib_cm_add(struct gyre_ib_cm *cm, struct gyre_ib_channel *channel, uint32_t port,
                           const uint8_t *token)
{
    (void)cm;
    (void)channel;
    (void)port;
    (void)token;
    return GYRE_ERROR_INTERNAL;
}

gyre_status gyre_ib_cm_connect(struct gyre_ib_cm *cm, uint64_t deadline_ns)
{
    (void)cm;
    (void)deadline_ns;
    return GYRE_ERROR_INTERNAL;
}

#endif
