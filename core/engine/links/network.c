/* SPDX-License-Identifier: Apache-2.0
 *
 * Medians of what ranks' NICs tell and transports measure, unless GYRE_NET_RATE and
 * GYRE_NET_LATENCY are set.
 */
#include "core/engine/links/links.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

uint64_t gyre_network_round(uint64_t round_trip_ns)
{
    uint64_t class_ns = 1000;
    if (round_trip_ns == 0)
        return 0;
    /* nearer from the square root of two on */
    while (class_ns < UINT64_MAX / 4096 && round_trip_ns > class_ns / 1000 * 1414)
        class_ns *= 2;
    return class_ns;
}

uint64_t gyre_network_round_rate(uint64_t mbit_per_s)
{
    /* Ten classes for a power of ten, in thousandths; the usual rates of Ethernet are among
     * them. */
    static const uint64_t classes[] = {1000, 1250, 1600, 2000, 2500, 3200,
                                       4000, 5000, 6400, 8000, 10000};
    uint64_t power = 1;
    size_t i = 0;
    if (mbit_per_s == 0)
        return 0;
    mbit_per_s = gyre_min_u64(mbit_per_s, UINT32_MAX);
    while (mbit_per_s >= 10 * power)
        power *= 10;
    while (i < 10 && 2000 * mbit_per_s > (classes[i] + classes[i + 1]) * power)
        i++;
    return classes[i] * power / 1000;
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

uint64_t gyre_network_median(uint64_t *values, int n)
{
    int n_unknown = 0;
    qsort(values, (size_t)n, sizeof(*values), compare);
    while (n_unknown < n && values[n_unknown] == 0)
        n_unknown++;
    return n_unknown < n ? values[n_unknown + (n - n_unknown) / 2] : 0;
}

/* 0 = the NIC tells none, or there is no hardware behind it. */
static uint32_t told_rate(const struct gyre_links *links, int rank)
{
    const struct gyre_peer_info *info = &links->infos[rank];
    if (links->uses_rdma)
        return info->ib_mbit_per_s;
    return gyre_peer_info_tells_rate(info) ? info->net_mbit_per_s : 0;
}

/* From this rate on a measurement shows how fast one thread copies; calls move data with
 * several. */
#define THREAD_MBIT_PER_S 8000

/* The same on all ranks. */
struct rates {
    uint64_t given; /* by GYRE_NET_RATE; 0 = not set */
    int slowest;    /* the rank whose NIC tells the lowest rate; -1 = none */
    uint64_t told;
    uint64_t measured; /* the ranks' median; 0 = none measured */
};

static void log_rate(const struct gyre_rank *self, const struct gyre_links *links,
                     const struct rates *rates)
{
    const uint32_t chosen = links->network.nic_mbit_per_s;
    const char *assumed = self->device_info.kind == GYRE_DEVICE_CUDA ? "400 Gbit/s" : "10 Gbit/s";
    if (rates->given > 0)
        GYRE_INFO(TUNING, "network: NICs of %u Mbit/s, by %s", chosen,
                  gyre_param_source(&self->params, GYRE_PARAM_NET_RATE));
    else if (chosen == 0 && rates->measured > 0)
        GYRE_INFO(
            TUNING,
            "network: NICs tell no rate, and data arrived as fast as one thread copies (%" PRIu64
            " Mbit/s in the median of hosts); %s is assumed. GYRE_NET_RATE=<Mbit/s> sets the "
            "rate",
            rates->measured, assumed);
    else if (chosen == 0)
        GYRE_INFO(TUNING,
                  "network: NICs tell no rate and none was measured; %s is assumed. "
                  "GYRE_NET_RATE=<Mbit/s> sets the rate",
                  assumed);
    else if (rates->told == chosen)
        GYRE_INFO(TUNING, "network: NICs of %u Mbit/s, the rate of %s of rank %d, which is slowest",
                  chosen,
                  links->uses_rdma ? "the RDMA port" : links->infos[rates->slowest].net_name,
                  rates->slowest);
    else
        GYRE_INFO(TUNING,
                  "network: NICs of %u Mbit/s; data arrived at %" PRIu64
                  " Mbit/s in the median of hosts. GYRE_NET_RATE=<Mbit/s> sets the rate",
                  chosen, rates->measured);
}

/* Over RDMA a rank writes to its peers, so all must have connected; not if GYRE_NET_LATENCY is set.
 * TCP was measured while connecting. */
static gyre_status measure_all(const struct gyre_rank *self, const struct gyre_links *links,
                               struct gyre_wire *medians_out)
{
    const size_t n = (size_t)self->n_ranks;
    const bool measures =
        !links->uses_rdma || gyre_param_number(&self->params, GYRE_PARAM_NET_LATENCY) <= 0;
    struct gyre_wire mine = {.round_trip_ns = 0};
    GYRE_FREED struct gyre_wire *all = malloc(n * sizeof(*all));
    GYRE_FREED uint64_t *values = malloc(n * sizeof(*values));
    if (values == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    if (links->uses_rdma && measures) /* wait for all ranks */
        GYRE_TRY(gyre_rank_gather(self, &mine, sizeof(mine), all));
    for (int i = 0; i < GYRE_MAX_TRANSPORTS && measures; i++) {
        struct gyre_transport *transport = links->transports[i];
        if (transport != NULL && transport->ops->is_proxied &&
            transport->ops->is_rdma == links->uses_rdma)
            transport->ops->measure(transport, &mine);
    }
    GYRE_TRY(gyre_rank_gather(self, &mine, sizeof(mine), all));
    for (size_t i = 0; i < n; i++)
        values[i] = all[i].round_trip_ns;
    medians_out->round_trip_ns = gyre_network_median(values, self->n_ranks);
    for (size_t i = 0; i < n; i++)
        values[i] = all[i].mbit_per_s;
    medians_out->mbit_per_s = gyre_network_median(values, self->n_ranks);
    return GYRE_SUCCESS;
}

/* A rank of the host with the fewest ports, for which a call waits, of those with the most ranks: a
 * host with fewer ranks needs fewer. */
static int find_weakest(const struct gyre_links *links, int n_ranks, uint32_t *most_ports_out)
{
    uint16_t n_of_host[GYRE_MAX_RANKS] = {0};
    uint16_t most_ranks = 0;
    int weakest = -1;
    for (int rank = 0; rank < n_ranks; rank++)
        n_of_host[links->grouping.host_of[rank]]++;
    for (int host = 0; host < links->grouping.n_hosts; host++)
        if (n_of_host[host] > most_ranks)
            most_ranks = n_of_host[host];
    for (int rank = 0; rank < n_ranks; rank++) {
        const uint32_t n_ports = links->infos[rank].ib_n_ports;
        if (n_of_host[links->grouping.host_of[rank]] < most_ranks)
            continue;
        if (n_ports > *most_ports_out)
            *most_ports_out = n_ports;
        if (weakest < 0 || n_ports < links->infos[weakest].ib_n_ports)
            weakest = rank;
    }
    return weakest;
}

/* Sets links->grouping's weak host, whose ranks have fewer ports than any other host's. */
static void find_weak_host(struct gyre_links *links, int n_ranks, int weakest)
{
    struct gyre_grouping *grouping = &links->grouping;
    const uint16_t host = grouping->host_of[weakest];
    uint32_t next = 0; /* ports of the next host; 0 = none yet */
    for (int rank = 0; rank < n_ranks; rank++)
        if (grouping->host_of[rank] != host && (next == 0 || links->infos[rank].ib_n_ports < next))
            next = links->infos[rank].ib_n_ports;
    const uint32_t least = links->infos[weakest].ib_n_ports;
    grouping->weak_host = host;
    grouping->weak_part = least > 0 && least < next ? (double)least / next : 0;
}

gyre_status gyre_links_measure(const struct gyre_rank *self, struct gyre_links *links)
{
    const int64_t given_rate = gyre_param_number(&self->params, GYRE_PARAM_NET_RATE);
    const int64_t given_ns = gyre_param_number(&self->params, GYRE_PARAM_NET_LATENCY);
    struct gyre_wire measured = {.round_trip_ns = 0};
    if (links->grouping.n_hosts < 2)
        return GYRE_SUCCESS;
    GYRE_TRY(measure_all(self, links, &measured));
    int slowest = -1; /* of the NICs that tell a rate */
    for (int rank = 0; rank < self->n_ranks; rank++)
        if (told_rate(links, rank) > 0 &&
            (slowest < 0 || told_rate(links, rank) < told_rate(links, slowest)))
            slowest = rank;
    const struct rates rates = {.given = given_rate > 0 ? (uint64_t)given_rate : 0,
                                .slowest = slowest,
                                .told = slowest >= 0 ? told_rate(links, slowest) : 0,
                                .measured = measured.mbit_per_s};
    const uint64_t measured_rate =
        rates.measured < THREAD_MBIT_PER_S ? gyre_network_round_rate(rates.measured) : 0;
    uint64_t rate = rates.given;
    if (rate == 0 && measured_rate > 0 && rates.told > 0)
        rate = gyre_min_u64(measured_rate, rates.told);
    else if (rate == 0)
        rate = measured_rate > 0 ? measured_rate : rates.told;
    uint32_t most_ports = 0;
    const int weakest = find_weakest(links, self->n_ranks, &most_ports);
    const uint32_t least_ports = links->infos[weakest].ib_n_ports;
    const bool counts_ports = links->uses_rdma && rates.given == 0;
    links->network = (struct gyre_network){
        .is_rdma = links->uses_rdma,
        .nic_mbit_per_s = (uint32_t)gyre_min_u64(rate, UINT32_MAX),
        .least_ports = counts_ports ? least_ports : 0,
        .most_ports = counts_ports ? most_ports : 0,
        .latency_ns =
            given_ns > 0 ? (uint64_t)given_ns : gyre_network_round(measured.round_trip_ns) / 2};
    if (counts_ports)
        find_weak_host(links, self->n_ranks, weakest);
    if (self->rank != 0)
        return GYRE_SUCCESS;
    log_rate(self, links, &rates);
    const struct gyre_shape shape = {.n_ranks = (uint16_t)self->n_ranks,
                                     .grouping = &links->grouping};
    if (links->network.least_ports < links->network.most_ports)
        GYRE_INFO(TUNING,
                  "network: %s (rank %d) has %u RDMA ports and another host %u: ways are predicted "
                  "with %u %% of the NICs' rate%s",
                  links->infos[weakest].host_name, weakest, least_ports, most_ports,
                  100 * least_ports / most_ports,
                  gyre_leaf_obstacle(&shape) == NULL ? "; leaf leaves the other hosts theirs" : "");
    const uint64_t chosen_ns = links->network.latency_ns;
    if (gyre_param_number(&self->params, GYRE_PARAM_NET_LATENCY) > 0)
        GYRE_INFO(TUNING, "network: a latency of %" PRIu64 " ns, by %s", chosen_ns,
                  gyre_param_source(&self->params, GYRE_PARAM_NET_LATENCY));
    else if (measured.round_trip_ns > 0)
        GYRE_INFO(TUNING,
                  "network: a latency of %" PRIu64 " ns; round trips took %" PRIu64
                  " ns in the median of all ranks",
                  chosen_ns, measured.round_trip_ns);
    else
        GYRE_INFO(TUNING,
                  "network: the latency was not measured (%s), so the shipped one is "
                  "assumed. GYRE_NET_LATENCY=<ns> sets it",
                  links->uses_rdma ? "no port answered a write" : "the kernel tells no round trip");
    return GYRE_SUCCESS;
}
