/* SPDX-License-Identifier: Apache-2.0
 *
 * From bootstrap to connectors: all ranks check that they agree on everything that a plan depends
 * on, choose one transport per pair together, and connect.
 */
#include "core/comm/comm.h"

#include "core/base/log.h"
#include "core/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- agreement ---------------------------------------------------------------------------- */

#define N_CONFIG_SETTINGS 4

/* What must be equal everywhere. Exchanged: fixed layout. */
struct agreement {
    uint32_t version;
    uint32_t device_kind;
    int32_t config[N_CONFIG_SETTINGS];
    uint64_t tuning_hash; /* of the constants in GYRE_TUNING_FILE; 0 = not set */
    uint64_t number;      /* not compared: the newest communicator's of this process */
    struct {
        uint64_t hash;
        char text[24]; /* for the message; may be cut */
    } params[GYRE_N_PARAMS];
};

static const char *const config_names[N_CONFIG_SETTINGS] = {"min_channels", "max_channels",
                                                            "sm_budget", "transport"};

static void fill_agreement(const gyre_comm *comm, struct agreement *mine)
{
    memset(mine, 0, sizeof(*mine));
    mine->version = GYRE_VERSION;
    mine->device_kind = comm->device_info.kind;
    mine->config[0] = comm->config.min_channels;
    mine->config[1] = comm->config.max_channels;
    mine->config[2] = comm->config.sm_budget;
    if (comm->config.transport != NULL)
        mine->config[3] = (int32_t)gyre_hash(GYRE_HASH_INIT, comm->config.transport,
                                             strlen(comm->config.transport));
    mine->tuning_hash = comm->tuning.hash;
    mine->number = gyre_registry_number();
    for (int id = 0; id < GYRE_N_PARAMS; id++) {
        if ((gyre_param_flags((enum gyre_param_id)id) & GYRE_PARAM_PLAN) == 0)
            continue;
        const struct gyre_param_value *value = &comm->params.values[id];
        const char *text = value->text;
        mine->params[id].hash = gyre_hash(GYRE_HASH_INIT, text, strlen(text));
        snprintf(mine->params[id].text, sizeof(mine->params[id].text), "%s",
                 value->is_set ? text : "unset");
    }
}

static gyre_status compare_agreement(const struct agreement *first, const struct agreement *other,
                                     int other_rank)
{
    if (first->version != other->version)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "init: rank 0 runs gyre %u, rank %d runs gyre %u; load the same library "
                         "on all ranks",
                         first->version, other_rank, other->version);
    if (first->device_kind != other->device_kind)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "init: rank 0 uses the %s device, rank %d the %s device; set the same "
                         "device kind on all ranks",
                         first->device_kind == GYRE_DEVICE_CUDA ? "cuda" : "host", other_rank,
                         other->device_kind == GYRE_DEVICE_CUDA ? "cuda" : "host");
    for (int i = 0; i < N_CONFIG_SETTINGS; i++)
        if (first->config[i] != other->config[i])
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "init: config.%s differs: %d on rank 0, %d on rank %d",
                             config_names[i], first->config[i], other->config[i], other_rank);
    if (first->tuning_hash != other->tuning_hash)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "init: the constants in GYRE_TUNING_FILE differ: hash %016llx on rank 0, "
                         "%016llx on rank %d (0 = not set); give all ranks the same file",
                         (unsigned long long)first->tuning_hash,
                         (unsigned long long)other->tuning_hash, other_rank);
    for (int id = 0; id < GYRE_N_PARAMS; id++)
        if (first->params[id].hash != other->params[id].hash)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "init: GYRE_%s differs: \"%.23s\" on rank 0, \"%.23s\" on rank %d; "
                             "export it to all ranks",
                             gyre_param_name((enum gyre_param_id)id), first->params[id].text,
                             other->params[id].text, other_rank);
    return GYRE_SUCCESS;
}

/* A Lamport clock: greater than the number of every communicator that any of these processes had,
 * and the same on all ranks. Two communicators may get the same one, made at the same time. */
static void take_number(gyre_comm *comm, const struct agreement *all)
{
    for (int rank = 0; rank < comm->n_ranks; rank++)
        if (comm->number < all[rank].number)
            comm->number = all[rank].number;
    comm->number++;
    gyre_registry_note_number(comm->number);
}

