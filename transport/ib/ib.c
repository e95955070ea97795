/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ib/ib_path.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* For the last acknowledgements, which peers that close at the same time may send late. */
#define QUIET_NS 200000000ULL

void gyre_transport_ib_probe(const struct gyre_params *params, struct gyre_peer_info *info)
{
    info->ib_usable = 0;
    info->ib_reason[0] = '\0';
    if (gyre_param_number(params, GYRE_PARAM_IB_DISABLE) == 1) {
        snprintf(info->ib_reason, sizeof(info->ib_reason), "%s is set",
                 gyre_param_source(params, GYRE_PARAM_IB_DISABLE));
        return;
    }
    struct gyre_ib_scan *scan = calloc(1, sizeof(*scan));
    gyre_status status =
        scan != NULL ? gyre_ib_scan_open(params, scan)
                     : gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a list of RDMA ports");
    const bool is_open = status == GYRE_SUCCESS;
    for (int i = 0; status == GYRE_SUCCESS && i < scan->n_ports; i++) {
        const struct gyre_ib_port *port = &scan->ports[i];
        struct gyre_ib_gid_row gids[GYRE_IB_PAIR_GIDS];
        int n_gids;
        struct ibv_context *context = scan->verbs->open_device(port->device);
        if (context == NULL) {
            status = gyre_fail_errno(errno, "ibv_open_device(%s)", port->name);
            break;
        }
        status = gyre_ib_rail_gids(scan->verbs, params, context, port, gids, &n_gids);
        scan->verbs->close_device(context);
        const uint32_t mbit_per_s = port->gbit_per_s * 1000;
        if (mbit_per_s > 0 && (info->ib_mbit_per_s == 0 || mbit_per_s < info->ib_mbit_per_s))
            info->ib_mbit_per_s = mbit_per_s;
    }
    char words[400];
    info->ib_usable = status == GYRE_SUCCESS;
    if (status == GYRE_SUCCESS) {
        GYRE_INFO(NET, "NET/IB : Using %s", gyre_ib_scan_to_text(scan, words, sizeof(words)));
    } else {
        snprintf(info->ib_reason, sizeof(info->ib_reason), "%s", gyre_cause());
        GYRE_INFO(NET, "NET/IB : not usable: %s", gyre_cause());
    }
    if (is_open) {
        info->ib_n_ports = (uint32_t)scan->n_ports;
        gyre_ib_scan_close(scan);
    }
    free(scan);
}

static bool ib_reachable(const struct gyre_params *params, const struct gyre_peer_info *mine,
                         const struct gyre_peer_info *peer, char *why_out, size_t why_bytes)
{
    if (gyre_param_number(params, GYRE_PARAM_IB_DISABLE) == 1)
        snprintf(why_out, why_bytes, "%s is set", gyre_param_source(params, GYRE_PARAM_IB_DISABLE));
    else if (gyre_text_same(gyre_param_text(params, GYRE_PARAM_NET), "Socket"))
        snprintf(why_out, why_bytes, "%s=Socket", gyre_param_source(params, GYRE_PARAM_NET));
    else if (!mine->ib_usable)
        snprintf(why_out, why_bytes, "%s", mine->ib_reason);
    else if (!peer->ib_usable)
        snprintf(why_out, why_bytes, "rank %u (%s): %s", peer->rank, peer->host_name,
                 peer->ib_reason);
    else
        return true;
    return false;
}

