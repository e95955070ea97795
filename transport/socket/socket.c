/* SPDX-License-Identifier: Apache-2.0
 *
 * The socket transport: TCP between hosts.
 */
#include "transport/socket/socket.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* More unsent bytes would make credit wait. */
#define NOTSENT_LOWAT_BYTES 262144
#define BYE_NS              500000000ULL
#define BYE_FAULT_NS        100000000ULL
/* Later than socket_move.c, whose message the user reads. */
#define KEEPALIVE_PROBES 12

static bool has_lines(const struct socket_transport *transport)
{
    return transport->config.spec.net_line_bytes > 0;
}

static gyre_status alloc_fifos(struct socket_transport *transport)
{
    const struct gyre_transport_config *config = &transport->config;
    const struct gyre_fifo_spec *spec = &config->spec;
    gyre_status status = GYRE_SUCCESS;
    uint32_t n_ends = 0, n = 0;
    for (int i = 0; i < transport->n_peers; i++) {
        struct socket_peer *peer = &transport->peers[i];
        peer->transport = transport;
        peer->rank = config->peers[i];
        peer->size = gyre_transport_fifos(config, peer->rank);
        peer->n_fifos = peer->size.n_fifos * (has_lines(transport) ? 2 : 1);
        n_ends += 2 * peer->n_fifos;
    }
    struct gyre_proxy_fifo *ends = calloc((size_t)n_ends + 1, sizeof(*ends));
    if (ends == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%u sides of FIFOs", n_ends);
    for (int i = 0; i < transport->n_peers; i++) {
        const struct socket_peer *peer = &transport->peers[i];
        for (uint32_t e = 0; e < 2 * peer->n_fifos; e++) /* sender and receiver in turn */
            ends[n++] = (struct gyre_proxy_fifo){
                .slot_bytes =
                    e < 2 * peer->size.n_fifos ? peer->size.slot_bytes : spec->net_line_bytes,
                .depth = e % 2 == 0 ? gyre_transport_send_depth(config) : spec->depth};
    }
    GYRE_TRY_GOTO(status,
                  gyre_proxy_fifos_alloc(config->device, ends, n_ends, &transport->memory,
                                         &transport->memory_bytes),
                  free_ends);
    n = 0;
    for (int i = 0; i < transport->n_peers; n += 2 * transport->peers[i++].n_fifos) {
        struct socket_peer *peer = &transport->peers[i];
        peer->fifos = calloc((size_t)peer->n_fifos, sizeof(*peer->fifos));
        if (peer->fifos == NULL) {
            status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "FIFOs of rank %d", peer->rank);
            goto free_ends;
        }
        for (uint32_t f = 0; f < peer->n_fifos; f++) {
            struct socket_fifo *fifo = &peer->fifos[f];
            const struct socket_fifo *simple = &peer->fifos[f % peer->size.n_fifos];
            fifo->proto = f < peer->size.n_fifos ? GYRE_PROTO_SIMPLE : GYRE_PROTO_LL;
            fifo->send = ends[n + 2 * f];
            fifo->recv = ends[n + 2 * f + 1];
            fifo->send.inbox = simple->send.inbox;
            fifo->send.credit = simple->send.credit;
            fifo->recv.inbox = simple->recv.inbox;
            fifo->recv.credit = simple->recv.credit;
        }
    }
free_ends:
    free(ends);
    return status;
}

uint32_t socket_line_batch_bytes(const struct gyre_fifo_spec *spec)
{
    return spec->depth * gyre_slot_payload_bytes(GYRE_PROTO_LL, spec->net_line_bytes);
}

static bool socket_reachable(const struct gyre_params *params, const struct gyre_peer_info *mine,
                             const struct gyre_peer_info *peer, char *why_out, size_t why_bytes)
{
    static const int net_ib = 0;
    (void)mine;
    (void)peer;
    if (gyre_param_number(params, GYRE_PARAM_NET) != net_ib)
        return true;
    snprintf(why_out, why_bytes, "%s=IB rules sockets out",
             gyre_param_source(params, GYRE_PARAM_NET));
    return false;
}

