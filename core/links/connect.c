/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the connectors of a communicator after bootstrap. All ranks check that they agree on all
 * settings that a plan depends on, choose one transport for each pair together, and connect.
 */
#include "core/links/links.h"

#include "core/base/log.h"
#include "core/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- agreement ---------------------------------------------------------------------------- */

#define N_CONFIG_SETTINGS 4

/* The settings that must be equal on all ranks. Ranks all-gather them, so the layout is fixed. */
struct agreement {
    uint32_t version;
    uint32_t device_kind;
    int32_t config[N_CONFIG_SETTINGS];
    uint64_t algo_hash;   /* of the programs in GYRE_ALGO_FILE; 0 = not set */
    uint64_t tuning_hash; /* of the constants in GYRE_TUNING_FILE; 0 = not set */
    uint64_t number;      /* not compared: the newest communicator's of this process */
    struct {
        uint64_t hash;
        char text[24]; /* for the message; may be cut */
    } params[GYRE_N_PARAMS];
};

static const char *const config_names[N_CONFIG_SETTINGS] = {"min_channels", "max_channels",
                                                            "sm_budget", "transport"};

static void fill_agreement(const struct gyre_member *member, const struct gyre_links_terms *terms,
                           struct agreement *mine)
{
    memset(mine, 0, sizeof(*mine));
    mine->version = GYRE_VERSION;
    mine->device_kind = member->device_info.kind;
    mine->config[0] = member->config.min_channels;
    mine->config[1] = member->config.max_channels;
    mine->config[2] = member->config.sm_budget;
    if (member->config.transport != NULL)
        mine->config[3] = (int32_t)gyre_hash(GYRE_HASH_INIT, member->config.transport,
                                             strlen(member->config.transport));
    mine->algo_hash = terms->algo_hash;
    mine->tuning_hash = terms->tuning_hash;
    mine->number = terms->newest_number;
    for (int id = 0; id < GYRE_N_PARAMS; id++) {
        if ((gyre_param_flags((enum gyre_param_id)id) & GYRE_PARAM_PLAN) == 0)
            continue;
        const struct gyre_param_value *value = &member->params.values[id];
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
    if (first->algo_hash != other->algo_hash)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "init: the programs in GYRE_ALGO_FILE differ: hash %016llx on rank 0, "
                         "%016llx on rank %d (0 = not set); give all ranks the same file",
                         (unsigned long long)first->algo_hash, (unsigned long long)other->algo_hash,
                         other_rank);
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

/* Give the communicator its number, by a Lamport clock. The number is the same on all ranks and
 * greater than the number of every earlier communicator of these processes. Two communicators that
 * are made at the same time may get the same number. */
static void take_number(struct gyre_member *member, const struct agreement *all)
{
    for (int rank = 0; rank < member->n_ranks; rank++)
        if (member->number < all[rank].number)
            member->number = all[rank].number;
    member->number++;
}

static gyre_status agree(struct gyre_member *member, const struct gyre_links_terms *terms)
{
    struct agreement mine;
    struct agreement *all = malloc((size_t)member->n_ranks * sizeof(*all));
    if (all == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    fill_agreement(member, terms, &mine);
    gyre_status status =
        member->bootstrap->ops->all_gather(member->bootstrap, &mine, sizeof(mine), all);
    for (int rank = 1; rank < member->n_ranks && status == GYRE_SUCCESS; rank++)
        status = compare_agreement(&all[0], &all[rank], rank);
    if (status == GYRE_SUCCESS)
        take_number(member, all);
    free(all);
    return status;
}

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

/* ---- one transport per pair --------------------------------------------------------------- */

#define NO_TRANSPORT 127

/* A bit of the same byte: this rank finds that only NVLink is between the two GPUs. LL128 needs
 * NVLink, because over PCIe a store of 128 bytes may arrive in parts. */
#define OVER_NVLINK 128

/* Find the first transport with which this rank reaches the peer, and the reasons why the
 * transports before it do not. */
static uint8_t first_reachable(const struct gyre_member *member, const struct gyre_peer_info *infos,
                               int peer, char *whys_out, size_t why_bytes)
{
    size_t used = 0;
    whys_out[0] = '\0';
    for (int i = 0; gyre_transports[i] != NULL; i++) {
        const struct gyre_transport_ops *ops = gyre_transports[i];
        char why[160] = "";
        if (member->config.transport != NULL &&
            strcasecmp(member->config.transport, ops->name) != 0)
            snprintf(why, sizeof(why), "only %s is allowed", member->config.transport);
        else if (ops->reachable(&member->params, &infos[member->rank], &infos[peer], why,
                                sizeof(why)))
            return (uint8_t)i;
        if (infos[member->rank].host_hash == infos[peer].host_hash)
            GYRE_INFO(INIT, "rank %d -> %d not via %s: %s", member->rank, peer, ops->name, why);
        if (used < why_bytes)
            used += (size_t)snprintf(whys_out + used, why_bytes - used, "%s%s: %s",
                                     used > 0 ? "; " : "", ops->name, why);
    }
    return NO_TRANSPORT;
}

/* Choose the transport of a pair from the answers of its two ranks. Transports are in order of
 * preference, and each rank names its first possible one; the later of the two is chosen. Returns
 * NO_TRANSPORT if there is none.
 * @rank: this rank. @all: the answer of rank i about rank j stands at i * n + j. */
static uint8_t agree_on_pair(struct gyre_links *links, int rank, const uint8_t *all, size_t n,
                             const size_t pair[2])
{
    const size_t a = pair[0], b = pair[1];
    const uint8_t says_a = all[a * n + b], says_b = all[b * n + a];
    const uint8_t index_a = says_a & NO_TRANSPORT;
    const uint8_t index_b = says_b & NO_TRANSPORT;
    const uint8_t agreed = index_a > index_b ? index_a : index_b;
    if (agreed == NO_TRANSPORT)
        return agreed;
    const struct gyre_transport_ops *ops = gyre_transports[agreed];
    const bool is_nvlink = (says_a & says_b & OVER_NVLINK) != 0 && ops->is_direct;
    const bool is_inside = links->grouping.host_of[a] == links->grouping.host_of[b];
    const bool has_lines = is_inside || !ops->is_proxied; /* links between hosts go by SIMPLE */
    if (links->is_ll128_safe && has_lines && !is_nvlink)
        GYRE_INFO(TUNING, "no ll128: ranks %zu and %zu see no NVLink between their GPUs", a, b);
    links->is_ll128_safe = links->is_ll128_safe && (is_nvlink || !has_lines);
    links->is_p2p = links->is_p2p && ops->is_direct;
    links->is_proxied = links->is_proxied || ops->is_proxied;
    links->is_proxied_inside = links->is_proxied_inside || (ops->is_proxied && is_inside);
    links->uses_rdma = links->uses_rdma || ops->is_rdma;
    links->has_net_lines = links->has_net_lines && (ops->has_lines || !ops->is_proxied);
    if ((int)a == rank)
        links->transport_of[b] = agreed;
    if ((int)b == rank)
        links->transport_of[a] = agreed;
    return agreed;
}

/* Fill in this rank's row of the table of pairs. @whys_out: the reasons why the last peer without a
 * transport has none. */
static void fill_own_row(const struct gyre_member *member, const struct gyre_links *links,
                         char *whys_out, size_t why_bytes)
{
    uint8_t *row = links->transport_of;
    char whys[640];
    for (int peer = 0; peer < member->n_ranks; peer++) {
        if (peer == member->rank)
            continue;
        row[peer] = first_reachable(member, links->infos, peer, whys, sizeof(whys));
        if (row[peer] == NO_TRANSPORT)
            snprintf(whys_out, why_bytes, "%s", whys);
        if (links->infos[peer].path_level <= GYRE_TOPO_NVB)
            row[peer] |= OVER_NVLINK;
    }
}

static gyre_status choose_transports(const struct gyre_member *member, struct gyre_links *links)
{
    const size_t n = (size_t)member->n_ranks;
    uint8_t *all = malloc(n * n);
    char whys[640] = "";
    links->transport_of = calloc(n, 1);
    if (all == NULL || links->transport_of == NULL) {
        free(all);
        return gyre_fail_errno(ENOMEM, "init");
    }
    fill_own_row(member, links, whys, sizeof(whys));
    gyre_status status =
        member->bootstrap->ops->all_gather(member->bootstrap, links->transport_of, n, all);
    for (size_t a = 0; a < n && status == GYRE_SUCCESS; a++)
        for (size_t b = a + 1; b < n && status == GYRE_SUCCESS; b++)
            if (agree_on_pair(links, member->rank, all, n, (const size_t[]){a, b}) == NO_TRANSPORT)
                status = gyre_fail(GYRE_ERROR_UNSUPPORTED,
                                   "init: no transport between rank %zu (%s) and rank %zu (%s)%s%s",
                                   a, links->infos[a].host_name, b, links->infos[b].host_name,
                                   whys[0] != '\0' ? " - " : "", whys);
    free(all);
    return status;
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
 * same text. GPUs set memory aside for lines between hosts only then, because they are not used
 * unless they are asked for, and take 32 MiB. */
static bool asks_for_net_lines(const struct gyre_member *member)
{
    static const char simple[] = "simple";
    const char *text = gyre_param_text(&member->params, GYRE_PARAM_PROTO);
    for (const char *at = strchr(text, '/'); at != NULL; at = strchr(at + 1, '/'))
        if (strncasecmp(at + 1, simple, strlen(simple)) != 0)
            return true;
    return false;
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
    const bool has_lines = links->has_net_lines && links->is_proxied;
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
    links->spec = gyre_tuner_fifo_spec_across(kind, &peers, links->is_proxied_inside, buffer_bytes,
                                              max_channels);
    /* Kernels go by one line protocol in a call, so GPUs need slots of LL inside hosts, too. */
    if (has_lines && (kind == GYRE_DEVICE_HOST ||
                      (links->spec.slot_bytes[GYRE_PROTO_LL] > 0 && asks_for_net_lines(member))))
        links->spec.net_line_bytes = gyre_net_line_bytes(
            kind, &links->spec, peers.n_near + (links->is_proxied_inside ? peers.n_inside : 0),
            peers.n_far);
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
    GYRE_TRY(agree(member, terms));
    GYRE_TRY(gather_infos(member, links));
    GYRE_TRY(gyre_links_check_gpus(member, links));
    GYRE_TRY(gyre_links_check_traces(member, links));
    GYRE_TRY(gyre_topology_dump(member, links));
    gyre_topology_compare(member, links);
    links->is_ll128_safe = member->device_info.kind == GYRE_DEVICE_CUDA;
    links->is_p2p = true;
    links->has_net_lines = true;
    GYRE_TRY(choose_transports(member, links));
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
