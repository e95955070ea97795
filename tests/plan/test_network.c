/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/links/links.h"

#include "core/engine/plan/plan.h"
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