static void socket_close(struct gyre_transport *base)
{
    struct socket_transport *transport = (struct socket_transport *)base;
    const struct gyre_transport_config *config = &transport->config;
    const struct gyre_peer_info *own = &config->infos[config->rank];
    const struct gyre_fault *fault = config->fault;
    char text[GYRE_CAUSE_MAX_BYTES];
    const char *cause = NULL; /* = no fault */
    if (gyre_fault_is_raised(fault)) {
        snprintf(text, sizeof(text), "rank %d (%s pid %u) failed: %.900s", config->rank,
                 own->host_name, own->pid, fault->cause);
        /* These causes name their rank already. */
        const bool is_named =
            fault->status == GYRE_ERROR_REMOTE || fault->status == GYRE_ERROR_ABORTED;
        cause = is_named ? fault->cause : text;
    }
    const bool had_proxy = transport->threads[0].proxy != NULL;
    socket_stop_setup(transport);
    for (uint32_t t = 0; t < transport->n_threads; t++)
        if (transport->threads[t].proxy != NULL)
            gyre_proxy_close(transport->threads[t].proxy);
    socket_end_setup(transport);
    const uint64_t deadline_ns = gyre_now_ns() + (cause == NULL ? BYE_NS : BYE_FAULT_NS);
    for (int i = 0; transport->peers != NULL && i < transport->n_peers; i++) {
        struct socket_peer *peer = &transport->peers[i];
        for (uint32_t l = 0; peer->links != NULL && l < peer->n_links; l++) {
            struct socket_link *link = &peer->links[l];
            if (had_proxy)
                socket_say_bye(link, cause, deadline_ns);
            if (link->fd >= 0)
                gyre_sock_close(link->fd);
            free(link->line_arrivals);
            free(link->unpacked);
        }
        free(peer->links);
        free(peer->fifos);
    }
    if (transport->memory != NULL)
        config->device->ops->host_free(config->device, transport->memory);
    socket_stop_listening(transport);
    for (uint32_t t = 0; t < transport->n_threads; t++)
        if (transport->threads[t].epoll_fd >= 0)
            close(transport->threads[t].epoll_fd);
    pthread_mutex_destroy(&transport->recording);
    free(transport->peers);
    free(transport);
}

static uint32_t count_processors(const struct gyre_transport_config *config)
{
    cpu_set_t usable;
    uint32_t n_ranks = 0;
    for (int rank = 0; rank < config->n_ranks; rank++)
        n_ranks += config->infos[rank].host_hash == config->infos[config->rank].host_hash;
    if (sched_getaffinity(0, sizeof(usable), &usable) != 0)
        return 1;
    return (uint32_t)CPU_COUNT(&usable) / n_ranks;
}

/* A process with many peers would run out of descriptors. With few peers and enough processors more
 * connections pay, because each has a thread of its own. */
#define MANY_PEERS      64
#define FEW_PEERS       16
#define MANY_PROCESSORS 16

static gyre_status socket_open(const struct gyre_transport_config *config,
                               struct gyre_transport **transport_out, void **blob_out,
                               size_t *blob_bytes_out)
{
    gyre_status status;
    struct socket_blob *blob = NULL;
    struct socket_transport *transport = calloc(1, sizeof(*transport));
    if (transport == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "socket transport of rank %d", config->rank);
    transport->base.ops = &gyre_transport_socket;
    transport->config = *config;
    transport->n_peers = config->n_peers;
    const int64_t asked = gyre_param_number(config->params, GYRE_PARAM_SOCKET_NSOCKS);
    if (config->for_puts || asked > 0)
        transport->n_links = config->for_puts ? 1 : (int)asked;
    else if (config->n_peers <= FEW_PEERS && count_processors(config) >= MANY_PROCESSORS)
        transport->n_links = 8;
    else
        transport->n_links = config->n_peers <= MANY_PEERS ? 4 : 2;
    transport->survives_resets = gyre_param_number(config->params, GYRE_PARAM_FAILOVER) != 0;
    pthread_mutex_init(&transport->recording, NULL);
    transport->peers = calloc((size_t)config->n_peers + 1, sizeof(*transport->peers));
    /* One thread that copies every byte is slower than a fast network. Half of the rank's
     * processors are the application's. */
    const char *source = gyre_param_source(config->params, GYRE_PARAM_SOCKET_NTHREADS);
    const int64_t number = gyre_param_number(config->params, GYRE_PARAM_SOCKET_NTHREADS);
    const int64_t wanted = strncmp(source, "NCCL_", 5) == 0 ? 2 * number : number;
    transport->n_threads =
        gyre_clamp_u32(wanted > 0 ? (uint64_t)wanted : count_processors(config) / 2, 1,
                       (uint32_t)transport->n_links);
    for (uint32_t t = 0; t < transport->n_threads; t++)
        transport->threads[t] =
            (struct socket_thread){.transport = transport, .index = t, .epoll_fd = -1};
    for (uint32_t t = 0; t < transport->n_threads; t++) {
        transport->threads[t].epoll_fd = gyre_descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
        if (transport->threads[t].epoll_fd < 0) {
            status = gyre_fail_errno(errno, "epoll_create1");
            goto close_transport;
        }
    }
    if (config->spec.depth > GYRE_MAX_DEPTH) {
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "socket: FIFOs of %u slots, at most %d",
                           config->spec.depth, GYRE_MAX_DEPTH);
        goto close_transport;
    }
    if (transport->peers == NULL) {
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%d peers", config->n_peers);
        goto close_transport;
    }
    GYRE_TRY_GOTO(status, alloc_fifos(transport), close_transport);
    GYRE_TRY_GOTO(status, socket_listen(transport), close_transport);
    GYRE_TRY_GOTO(status, socket_make_blob(transport, &blob), close_transport);
    transport->config.peers = NULL;
    *blob_out = blob;
    *blob_bytes_out = sizeof(*blob);
    *transport_out = &transport->base;
    return GYRE_SUCCESS;

