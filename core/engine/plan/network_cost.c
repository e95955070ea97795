/* SPDX-License-Identifier: Apache-2.0
 *
 * The constants between hosts follow from a line rate and a latency and from the shares below.
 * With them the shipped constants come out for the networks that these stand for: 400 Gbit/s and
 * 2 us over RDMA, 10 Gbit/s and 10 us over TCP.
 */
#include "core/engine/plan/network_cost.h"

/* The part of a NIC's line rate that data get: 49 of 50 GB/s over RDMA (perftest, 1 QP), 1.15 of
 * 1.25 GB/s over TCP. */
#define RDMA_PART   0.98
#define SOCKET_PART 0.92

/* The latency of the network that the shipped constants of RDMA stand for. */
#define RDMA_WIRE_NS 2000

/* What proxies, notifications and waking add to a hop, and to a credit on its way back. */
#define RDMA_HOP_NS      9000
#define RDMA_CREDIT_NS   700
#define SOCKET_HOP_NS    10000
#define SOCKET_CREDIT_NS 10000

/* By so much a hop by lines is shorter than one by SIMPLE over TCP, besides the time of the step
 * itself. On GPUs the slots lie in host memory: the sender has no fence over PCIe, and the receiver
 * reads the data with its poll and not after it. On the host device there is nothing to gain.
 * This was predicted; measured were 2.5 to 4.4 us in calls of 1 KiB (2 H100, 2026-11). */
#define SOCKET_LINES_GAIN_NS 2000

static bool has_faster_lines(const struct gyre_cost *cost)
{
    return cost->hop_ns[GYRE_PROTO_LL][GYRE_LINK_NETWORK] <
           cost->hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_NETWORK];
}

struct gyre_cost gyre_network_cost(const struct gyre_cost *base, const struct gyre_network *network)
{
    struct gyre_cost cost = *base;
    const bool is_rdma = network->is_rdma;
    if (network->nic_mbit_per_s > 0) {
        cost.nic_bytes_per_ns =
            network->nic_mbit_per_s / 8000.0 * (is_rdma ? RDMA_PART : SOCKET_PART);
        cost.egress_bytes_per_ns[GYRE_LINK_NETWORK] = 0; /* the NIC is the limit */
        cost.ingress_bytes_per_ns[GYRE_LINK_NETWORK] = 0;
    }
    if (network->latency_ns > 0) {
        const double wire_ns = (double)network->latency_ns;
        cost.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_NETWORK] =
            wire_ns + (is_rdma ? RDMA_HOP_NS : SOCKET_HOP_NS);
        if (is_rdma && has_faster_lines(base)) {
            for (int proto = GYRE_PROTO_SIMPLE + 1; proto < GYRE_N_PROTOS; proto++)
                cost.hop_ns[proto][GYRE_LINK_NETWORK] =
                    base->hop_ns[proto][GYRE_LINK_NETWORK] + wire_ns - RDMA_WIRE_NS;
        } else if (!is_rdma) {
            cost.hop_ns[GYRE_PROTO_LL][GYRE_LINK_NETWORK] =
                cost.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_NETWORK] -
                (has_faster_lines(base) ? SOCKET_LINES_GAIN_NS : 0);
        }
        cost.credit_ns[GYRE_LINK_NETWORK] = wire_ns + (is_rdma ? RDMA_CREDIT_NS : SOCKET_CREDIT_NS);
    }
    return cost;
}
