/* SPDX-License-Identifier: Apache-2.0
 *
 * What a communicator knows of the network between its hosts, the same on all ranks.
 */
#ifndef GYRE_LINKS_NETWORK_H
#define GYRE_LINKS_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

struct gyre_network {
    bool is_rdma;
    uint32_t nic_mbit_per_s; /* of the slowest NIC that a rank uses; 0 = unknown */
    uint32_t least_ports;    /* RDMA ports in use on the host with the fewest, */
    uint32_t most_ports;     /* and on that with the most; 0 = unknown */
    uint64_t latency_ns;     /* of the wire, one way; 0 = unknown */
};

/** The nearest power of two microseconds; 0 stays 0. Plans depend on the class alone, so two
 * measurements give one plan. Pure. */
uint64_t gyre_network_round(uint64_t round_trip_ns);

/** Likewise 1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.4 or 8 times a power of ten. Pure. */
uint64_t gyre_network_round_rate(uint64_t mbit_per_s);

/** Of the values that are not 0; 0 if there is none. Sorts @values. */
uint64_t gyre_network_median(uint64_t *values, int n);

#endif