close_transport:
    socket_close(&transport->base);
    return status;
}

static gyre_status make_links(struct socket_peer *peer, const unsigned char *blob, size_t n_bytes)
{
    const struct socket_transport *transport = peer->transport;
    uint32_t n_links = 0;
    GYRE_TRY(socket_read_blob(peer, blob, n_bytes, &n_links));
    peer->n_links = (uint32_t)gyre_min_u64(gyre_min_u64(n_links, (uint64_t)transport->n_links),
                                           peer->size.n_fifos);
    peer->links = calloc(peer->n_links, sizeof(*peer->links));
    if (peer->links == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%u connections", peer->n_links);
    for (uint32_t l = 0; l < peer->n_links; l++) {
        struct socket_link *link = &peer->links[l];
        link->fd = -1;
        link->index = l;
        link->n_simple = (peer->size.n_fifos - l + peer->n_links - 1) / peer->n_links;
        link->n_fifos = link->n_simple + (l == 0 ? peer->n_fifos - peer->size.n_fifos : 0);
        link->peer = peer;
        link->thread = &peer->transport->threads[l % transport->n_threads];
    }
    struct socket_link *first = &peer->links[0];
    if (first->n_fifos == first->n_simple)
        return GYRE_SUCCESS;
    first->line_arrivals = malloc(socket_line_batch_bytes(&transport->config.spec));
    first->unpacked = malloc(socket_line_batch_bytes(&transport->config.spec));
    if (first->line_arrivals == NULL || first->unpacked == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "lines of rank %d", peer->rank);
    return GYRE_SUCCESS;
}

gyre_status socket_watch_link(struct socket_link *link)
{
    const struct socket_transport *transport = link->peer->transport;
    const int lowat_bytes = NOTSENT_LOWAT_BYTES;
    const int n_probes = KEEPALIVE_PROBES;
    struct gyre_sock_address own;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data = {.ptr = link}};
    link->is_readable = true;
    link->is_writable = true;
    GYRE_TRY(gyre_sock_own_address(link->fd, &own));
    GYRE_TRY(gyre_sock_peer_address(link->fd, &link->remote));
    link->interface = transport->addresses[0].name;
    for (int i = 0; i < transport->n_addresses; i++)
        if (gyre_sock_is_same_host(&transport->addresses[i].address, &own))
            link->interface = transport->addresses[i].name;
    if (setsockopt(link->fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof(n_probes)) != 0)
        return gyre_fail_errno(errno, "setsockopt(TCP_KEEPCNT)");
    if (setsockopt(link->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat_bytes, sizeof(lowat_bytes)) !=
        0)
        GYRE_INFO(NET, "TCP_NOTSENT_LOWAT: errno %d", errno);
    if (epoll_ctl(link->thread->epoll_fd, EPOLL_CTL_ADD, link->fd, &event) != 0)
        return gyre_fail_errno(errno, "epoll_ctl(rank %d, connection %u)", link->peer->rank,
                               link->index);
    return GYRE_SUCCESS;
}

