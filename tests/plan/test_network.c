/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/links/links.h"

#include "core/engine/plan/plan.h"
#include "core/foundation/base/util.h"
#include "tests/support/check.h"

#include <math.h>

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

TEST_CASE("the shipped constants are those of the networks they stand for")
{
    const struct gyre_network rdma = {
        .is_rdma = true, .nic_mbit_per_s = 400000, .latency_ns = 2000};
    const struct gyre_network tcp = {.nic_mbit_per_s = 10000, .latency_ns = 10000};
    const struct gyre_cost gpus = gyre_network_cost(&gyre_cost_h200, &rdma);
    const struct gyre_cost hosts = gyre_network_cost(&gyre_cost_host, &tcp);
    CHECK(is_near(gpus.nic_bytes_per_ns, gyre_cost_h200.nic_bytes_per_ns));
    CHECK(is_near(hosts.nic_bytes_per_ns, gyre_cost_host.nic_bytes_per_ns));
    CHECK(is_near(gpus.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_NETWORK],
                  gyre_cost_h200.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_NETWORK]));
    CHECK(is_near(hosts.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_NETWORK],
                  gyre_cost_host.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_NETWORK]));
    CHECK(is_near(gpus.credit_ns[GYRE_LINK_NETWORK], gyre_cost_h200.credit_ns[GYRE_LINK_NETWORK]));
    CHECK(is_near(hosts.credit_ns[GYRE_LINK_NETWORK], gyre_cost_host.credit_ns[GYRE_LINK_NETWORK]));
}

/* Predictions must contain the wire's latency. */
TEST_CASE("every protocol waits for the wire")
{
    const struct gyre_network slow = {.is_rdma = true, .latency_ns = 300000};
    const struct gyre_cost cost = gyre_network_cost(&gyre_cost_h200, &slow);
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++)
        CHECK(is_near(cost.hop_ns[proto][GYRE_LINK_NETWORK],
                      gyre_cost_h200.hop_ns[proto][GYRE_LINK_NETWORK] + 298000));
}

TEST_CASE("what is unknown stays as shipped")
{
    const struct gyre_network nothing = {.is_rdma = true};
    const struct gyre_cost cost = gyre_network_cost(&gyre_cost_h200, &nothing);
    CHECK(memcmp(&cost, &gyre_cost_h200, sizeof(cost)) == 0);
}

TEST_CASE("a host that has lost one of two ports halves the rate")
{
    const struct gyre_network weak = {
        .is_rdma = true, .nic_mbit_per_s = 400000, .least_ports = 1, .most_ports = 2};
    const struct gyre_cost cost = gyre_network_cost(&gyre_cost_h200, &weak);
    CHECK(is_near(cost.nic_bytes_per_ns, gyre_cost_h200.nic_bytes_per_ns / 2));
    CHECK(is_near(cost.nic_bytes_per_ns, 24.5)); /* 98 % of 50 GB/s, halved */
}

/* Hosts of one rank each, the last one of @n_pairs more, over NICs of 10 Gbit/s. */
static struct gyre_tuner_facts hosts_facts(unsigned n_hosts, unsigned n_pairs, double weak_part)
{
    static struct gyre_grouping grouping;
    static struct gyre_cost cost;
    struct gyre_network network = {.is_rdma = true, .nic_mbit_per_s = 10000, .latency_ns = 2000};
    struct gyre_peer_counts peers;
    const unsigned n_ranks = n_hosts + n_pairs;
    grouping = (struct gyre_grouping){
        .n_hosts = (uint16_t)n_hosts, .weak_host = 2, .weak_part = weak_part};
    for (unsigned rank = 0; rank < n_ranks; rank++)
        grouping.host_of[rank] = (uint16_t)gyre_min_u32(rank, n_hosts - 1);
    network.least_ports = (uint32_t)(100 * weak_part);
    network.most_ports = 100;
    cost = gyre_network_cost(&gyre_cost_host, &network);
    CHECK_OK(gyre_near_peers_count(&grouping, n_ranks, &peers));
    const struct gyre_fifo_spec spec =
        gyre_tuner_fifo_spec_across(GYRE_DEVICE_HOST, &peers, false, true, 0, UINT32_MAX);
    return (struct gyre_tuner_facts){.device_kind = GYRE_DEVICE_HOST,
                                     .n_ranks = n_ranks,
                                     .n_hosts = n_hosts,
                                     .is_proxied = true,
                                     .is_direct_inside = n_pairs > 0,
                                     .min_channels = 1,
                                     .max_channels = spec.n_fifos,
                                     .spec = spec,
                                     .grouping = &grouping,
                                     .cost = &cost};
}

/* By the algorithm; NULL = by the best one, of all reduced bytes. */
static double predict_ns(const struct gyre_tuner_facts *facts, const char *algos, uint64_t n_bytes,
                         const struct gyre_algorithm **algorithm_out)
{
    struct gyre_filter filter;
    struct gyre_choice choice;
    double time_ns = 0;
    CHECK_OK(gyre_filter_parse(algos, "", "", &filter));
    CHECK_OK(gyre_tuner_choose(facts, &filter, GYRE_COLL_ALL_REDUCE, n_bytes, &choice));
    CHECK_OK(
        gyre_tuner_predict(facts, facts->cost, GYRE_COLL_ALL_REDUCE, &choice, n_bytes, &time_ns));
    *algorithm_out = choice.algorithm;
    return time_ns;
}

