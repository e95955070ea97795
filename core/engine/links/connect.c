/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/links/links.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gyre_rank_end_stage(struct gyre_rank *self, const char *stage)
{
    const uint64_t now_ns = gyre_now_ns();
    GYRE_INFO(INIT, "rank %d: %s took %.1f ms", self->rank, stage,
              (double)(now_ns - self->stage_ns) / 1e6);
    self->stage_ns = now_ns;
}

uint32_t gyre_rank_max_channels(const struct gyre_rank *self)
{
    const gyre_config *config = &self->config;
    uint64_t most = UINT32_MAX;
    if (config->max_channels > 0)
        most = gyre_min_u64(most, (uint64_t)config->max_channels);
    if (config->sm_budget > 0)
        most = gyre_min_u64(most, (uint64_t)config->sm_budget);
    return (uint32_t)most;
}

static gyre_status gather_infos(const struct gyre_rank *self, struct gyre_links *links)
{
    struct gyre_peer_info mine;
    memset(&mine, 0, sizeof(mine));
    GYRE_TRY(gyre_peer_info_fill(&self->params, self->device, self->rank, &mine));
    /* only shrinking needs one */
    if (self->n_ranks > 1 && gyre_sock_listen_all(&self->params, NULL, &links->regroup_listeners,
                                                  &mine.regroup_addresses) != GYRE_SUCCESS)
        GYRE_INFO(INIT, "no regroup listener for gyre_comm_shrink: %s", gyre_cause());
    mine.topo_hash = links->topo.n_nodes > 0 ? gyre_topo_hash(&links->topo) : 0;
    mine.trace_hash = gyre_trace_hash(self->trace);
    GYRE_TRY(gyre_rank_gather(self, &mine, sizeof(mine), links->infos));
    links->grouping.n_hosts = 0;
    for (int rank = 0; rank < self->n_ranks; rank++) {
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

static gyre_status check_ranks(void *context)
{
    struct gyre_bootstrap *bootstrap = context;
    return bootstrap->ops->check(bootstrap);
}

static void post_state(void *context, int rank, const struct gyre_transport_state *state)
{
    struct gyre_bootstrap *bootstrap = context;
    bootstrap->ops->post(bootstrap, rank, state,
                         offsetof(struct gyre_transport_state, bytes) + state->n_bytes);
}

/* Collective, also for ranks without peers of this transport. */
static gyre_status open_transport(struct gyre_rank *self, struct gyre_links *links, int index,
                                  uint64_t deadline_ns)
{
    const struct gyre_transport_ops *ops = gyre_transports[index];
    GYRE_FREED uint16_t *peers = calloc((size_t)self->n_ranks, sizeof(*peers));
    GYRE_FREED size_t *offsets = calloc((size_t)self->n_ranks + 1, sizeof(*offsets));
    GYRE_FREED void *blob = NULL;
    GYRE_FREED void *blobs = NULL;
    size_t blob_bytes = 0;
    int n_peers = 0;
    if (peers == NULL || offsets == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    for (int peer = 0; peer < self->n_ranks; peer++)
        if (peer != self->rank && links->transport_of[peer] == index)
            peers[n_peers++] = (uint16_t)peer;
    char why[160];
    const struct gyre_peer_info *mine = &links->infos[self->rank];
    const struct gyre_transport_config config = {
        .device = self->device,
        .params = &self->params,
        .rank = self->rank,
        .n_ranks = self->n_ranks,
        .infos = links->infos,
        .peers = peers,
        .n_peers = n_peers,
        .for_puts = links->for_puts,
        .spec = links->spec,
        .ring_prev = links->ring_prev,
        .is_far = links->is_far,
        .rendezvous = &self->bootstrap->own_address,
        .may_use_sockets =
            self->config.transport == NULL &&
            gyre_transport_socket.reachable(&self->params, mine, mine, why, sizeof(why)),
        .secret = self->bootstrap->secret,
        .traffic_class = self->config.traffic_class,
        .service_level = self->config.service_level,
        .fault = &self->fault,
        .trace = self->trace,
        .authenticate = gyre_authenticate,
        .check_ranks = check_ranks,
        .post_state = post_state,
        .check_context = self->bootstrap,
        .tell = self->tell,
        .tell_context = self->tell_context,
    };
    if (n_peers > 0) {
        GYRE_TRY(ops->open(&config, &links->transports[index], &blob, &blob_bytes));
        gyre_rank_end_stage(self, "making slots");
    }
    GYRE_TRY(
        self->bootstrap->ops->all_gather_v(self->bootstrap, blob, blob_bytes, &blobs, offsets));
    return n_peers > 0 ? ops->connect(links->transports[index], blobs, offsets, deadline_ns,
                                      links->connectors)
                       : GYRE_SUCCESS;
}

static gyre_status size_fifos(const struct gyre_rank *self, struct gyre_links *links)
{
    const gyre_device_kind kind = (gyre_device_kind)self->device_info.kind;
    const uint32_t n_ranks = (uint32_t)self->n_ranks;
    const int64_t wanted_bytes = gyre_param_number(&self->params, GYRE_PARAM_BUFFSIZE);
    const uint64_t buffer_bytes = wanted_bytes > 0 ? (uint64_t)wanted_bytes : 0;
    const uint32_t max_channels = gyre_rank_max_channels(self);
    /* GPUs use lines between hosts over TCP, and two GPUs over RDMA. More GPUs over RDMA would take
     * 32 MiB of memory each, and on the host device over TCP the proxy looks at twice as many
     * FIFOs; there GYRE_PROTO must ask, behind a slash. */
    const bool is_host = self->device_info.kind == GYRE_DEVICE_HOST;
    const char *text = gyre_param_text(&self->params, GYRE_PARAM_PROTO);
    bool wants = is_host == links->uses_rdma || (!is_host && self->n_ranks == 2);
    for (const char *at = strchr(text, '/'); at != NULL; at = strchr(at + 1, '/'))
        wants = wants || !gyre_text_same_n(at + 1, "simple", strlen("simple"));
    const bool has_lines = wants && links->has_net_lines && links->is_proxied;
    if (links->grouping.n_hosts == 1) {
        links->spec =
            gyre_tuner_fifo_spec(kind, n_ranks, links->is_proxied, buffer_bytes, max_channels);
        if (has_lines && kind == GYRE_DEVICE_HOST)
            links->spec.net_line_bytes = gyre_net_line_bytes(kind, &links->spec, n_ranks - 1, 0);
        return GYRE_SUCCESS;
    }
    struct gyre_peer_counts peers;
    GYRE_TRY(gyre_near_peers_count(&links->grouping, n_ranks, &peers));
    GYRE_TRY(gyre_near_peers_find(&links->grouping, n_ranks, self->rank, links->is_far));
    links->spec = gyre_tuner_fifo_spec_across(kind, &peers, links->is_proxied_inside,
                                              links->uses_rdma, buffer_bytes, max_channels);
    if (has_lines)
        gyre_fifo_spec_add_net_lines(&links->spec, kind, &peers, links->is_proxied_inside);
    if (self->rank == 0)
        GYRE_INFO(INIT,
                  "FIFOs: %u of %u x %u B with %u near ranks at most, %u of %u x %u B with %u far "
                  "ones",
                  links->spec.n_fifos, links->spec.depth, links->spec.slot_bytes[GYRE_PROTO_SIMPLE],
                  peers.n_inside + peers.n_near, links->spec.far.n_fifos, links->spec.depth,
                  links->spec.far.slot_bytes, peers.n_far);
    return GYRE_SUCCESS;
}

/* Some rank may have no lines between hosts. On the host device all have them. */
static gyre_status agree_on_lines(const struct gyre_rank *self, struct gyre_links *links)
{
    const size_t n = (size_t)self->n_ranks;
    uint8_t has_lines = 1;
    if (links->spec.net_line_bytes == 0 || self->device_info.kind == GYRE_DEVICE_HOST)
        return GYRE_SUCCESS;
    GYRE_FREED uint8_t *all = malloc(n);
    for (int i = 0; gyre_transports[i] != NULL; i++)
        if (links->transports[i] != NULL && gyre_transports[i]->has_lines &&
            !gyre_transports[i]->takes_lines(links->transports[i]))
            has_lines = 0;
    GYRE_TRY(gyre_rank_gather(self, &has_lines, 1, all));
    for (size_t rank = 0; rank < n; rank++) {
        if (all[rank] != 0)
            continue;
        links->spec.net_line_bytes = 0;
        if (self->rank == 0)
            GYRE_INFO(
                TUNING,
                "between hosts protocol simple alone: the NIC of rank %zu (%s) does not reach "
                "GPU memory, where kernels poll lines",
                rank, links->infos[rank].host_name);
        break;
    }
    return GYRE_SUCCESS;
}

uint64_t gyre_links_timeout_ns(const struct gyre_rank *self)
{
    return (uint64_t)gyre_param_number(&self->params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * 1000000000ULL;
}

gyre_status gyre_links_open(struct gyre_rank *self, const struct gyre_links_options *options,
                            struct gyre_links *links)
{
    const uint64_t deadline_ns = gyre_now_ns() + gyre_links_timeout_ns(self);
    const size_t n = (size_t)self->n_ranks;
    links->infos = calloc(n, sizeof(*links->infos));
    links->transport_of = calloc(n, 1);
    links->ring_prev = calloc(n, sizeof(*links->ring_prev));
    links->is_far = calloc(n, 1);
    if (links->infos == NULL || links->transport_of == NULL || links->ring_prev == NULL ||
        links->is_far == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    GYRE_TRY(gyre_topology_open(self, links));
    gyre_rank_end_stage(self, "finding the topology");
    GYRE_TRY(gyre_links_agree(self, options));
    GYRE_TRY(gather_infos(self, links));
    GYRE_TRY(gyre_links_check_gpus(self, links));
    GYRE_TRY(gyre_links_check_traces(self, links));
    GYRE_TRY(gyre_topology_dump(self, links));
    gyre_topology_compare(self, links);
    links->is_ll128_safe = self->device_info.kind == GYRE_DEVICE_CUDA;
    links->is_p2p = true;
    links->has_net_lines = true;
    GYRE_TRY(gyre_links_choose_transports(self, links));
    gyre_rank_end_stage(self, "agreeing on transports");
    /* Interfaces over which a host's ranks spread, or ports that a rank may use. */
    uint32_t n_nics = 1;
    for (size_t rank = 0; rank < n; rank++)
        n_nics = (uint32_t)gyre_max_u64(n_nics, links->uses_rdma ? links->infos[rank].ib_n_ports
                                                                 : links->infos[rank].n_interfaces);
    links->grouping.n_nics = (uint16_t)gyre_min_u32(n_nics, UINT16_MAX);
    GYRE_TRY(size_fifos(self, links));
    /* matters only inside one host, where the ring follows the numbers of the ranks */
    for (size_t rank = 0; rank < n; rank++)
        links->ring_prev[rank] = (uint16_t)((rank + n - 1) % n);
    links->connectors = calloc(n * links->spec.n_fifos * 2, sizeof(*links->connectors));
    if (links->connectors == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    for (int i = 0; gyre_transports[i] != NULL; i++)
        GYRE_TRY(open_transport(self, links, i, deadline_ns));
    gyre_rank_end_stage(self, "connecting");
    GYRE_TRY(agree_on_lines(self, links));
    GYRE_TRY(gyre_links_measure(self, links));
    gyre_rank_end_stage(self, "measuring the network");
    return GYRE_SUCCESS;
}

void gyre_links_wake(const struct gyre_links *links)
{
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++)
        if (links->transports[i] != NULL)
            links->transports[i]->ops->wake(links->transports[i]);
}

static bool are_moving(struct gyre_transport *const *transports)
{
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++)
        if (transports[i] != NULL && gyre_load_relaxed_u32(&transports[i]->is_moving) != 0)
            return true;
    return false;
}

bool gyre_links_are_moving(const struct gyre_links *links, const struct gyre_put_transports *puts)
{
    return are_moving(links->transports) ||
           (gyre_load_acquire_u32(&puts->is_open) != 0 && are_moving(puts->transports));
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

void gyre_links_take_state(const struct gyre_links *links, const struct gyre_put_transports *puts,
                           int rank, const void *message, size_t n_bytes)
{
    const size_t n_head = offsetof(struct gyre_transport_state, bytes);
    struct gyre_transport_state state;
    if (n_bytes < n_head || n_bytes > sizeof(state))
        return;
    memcpy(&state, message, n_bytes);
    if (state.n_bytes != n_bytes - n_head ||
        (state.for_puts != 0 && gyre_load_acquire_u32(&puts->is_open) == 0))
        return;
    struct gyre_transport *transport = state.for_puts != 0
                                           ? puts->transports[links->transport_of[rank]]
                                           : links->transports[links->transport_of[rank]];
    if (transport != NULL)
        transport->ops->take_state(transport, rank, state.bytes, state.n_bytes);
}

void gyre_links_close(struct gyre_links *links)
{
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++)
        if (links->transports[i] != NULL)
            links->transports[i]->ops->close(links->transports[i]);
    gyre_sock_close_all(&links->regroup_listeners);
    free(links->connectors);
    free(links->transport_of);
    free(links->ring_prev);
    free(links->is_far);
    free(links->infos);
    gyre_topo_fini(&links->topo);
    memset(links, 0, sizeof(*links));
}

/* for all slots of a rank, of both directions, unless they have the least size */
#define BUDGET_BYTES   ((uint64_t)(16 << 20))
#define MIN_SLOT_BYTES ((uint64_t)4096)
#define MAX_SLOT_BYTES ((uint64_t)(128 << 10))

gyre_status gyre_put_transports_open(struct gyre_rank *self, const struct gyre_links *links,
                                     struct gyre_put_transports *puts)
{
    const uint64_t deadline_ns = gyre_now_ns() + gyre_links_timeout_ns(self);
    struct gyre_links own = *links; /* own FIFOs, shared facts about ranks */
    gyre_status status = GYRE_SUCCESS;
    /* The same on all ranks. */
    struct gyre_fifo_spec spec = {.n_fifos = 1, .depth = GYRE_COMM_DEPTH};
    const uint64_t wanted_bytes = BUDGET_BYTES / (2 * spec.depth * (uint64_t)self->n_ranks);
    spec.slot_bytes[GYRE_PROTO_SIMPLE] = (uint32_t)gyre_max_u64(
        MIN_SLOT_BYTES,
        gyre_min_u64(MAX_SLOT_BYTES, wanted_bytes / MIN_SLOT_BYTES * MIN_SLOT_BYTES));
    own.spec = spec;
    own.for_puts = true;
    own.is_far = NULL;
    own.connectors = calloc((size_t)self->n_ranks * 2, sizeof(*own.connectors));
    if (own.connectors == NULL)
        return gyre_fail_errno(ENOMEM, "put links of %d ranks", self->n_ranks);
    memset(own.transports, 0, sizeof(own.transports));
    for (int i = 0; gyre_transports[i] != NULL && status == GYRE_SUCCESS; i++)
        if (gyre_transports[i]->is_proxied)
            status = open_transport(self, &own, i, deadline_ns);
    memcpy(puts->transports, own.transports, sizeof(puts->transports));
    puts->connectors = own.connectors;
    puts->slot_bytes = own.spec.slot_bytes[GYRE_PROTO_SIMPLE];
    if (status == GYRE_SUCCESS)
        gyre_store_release_u32(&puts->is_open, 1);
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "put links");
}

void gyre_put_transports_wake(const struct gyre_put_transports *puts)
{
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++)
        if (puts->transports[i] != NULL)
            puts->transports[i]->ops->wake(puts->transports[i]);
}

void gyre_put_transports_close(struct gyre_put_transports *puts)
{
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++)
        if (puts->transports[i] != NULL)
            puts->transports[i]->ops->close(puts->transports[i]);
    free(puts->connectors);
    memset(puts, 0, sizeof(*puts));
}