static gyre_status socket_connect(struct gyre_transport *base, const void *blobs,
                                  const size_t *offsets, uint64_t deadline_ns,
                                  struct gyre_connector *connectors)
{
    struct socket_transport *transport = (struct socket_transport *)base;
    const struct gyre_transport_config *config = &transport->config;
    for (int i = 0; i < transport->n_peers; i++) {
        struct socket_peer *peer = &transport->peers[i];
        const gyre_status status =
            make_links(peer, (const unsigned char *)blobs + offsets[peer->rank],
                       offsets[peer->rank + 1] - offsets[peer->rank]);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "rank %d (%s) over socket", peer->rank,
                                     config->infos[peer->rank].host_name);
    }
    const gyre_status status = socket_setup_links(transport, deadline_ns);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "connecting over socket %s", transport->addresses[0].name);
    if (transport->setup == NULL)
        socket_stop_listening(transport);
    for (int i = 0; i < transport->n_peers; i++)
        for (uint32_t l = 0; l < transport->peers[i].n_links; l++)
            GYRE_TRY(socket_watch_link(&transport->peers[i].links[l]));
    if (!config->for_puts) {
        socket_measure_round_trip(transport);
        GYRE_TRY(socket_measure_rate(transport, deadline_ns));
    }
    const struct gyre_fifo_spec *spec = &transport->config.spec;
    for (int i = 0; i < transport->n_peers; i++) {
        const struct socket_peer *peer = &transport->peers[i];
        const uint32_t rank = (uint32_t)peer->rank;
        const uint32_t n_simple = peer->size.n_fifos;
        for (uint32_t f = 0; f < n_simple; f++) {
            struct gyre_connector *to = &connectors[gyre_connector_index(spec, rank, f, true)];
            struct gyre_connector *from = &connectors[gyre_connector_index(spec, rank, f, false)];
            *to = gyre_proxy_connector(&peer->fifos[f].send);
            *from = gyre_proxy_connector(&peer->fifos[f].recv);
            if (!has_lines(transport))
                continue;
            to->slots[GYRE_PROTO_LL] = peer->fifos[n_simple + f].send.slots;
            from->slots[GYRE_PROTO_LL] = peer->fifos[n_simple + f].recv.slots;
        }
    }
    transport->recorded = gyre_trace_use(config->trace, GYRE_TRACE_SOCKET);
    for (uint32_t t = 0; t < transport->n_threads; t++) {
        struct socket_thread *thread = &transport->threads[t];
        const struct gyre_proxy_client client = {
            .poll = socket_move,
            .is_behind = socket_is_behind,
            .context = thread,
            .nap_fd = &thread->epoll_fd,
        };
        GYRE_TRY(gyre_proxy_open(&client, config->rank, config->fault, &thread->proxy));
    }
    socket_begin_resuming(transport);
    return GYRE_SUCCESS;
}

static bool socket_takes_lines(const struct gyre_transport *transport)
{
    (void)transport;
    return true;
}

static const char *socket_describe(const struct gyre_transport *transport, int peer)
{
    (void)transport;
    (void)peer;
    return "NET/Socket/0";
}

static size_t socket_memory_bytes(const struct gyre_transport *base)
{
    return ((const struct socket_transport *)base)->memory_bytes;
}

static void socket_measure(struct gyre_transport *base, struct gyre_wire *wire_out)
{
    *wire_out = ((const struct socket_transport *)base)->wire;
}

static void socket_wake(struct gyre_transport *base)
{
    struct socket_transport *transport = (struct socket_transport *)base;
    for (uint32_t t = 0; t < transport->n_threads; t++)
        if (transport->threads[t].proxy != NULL)
            gyre_proxy_wake(transport->threads[t].proxy);
}

static bool socket_help(struct gyre_transport *base, bool is_last)
{
    const struct socket_transport *transport = (struct socket_transport *)base;
    bool has_moved = false;
    for (uint32_t t = 0; t < transport->n_threads; t++)
        if (transport->threads[t].proxy != NULL)
            has_moved = gyre_proxy_help(transport->threads[t].proxy, is_last) || has_moved;
    return has_moved;
}

const struct gyre_transport_ops gyre_transport_socket = {
    .name = "socket",
    .is_proxied = true,
    .has_lines = true,
    .reachable = socket_reachable,
    .open = socket_open,
    .connect = socket_connect,
    .describe = socket_describe,
    .memory_bytes = socket_memory_bytes,
    .takes_lines = socket_takes_lines,
    .measure = socket_measure,
    .wake = socket_wake,
    .take_state = gyre_transport_no_state,
    .help = socket_help,
    .close = socket_close,
};