static void choose_classes(struct gyre_ib_transport *ib)
{
    const struct gyre_transport_config *config = &ib->config;
    const struct gyre_params *params = config->params;
    const bool is_set = config->traffic_class >= 0 || gyre_param_is_set(params, GYRE_PARAM_IB_TC);
    const int64_t class = config->traffic_class >= 0 ? config->traffic_class
                                                     : gyre_param_number(params, GYRE_PARAM_IB_TC);
    const int64_t control = gyre_param_number(params, GYRE_PARAM_IB_FIFO_TC);
    const int64_t level = config->service_level >= 0 ? config->service_level
                                                     : gyre_param_number(params, GYRE_PARAM_IB_SL);
    char words[64];
    char control_words[64];
    char warning[320];
    ib->traffic_class = class >= 0 ? (unsigned)class : 0;
    ib->control_class = control >= 0 ? (unsigned)control : ib->traffic_class;
    ib->service_level = level >= 0 ? (unsigned)level : 0;
    ib->timeout = (unsigned)gyre_param_number(params, GYRE_PARAM_IB_TIMEOUT);
    ib->retries = (unsigned)gyre_param_number(params, GYRE_PARAM_IB_RETRY_CNT);
    if (config->for_puts)
        return;
    GYRE_INFO(NET,
              "NET/IB : data %s, control %s, SL %u; acknowledgement timeout %u = %.3f s, %u "
              "retries: a peer may be silent for %.2f s",
              gyre_ib_class_to_text(ib->traffic_class, words, sizeof(words)),
              gyre_ib_class_to_text(ib->control_class, control_words, sizeof(control_words)),
              ib->service_level, ib->timeout, (double)gyre_ib_ack_timeout_ns(ib->timeout) / 1e9,
              ib->retries, (double)gyre_ib_retry_window_ns(ib->timeout, ib->retries) / 1e9);
    if (config->rank == 0 && ib->rails[0].port.is_roce &&
        gyre_ib_class_warning(ib->traffic_class, is_set, warning, sizeof(warning)) != NULL)
        GYRE_WARN("NET/IB : %s", warning);
    if (config->rank == 0 && ib->retries == 7)
        GYRE_WARN("NET/IB : %s=7 means for ever on some devices (rxe); use 6 or fewer",
                  gyre_param_called(config->params, GYRE_PARAM_IB_RETRY_CNT));
}

static gyre_status set_non_blocking(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return gyre_fail_errno(errno, "fcntl(O_NONBLOCK)");
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return gyre_fail_errno(errno, "epoll_ctl");
    return GYRE_SUCCESS;
}

static void free_transport(struct gyre_ib_transport *ib)
{
    gyre_ib_sockets_close(ib);
    const bool is_probed = gyre_ib_worker_close(ib, &ib->prober);
    if (!gyre_ib_worker_close(ib, &ib->fencer) || !is_probed) {
        GYRE_WARN("NET/IB : a device does not destroy its queue pairs, so it keeps %zu bytes",
                  ib->fifo_bytes + ib->gpu_bytes);
        return;
    }
    if (ib->nap_fd >= 0)
        close(ib->nap_fd);
    gyre_ib_channels_close(ib);
    gyre_ib_moves_close(ib);
    gyre_ib_cm_close(ib->cm);
    gyre_ib_memory_close(ib);
    gyre_ib_rails_close(ib);
    free(ib->peers);
    pthread_cond_destroy(&ib->fencer.changed);
    pthread_cond_destroy(&ib->prober.changed);
    pthread_cond_destroy(&ib->dialer.changed);
    pthread_mutex_destroy(&ib->mail_lock);
    free(ib);
}

static gyre_status open_parts(struct gyre_ib_transport *ib)
{
    GYRE_TRY(gyre_ib_rails_open(ib));
    choose_classes(ib);
    GYRE_TRY(gyre_ib_memory_open(ib));
    GYRE_TRY(gyre_ib_channels_open(ib));
    GYRE_TRY(gyre_ib_fences_open(ib));
    if (strcmp(gyre_param_text(ib->config.params, GYRE_PARAM_IB_CONNECT), "rdmacm") == 0)
        GYRE_TRY(gyre_ib_cm_open(ib));
    GYRE_TRY(gyre_ib_moves_open(ib));
    ib->nap_fd = gyre_descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
    if (ib->nap_fd < 0)
        return gyre_fail_errno(errno, "epoll_create1");
    for (int i = 0; i < ib->n_rails; i++) {
        GYRE_TRY(set_non_blocking(ib->nap_fd, ib->rails[i].events->fd));
        GYRE_TRY(set_non_blocking(ib->nap_fd, ib->rails[i].context->async_fd));
    }
    return GYRE_SUCCESS;
}