TEST_CASE("a host that has lost a part of its ports becomes a leaf of large all-reduces")
{
    const double parts[] = {0.75, 0.5, 0.25};
    const struct gyre_algorithm *algorithm;
    for (unsigned n = 3; n <= 32; n = n < 6 ? n + 1 : 2 * n)
        for (int i = 0; i < 3; i++) {
            const double part = parts[i], m = n - 1;
            struct gyre_tuner_facts facts = hosts_facts(n, 0, part);
            const double ring_ns = predict_ns(&facts, "ring", 256 << 20, &algorithm);
            const double chosen_ns = predict_ns(&facts, "", 256 << 20, &algorithm);
            /* In units of B over the weak host's rate: it moves B, on whose rails the others move
             * B / m with it and a part of 2 B - 2 B / m among themselves; a ring moves 2 B m / n.
             */
            const double formula = fmax(1, (2 - 2 / m) * part + 1 / m) / (2 * m / n);
            CHECK_MSG(formula > 0.85 || algorithm == &gyre_algorithm_leaf, "%u hosts, %.2f: %s", n,
                      part, algorithm->name);
            if (algorithm == &gyre_algorithm_leaf)
                CHECK_MSG(fabs(chosen_ns / ring_ns - formula) < 0.08,
                          "%u hosts, %.2f: %.3f of the ring's time, by formula %.3f", n, part,
                          chosen_ns / ring_ns, formula);
            predict_ns(&facts, "", 1024, &algorithm);
            CHECK(algorithm != &gyre_algorithm_leaf); /* many hops */
        }
}

TEST_CASE("without a weak host, or with several ranks on a host, no host is a leaf")
{
    const struct gyre_algorithm *algorithm;
    const struct gyre_tuner_facts healthy = hosts_facts(8, 0, 0);
    predict_ns(&healthy, "", 256 << 20, &algorithm);
    CHECK(algorithm != &gyre_algorithm_leaf);
    const struct gyre_tuner_facts paired = hosts_facts(8, 1, 0.5);
    predict_ns(&paired, "", 256 << 20, &algorithm);
    CHECK(algorithm != &gyre_algorithm_leaf);
    struct gyre_shape shape = {.n_ranks = 9, .grouping = paired.grouping};
    CHECK(strcmp(gyre_leaf_obstacle(&shape), "a host has several ranks") == 0);
    const struct gyre_tuner_facts two = hosts_facts(2, 0, 0.5);
    shape = (struct gyre_shape){.n_ranks = 2, .grouping = two.grouping};
    CHECK(strcmp(gyre_leaf_obstacle(&shape), "there are two hosts") == 0);
    shape.grouping = NULL;
    CHECK(strstr(gyre_leaf_obstacle(&shape), "no host has fewer RDMA ports") != NULL);
}

TEST_CASE("constants inside hosts do not depend on the network")
{
    const struct gyre_network slow = {.nic_mbit_per_s = 100, .latency_ns = 5000000};
    const struct gyre_cost cost = gyre_network_cost(&gyre_cost_host, &slow);
    CHECK(is_near(cost.nic_bytes_per_ns, 0.0115)); /* 92 % of 12.5 MB/s */
    CHECK(is_near(cost.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_NETWORK], 5010000));
    CHECK(is_near(cost.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_HOST],
                  gyre_cost_host.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_HOST]));
    CHECK(is_near(cost.worker_read_bytes_per_ns, gyre_cost_host.worker_read_bytes_per_ns));
}

TEST_CASE("round trips fall into classes of powers of two")
{
    CHECK(gyre_network_round(0) == 0);
    CHECK(gyre_network_round(1) == 1000);
    CHECK(gyre_network_round(1400) == 1000);
    CHECK(gyre_network_round(1500) == 2000);
    CHECK(gyre_network_round(2000) == 2000);
    CHECK(gyre_network_round(23000) == 32000); /* 23 / 16 is above the square root of two */
    CHECK(gyre_network_round(22000) == 16000);
    CHECK(gyre_network_round(UINT64_MAX) > UINT64_MAX / 8192);
}

TEST_CASE("rates fall into ten classes for a power of ten")
{
    CHECK(gyre_network_round_rate(0) == 0);
    CHECK(gyre_network_round_rate(1) == 1);
    CHECK(gyre_network_round_rate(191) == 200); /* TCP's payload on 200 Mbit/s */
    CHECK(gyre_network_round_rate(224) == 200);
    CHECK(gyre_network_round_rate(226) == 250); /* 225 is in the middle of both */
    CHECK(gyre_network_round_rate(899) == 800);
    CHECK(gyre_network_round_rate(901) == 1000);
    CHECK(gyre_network_round_rate(9400) == 10000);
    CHECK(gyre_network_round_rate(23500) == 25000);
    CHECK(gyre_network_round_rate(UINT64_MAX) == 4000000000);
}

TEST_CASE("the median leaves out ranks that know nothing")
{
    uint64_t none[] = {0, 0}, one[] = {0, 7, 0}, odd[] = {9, 0, 1, 5}, outlier[] = {4, 4, 1000, 0};
    CHECK(gyre_network_median(none, 2) == 0);
    CHECK(gyre_network_median(one, 3) == 7);
    CHECK(gyre_network_median(odd, 4) == 5);
    CHECK(gyre_network_median(outlier, 4) == 4);
}