static gyre_status agree(gyre_comm *comm)
{
    struct agreement mine;
    struct agreement *all = malloc((size_t)comm->n_ranks * sizeof(*all));
    if (all == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    fill_agreement(comm, &mine);
    gyre_status status =
        comm->bootstrap->ops->all_gather(comm->bootstrap, &mine, sizeof(mine), all);
    for (int rank = 1; rank < comm->n_ranks && status == GYRE_SUCCESS; rank++)
        status = compare_agreement(&all[0], &all[rank], rank);
    if (status == GYRE_SUCCESS)
        take_number(comm, all);
    free(all);
    return status;
}

/* ---- who is where ------------------------------------------------------------------------- */

static gyre_status gather_infos(gyre_comm *comm)
{
    struct gyre_links *links = &comm->links;
    struct gyre_peer_info mine;
    memset(&mine, 0, sizeof(mine));
    GYRE_TRY(gyre_peer_info_fill(&comm->params, comm->device, comm->rank, &mine));
    /* Without an interface there is no shrinking later, and nothing else is missing. */
    if (comm->n_ranks > 1 && gyre_door_open(&comm->params, &comm->door, &mine.door) != GYRE_SUCCESS)
        GYRE_INFO(INIT, "no door for gyre_comm_shrink: %s", gyre_cause());
    mine.topo_hash = gyre_topology_hash(comm);
    links->infos = calloc((size_t)comm->n_ranks, sizeof(*links->infos));
    if (links->infos == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    GYRE_TRY(comm->bootstrap->ops->all_gather(comm->bootstrap, &mine, sizeof(mine), links->infos));
    links->grouping.n_hosts = 0;
    for (int rank = 0; rank < comm->n_ranks; rank++) {
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

/* Two ranks on one GPU would wait for each other's blocks for ever. */
static gyre_status check_one_rank_per_gpu(const gyre_comm *comm)
{
    const struct gyre_peer_info *infos = comm->links.infos;
    if (comm->device_info.kind != GYRE_DEVICE_CUDA)
        return GYRE_SUCCESS;
    for (int a = 0; a < comm->n_ranks; a++)
        for (int b = a + 1; b < comm->n_ranks; b++)
            if (memcmp(infos[a].device.uuid, infos[b].device.uuid, sizeof(infos[a].device.uuid)) ==
                0)
                return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                                 "init: ranks %d and %d are on the same GPU (%s on %s); give each "
                                 "rank its own (LOCAL_RANK, CUDA_VISIBLE_DEVICES)",
                                 a, b, infos[a].device.pci_bus_id, infos[a].host_name);
    return GYRE_SUCCESS;
}

/* ---- one transport per pair --------------------------------------------------------------- */

#define NO_TRANSPORT 127

/* In the same byte: this rank sees only NVLink between the two GPUs. LL128 needs it: over PCIe a
 * store of 128 bytes may arrive in parts. */
#define OVER_NVLINK 128

/* This rank's view: the first transport that reaches the peer, and why the others do not. */
static uint8_t first_reachable(const gyre_comm *comm, int peer, char *whys_out, size_t why_bytes)
{
    const struct gyre_peer_info *infos = comm->links.infos;
    size_t used = 0;
    whys_out[0] = '\0';
    for (int i = 0; gyre_transports[i] != NULL; i++) {
        const struct gyre_transport_ops *ops = gyre_transports[i];
        char why[160] = "";
        if (comm->config.transport != NULL && strcasecmp(comm->config.transport, ops->name) != 0)
            snprintf(why, sizeof(why), "only %s is allowed", comm->config.transport);
        else if (ops->reachable(&comm->params, &infos[comm->rank], &infos[peer], why, sizeof(why)))
            return (uint8_t)i;
        if (infos[comm->rank].host_hash == infos[peer].host_hash)
            GYRE_INFO(INIT, "rank %d -> %d not via %s: %s", comm->rank, peer, ops->name, why);
        if (used < why_bytes)
            used += (size_t)snprintf(whys_out + used, why_bytes - used, "%s%s: %s",
                                     used > 0 ? "; " : "", ops->name, why);
    }
    return NO_TRANSPORT;
}

/* Take the pair's transport from what both said. Rows are in order of preference: the later one is
 * what both sides allow. NO_TRANSPORT if there is none. */
static uint8_t agree_on_pair(gyre_comm *comm, size_t a, size_t b, uint8_t says_a, uint8_t says_b)
{
    struct gyre_links *links = &comm->links;
    const uint8_t index_a = says_a & NO_TRANSPORT;
    const uint8_t index_b = says_b & NO_TRANSPORT;
    const uint8_t agreed = index_a > index_b ? index_a : index_b;
    if (agreed == NO_TRANSPORT)
        return agreed;
    const bool is_nvlink =
        (says_a & says_b & OVER_NVLINK) != 0 && gyre_transports[agreed] == &gyre_transport_p2p;
    if (links->is_ll128_safe && !is_nvlink)
        GYRE_INFO(TUNING, "no ll128: ranks %zu and %zu see no NVLink between their GPUs", a, b);
    links->is_ll128_safe = links->is_ll128_safe && is_nvlink;
    links->is_p2p = links->is_p2p && gyre_transports[agreed] == &gyre_transport_p2p;
    links->is_proxied = links->is_proxied || gyre_transports[agreed]->is_proxied;
    if ((int)a == comm->rank)
        links->transport_of[b] = agreed;
    if ((int)b == comm->rank)
        links->transport_of[a] = agreed;
    return agreed;
}

/* This rank's row of the table of pairs; why the last peer without a transport has none. */
static void fill_own_row(const gyre_comm *comm, uint8_t *row, char *whys_out, size_t why_bytes)
{
    char whys[640];
    for (int peer = 0; peer < comm->n_ranks; peer++) {
        if (peer == comm->rank)
            continue;
        row[peer] = first_reachable(comm, peer, whys, sizeof(whys));
        if (row[peer] == NO_TRANSPORT)
            snprintf(whys_out, why_bytes, "%s", whys);
        if (comm->links.infos[peer].path_level <= GYRE_TOPO_NVB)
            row[peer] |= OVER_NVLINK;
    }
}

static gyre_status choose_transports(gyre_comm *comm)
{
    struct gyre_links *links = &comm->links;
    const size_t n = (size_t)comm->n_ranks;
    uint8_t *all = malloc(n * n);
    char whys[640] = "";
    links->transport_of = calloc(n, 1);
    if (all == NULL || links->transport_of == NULL) {
        free(all);
        return gyre_fail_errno(ENOMEM, "init");
    }
    fill_own_row(comm, links->transport_of, whys, sizeof(whys));
    gyre_status status =
        comm->bootstrap->ops->all_gather(comm->bootstrap, links->transport_of, n, all);
    for (size_t a = 0; a < n && status == GYRE_SUCCESS; a++)
        for (size_t b = a + 1; b < n && status == GYRE_SUCCESS; b++)
            if (agree_on_pair(comm, a, b, all[a * n + b], all[b * n + a]) == NO_TRANSPORT)
                status = gyre_fail(GYRE_ERROR_UNSUPPORTED,
                                   "init: no transport between rank %zu (%s) and rank %zu (%s)%s%s",
                                   a, links->infos[a].host_name, b, links->infos[b].host_name,
                                   whys[0] != '\0' ? " - " : "", whys);
    free(all);
    return status;
}

/* ---- connecting --------------------------------------------------------------------------- */

static gyre_status check_ranks(void *context)
{
    struct gyre_bootstrap *bootstrap = context;
    return bootstrap->ops->check(bootstrap);
}

static gyre_status open_transport(gyre_comm *comm, int index, uint64_t deadline_ns)
{
    struct gyre_links *links = &comm->links;
    const struct gyre_transport_ops *ops = gyre_transports[index];
    uint16_t peers[GYRE_MAX_RANKS];
    int n_peers = 0;
    for (int peer = 0; peer < comm->n_ranks; peer++)
        if (peer != comm->rank && links->transport_of[peer] == index)
            peers[n_peers++] = (uint16_t)peer;
    const struct gyre_transport_config config = {
        .device = comm->device,
        .params = &comm->params,
        .rank = comm->rank,
        .n_ranks = comm->n_ranks,
        .infos = links->infos,
        .peers = peers,
        .n_peers = n_peers,
        .spec = links->spec,
        .ring_prev = links->ring_prev,
        .rendezvous = &comm->bootstrap->own_address,
        .secret = comm->bootstrap->secret,
        .traffic_class = comm->config.traffic_class,
        .service_level = comm->config.service_level,
        .fault = &comm->fault,
        .authenticate = gyre_authenticate,
        .check_ranks = check_ranks,
        .check_context = comm->bootstrap,
    };
    void *blob = NULL;
    size_t blob_bytes = 0;
    if (n_peers > 0)
        GYRE_TRY(ops->open(&config, &links->transports[index], &blob, &blob_bytes));
    if (n_peers > 0)
        gyre_comm_end_stage(comm, "making slots");
    void *blobs = NULL;
    size_t *offsets = calloc((size_t)comm->n_ranks + 1, sizeof(*offsets));
    gyre_status status = offsets != NULL ? GYRE_SUCCESS : gyre_fail_errno(ENOMEM, "init");
    if (status == GYRE_SUCCESS)
        status =
            comm->bootstrap->ops->all_gather_v(comm->bootstrap, blob, blob_bytes, &blobs, offsets);
    if (status == GYRE_SUCCESS && n_peers > 0)
        status =
            ops->connect(links->transports[index], blobs, offsets, deadline_ns, links->connectors);
    free(blob);
    free(blobs);
    free(offsets);
    return status;
}

/* Ranks of one host that run as different users talk as if they were on two hosts: said by the
 * host's lowest rank, once. */
static void warn_of_users(const gyre_comm *comm)
{
    const struct gyre_links *links = &comm->links;
    const struct gyre_peer_info *own = &links->infos[comm->rank];
    for (int peer = 0; peer < comm->n_ranks; peer++) {
        const struct gyre_peer_info *other = &links->infos[peer];
        if (other->host_hash != own->host_hash || peer == comm->rank)
            continue;
        if (peer < comm->rank)
            return;
        if (other->uid == own->uid || !gyre_transports[links->transport_of[peer]]->is_proxied)
            continue;
        GYRE_WARN("rank %d runs as user %u and rank %d, on the same host, as user %u: they cannot "
                  "map each other's memory and talk via %s; start all ranks as one user",
                  comm->rank, own->uid, peer, other->uid,
                  gyre_transports[links->transport_of[peer]]->name);
        return;
    }
}

static void log_links(gyre_comm *comm)
{
    struct gyre_links *links = &comm->links;
    size_t n_bytes = 0;
    links->summary[0] = '\0';
    for (int peer = 0; peer < comm->n_ranks; peer++) {
        if (peer == comm->rank)
            continue;
        const struct gyre_transport *transport = links->transports[links->transport_of[peer]];
        const char *words = transport->ops->describe(transport, peer);
        GYRE_INFO(INIT, "rank %d -> %d via %s", comm->rank, peer, words);
        const size_t used = strlen(links->summary);
        if (strstr(links->summary, words) == NULL)
            snprintf(links->summary + used, sizeof(links->summary) - used, "%s%s",
                     used > 0 ? "+" : "", words);
    }
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++)
        if (links->transports[i] != NULL)
            n_bytes += links->transports[i]->ops->memory_bytes(links->transports[i]);
    GYRE_INFO(INIT, "communicator %s: rank %d of %d, %u hosts, %s, %zu bytes of connection memory",
              comm->name, comm->rank, comm->n_ranks, links->grouping.n_hosts,
              links->summary[0] != '\0' ? links->summary : "alone", n_bytes);
    const struct gyre_peer_info *own = &links->infos[comm->rank];
    if (comm->rank == 0 && strstr(links->summary, "NET/Socket") != NULL && !own->ib_usable &&
        !gyre_param_is_set(&comm->params, GYRE_PARAM_NET) &&
        !gyre_param_number(&comm->params, GYRE_PARAM_IB_DISABLE) && comm->config.transport == NULL)
        GYRE_WARN("hosts talk over NET/Socket, not over RDMA: %s (GYRE_NET=Socket says that this "
                  "is meant)",
                  own->ib_reason);
}

/* Every rank says how its set-up ended, so that one rank's failure is every rank's error at once
 * and nobody waits for a peer that gave up. */
static gyre_status end_together(gyre_comm *comm, gyre_status status)
{
    if (status != GYRE_SUCCESS) {
        char text[GYRE_CAUSE_MAX_BYTES];
        status = gyre_comm_settle(comm, status);
        snprintf(text, sizeof(text), "init failed on rank %d: %.900s", comm->rank, gyre_cause());
        comm->bootstrap->ops->fail(comm->bootstrap, text);
        return status;
    }
    uint8_t done = 1;
    uint8_t *all = malloc((size_t)comm->n_ranks);
    if (all == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    status = comm->bootstrap->ops->all_gather(comm->bootstrap, &done, sizeof(done), all);
    free(all);
    return status == GYRE_SUCCESS ? status : gyre_comm_settle(comm, status);
}

static gyre_status fill_before(struct gyre_links *links, int n_ranks)
{
    const struct gyre_shape shape = {.n_ranks = (uint16_t)n_ranks, .grouping = &links->grouping};
    uint16_t order[GYRE_MAX_RANKS];
    links->ring_prev = calloc((size_t)n_ranks, sizeof(*links->ring_prev));
    if (links->ring_prev == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    gyre_order_by_host(&shape, order);
    for (int i = 0; i < n_ranks; i++)
        links->ring_prev[order[(i + 1) % n_ranks]] = order[i];
    return GYRE_SUCCESS;
}

static gyre_status connect_all(gyre_comm *comm)
{
    struct gyre_links *links = &comm->links;
    const uint64_t timeout_ns =
        (uint64_t)gyre_param_number(&comm->params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * 1000000000ULL;
    const uint64_t deadline_ns = gyre_now_ns() + timeout_ns;
    GYRE_TRY(gyre_topology_open(comm));
    gyre_comm_end_stage(comm, "finding the topology");
    GYRE_TRY(agree(comm));
    GYRE_TRY(gather_infos(comm));
    GYRE_TRY(check_one_rank_per_gpu(comm));
    GYRE_TRY(gyre_topology_dump(comm));
    gyre_topology_compare(comm);
    links->is_ll128_safe = comm->device_info.kind == GYRE_DEVICE_CUDA;
    links->is_p2p = true;
    GYRE_TRY(choose_transports(comm));
    gyre_comm_end_stage(comm, "agreeing on transports");
    const int64_t buffer_bytes = gyre_param_number(&comm->params, GYRE_PARAM_BUFFSIZE);
    links->spec = gyre_tuner_fifo_spec(
        (gyre_device_kind)comm->device_info.kind, (uint32_t)comm->n_ranks, links->is_proxied,
        buffer_bytes > 0 ? (uint64_t)buffer_bytes : 0, gyre_config_max_channels(&comm->config));
    GYRE_TRY(fill_before(links, comm->n_ranks));
    links->connectors =
        calloc((size_t)comm->n_ranks * links->spec.n_fifos * 2, sizeof(*links->connectors));
    if (links->connectors == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    for (int i = 0; gyre_transports[i] != NULL; i++)
        GYRE_TRY(open_transport(comm, i, deadline_ns));
    gyre_comm_end_stage(comm, "connecting");
    return GYRE_SUCCESS;
}

gyre_status gyre_connect(gyre_comm *comm)
{
    GYRE_TRY(end_together(comm, connect_all(comm)));
    log_links(comm);
    warn_of_users(comm);
    return GYRE_SUCCESS;
}

void gyre_links_wake(gyre_comm *comm)
{
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++)
        if (comm->links.transports[i] != NULL)
            comm->links.transports[i]->ops->wake(comm->links.transports[i]);
}

bool gyre_links_help(void *context, bool is_last)
{
    const gyre_comm *comm = context;
    bool has_moved = false;
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++) {
        struct gyre_transport *transport = comm->links.transports[i];
        if (transport != NULL)
            has_moved = transport->ops->help(transport, is_last) || has_moved;
    }
    return has_moved;
}

void gyre_disconnect(gyre_comm *comm)
{
    struct gyre_links *links = &comm->links;
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++)
        if (links->transports[i] != NULL)
            links->transports[i]->ops->close(links->transports[i]);
    free(links->connectors);
    free(links->transport_of);
    free(links->ring_prev);
    free(links->infos);
    gyre_topo_fini(&links->topo);
    memset(links, 0, sizeof(*links));
}