static gyre_status ib_open(const struct gyre_transport_config *config,
                           struct gyre_transport **transport_out, void **blob_out,
                           size_t *blob_bytes_out)
{
    struct gyre_ib_transport *ib = calloc(1, sizeof(*ib));
    if (ib == NULL)
        return gyre_fail_errno(ENOMEM, "ib");
    ib->base.ops = &gyre_transport_ib;
    ib->config = *config;
    ib->config.peers = NULL;
    ib->nap_fd = -1;
    pthread_mutex_init(&ib->mail_lock, NULL);
    gyre_cond_init(&ib->fencer.changed);
    gyre_cond_init(&ib->prober.changed);
    gyre_cond_init(&ib->dialer.changed);
    gyre_status status = GYRE_SUCCESS;
    const uint32_t depth = config->spec.depth;
    if (depth < 2 || depth > GYRE_MAX_DEPTH || config->spec.n_fifos > 0xffff)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "ib: %u FIFOs of %u slots",
                           config->spec.n_fifos, depth);
    ib->send_depth = gyre_transport_send_depth(config);
    if (config->spec.net_line_bytes > 0) {
        ib->line_stride = gyre_proxy_slots_bytes(depth, config->spec.net_line_bytes);
        ib->send_line_stride = gyre_proxy_slots_bytes(ib->send_depth, config->spec.net_line_bytes);
    }
    ib->peers = calloc((size_t)config->n_peers, sizeof(*ib->peers));
    if (ib->peers == NULL)
        status = gyre_fail_errno(ENOMEM, "ib: %d peers", config->n_peers);
    for (int i = 0; i < config->n_peers && status == GYRE_SUCCESS; i++) {
        struct gyre_ib_peer *peer = &ib->peers[i];
        peer->rank = config->peers[i];
        peer->size = gyre_transport_fifos(config, peer->rank);
        peer->slots_stride = gyre_proxy_slots_bytes(depth, peer->size.slot_bytes);
        peer->send_stride = gyre_proxy_slots_bytes(ib->send_depth, peer->size.slot_bytes);
        ib->n_fifos += peer->size.n_fifos;
        ib->recv_slots_bytes += peer->size.n_fifos * peer->slots_stride;
        ib->send_slots_bytes += peer->size.n_fifos * peer->send_stride;
    }
    if (status == GYRE_SUCCESS)
        status = open_parts(ib);
    if (status == GYRE_SUCCESS)
        status = gyre_ib_blob(ib, blob_out, blob_bytes_out);
    if (status != GYRE_SUCCESS) {
        free_transport(ib);
        return status;
    }
    *transport_out = &ib->base;
    return GYRE_SUCCESS;
}

static struct gyre_ib_transport *from_base(const struct gyre_transport *transport)
{
    return (struct gyre_ib_transport *)(uintptr_t)transport;
}

static gyre_status ib_connect(struct gyre_transport *transport, const void *blobs,
                              const size_t *offsets, uint64_t deadline_ns,
                              struct gyre_connector *connectors)
{
    struct gyre_ib_transport *ib = from_base(transport);
    const struct gyre_fifo_spec *spec = &ib->config.spec;
    GYRE_TRY(gyre_ib_channels_connect(ib, blobs, offsets, deadline_ns));
    for (int i = 0; i < ib->config.n_peers; i++) {
        const struct gyre_ib_peer *peer = &ib->peers[i];
        const uint32_t rank = (uint32_t)peer->rank;
        for (uint32_t fifo = 0; fifo < peer->size.n_fifos; fifo++) {
            struct gyre_connector *out = &connectors[gyre_connector_index(spec, rank, fifo, true)];
            struct gyre_connector *in = &connectors[gyre_connector_index(spec, rank, fifo, false)];
            *out = gyre_proxy_connector(&peer->sends[fifo].fifo);
            *in = gyre_proxy_connector(&peer->recvs[fifo].fifo);
            out->slots[GYRE_PROTO_LL] = peer->sends[fifo].lines.slots;
            in->slots[GYRE_PROTO_LL] = peer->recvs[fifo].lines.slots;
        }
    }
    ib->probed_ns = gyre_now_ns();
    const struct gyre_proxy_client client = {
        .poll = gyre_ib_poll,
        .is_behind = gyre_ib_is_behind,
        .settle = gyre_ib_settle,
        .context = ib,
        .nap_fd = &ib->nap_fd,
    };
    ib->recorded = gyre_trace_use(ib->config.trace, GYRE_TRACE_IB);
    return gyre_proxy_open(&client, ib->config.rank, ib->config.fault, &ib->proxy);
}

#define N_ROUND_TRIPS  16

#define ROUND_TRIPS_NS 10000000ULL

GYRE_STATIC_ASSERT(ROUND_TRIPS_NS < GYRE_MEASURE_NS, "the contract of `measure`");

/* The next higher ranks are asked first, so that all ranks together ask all. */
static void ib_measure(struct gyre_transport *transport, struct gyre_wire *wire_out)
{
    struct gyre_ib_transport *ib = from_base(transport);
    const struct gyre_peer_info *infos = ib->config.infos;
    const int n_peers = ib->config.n_peers;
    uint64_t shortest_ns = 0; /* = unknown */
    int first = 0, n_tries = 0;
    gyre_proxy_pause(ib->proxy);
    const uint64_t deadline_ns = gyre_now_ns() + ROUND_TRIPS_NS;
    while (first < n_peers && ib->peers[first].rank < ib->config.rank)
        first++;
    for (int i = 0; n_tries < N_ROUND_TRIPS && gyre_now_ns() < deadline_ns; i++) {
        struct gyre_ib_peer *peer = &ib->peers[(first + i) % n_peers];
        const struct gyre_ib_channel *channel = peer->control;
        if (i == n_peers && n_tries == 0)
            break;
        if (infos[peer->rank].host_hash == infos[ib->config.rank].host_hash)
            continue;
        n_tries++;
        if (ib->is_failed || peer->move.is_halted || channel->qp == NULL ||
            channel->n_retired < channel->signalled_at || !gyre_ib_has_room(channel, 1))
            continue;
        /* It changes nothing at the peer. */
        const uint64_t begin_ns = gyre_now_ns();
        gyre_ib_write_credit_again(ib, peer);
        while (channel->n_retired < channel->signalled_at && gyre_now_ns() < deadline_ns &&
               !ib->is_failed && !gyre_fault_is_raised(ib->config.fault))
            if (!gyre_ib_poll(ib))
                sched_yield(); /* with few processors another process must move the packets */
        /* Without an acknowledgement the time waited counts: a slow network is not unknown. */
        const uint64_t trip_ns = gyre_now_ns() - begin_ns;
        const bool is_complete = channel->n_retired >= channel->signalled_at;
        if (!ib->is_failed && (shortest_ns == 0 || (is_complete && trip_ns < shortest_ns)))
            shortest_ns = trip_ns;
    }
    gyre_proxy_resume(ib->proxy);
    *wire_out = (struct gyre_wire){.round_trip_ns = shortest_ns};
}

static const char *ib_describe(const struct gyre_transport *transport, int peer)
{
    const struct gyre_ib_transport *ib = from_base(transport);
    for (int i = 0; i < ib->config.n_peers; i++)
        if (ib->peers[i].rank == peer)
            return ib->peers[i].words;
    return "NET/IB";
}

static size_t ib_memory_bytes(const struct gyre_transport *transport)
{
    const struct gyre_ib_transport *ib = from_base(transport);
    return ib->fifo_bytes + ib->gpu_bytes + ib->recv_words_bytes + ib->staging_bytes +
           ib->send_lines_bytes + ib->recv_lines_bytes;
}

static bool ib_takes_lines(const struct gyre_transport *transport)
{
    return from_base(transport)->recv_lines != NULL;
}

static void ib_wake(struct gyre_transport *transport)
{
    struct gyre_ib_transport *ib = from_base(transport);
    if (ib->proxy != NULL)
        gyre_proxy_wake(ib->proxy);
}

static void ib_take_state(struct gyre_transport *transport, int rank, const void *state,
                          size_t n_bytes)
{
    gyre_ib_take_state(from_base(transport), rank, state, n_bytes);
}

static bool ib_help(struct gyre_transport *transport, bool is_last)
{
    const struct gyre_ib_transport *ib = from_base(transport);
    return ib->proxy != NULL && gyre_proxy_help(ib->proxy, is_last);
}

static void ib_close(struct gyre_transport *transport)
{
    struct gyre_ib_transport *ib = from_base(transport);
    struct gyre_proxy *const proxy = ib->proxy;
    pthread_mutex_lock(&ib->mail_lock);
    ib->proxy = NULL; /* other threads wake it under this lock */
    pthread_mutex_unlock(&ib->mail_lock);
    if (proxy != NULL)
        gyre_proxy_close(proxy);
    ib->is_closing = true;
    if (proxy != NULL && gyre_fault_is_raised(ib->config.fault))
        gyre_ib_events_look(ib, gyre_now_ns());
    const uint64_t until_ns = gyre_now_ns() + QUIET_NS;
    for (int i = 0; proxy != NULL && i < ib->n_channels; i++)
        while (ib->channels[i].n_retired < ib->channels[i].signalled_at && !ib->is_failed &&
               !gyre_fault_is_raised(ib->config.fault) && gyre_now_ns() < until_ns)
            if (!gyre_ib_poll(ib))
                sched_yield();
    if (proxy != NULL)
        gyre_ib_sockets_leave(ib);
    free_transport(ib);
}

const struct gyre_transport_ops gyre_transport_ib = {
    .name = "ib",
    .is_rdma = true,
    .is_proxied = true,
    .has_lines = true,
    .reachable = ib_reachable,
    .open = ib_open,
    .connect = ib_connect,
    .describe = ib_describe,
    .memory_bytes = ib_memory_bytes,
    .takes_lines = ib_takes_lines,
    .measure = ib_measure,
    .wake = ib_wake,
    .take_state = ib_take_state,
    .help = ib_help,
    .close = ib_close,
};
