/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks the kernel for the round trip of this rank's TCP connections to other hosts. The kernel has
 * measured it while the ranks proved themselves to each other, so nothing is sent for it. This file
 * includes the kernel's header because the C library's struct tcp_info lacks the shortest round
 * trip.
 */
#include "core/foundation/base/util.h"
#include "transport/socket/socket.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

/* The shortest round trip that the kernel has seen on a connection; 0 = unknown. */
static uint64_t shortest_ns(int fd)
{
    struct tcp_info info;
    socklen_t n_bytes = sizeof(info);
    memset(&info, 0, sizeof(info));
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n_bytes) != 0 ||
        n_bytes < offsetof(struct tcp_info, tcpi_min_rtt) + sizeof(info.tcpi_min_rtt) ||
        info.tcpi_min_rtt == UINT32_MAX)
        return 0;
    return info.tcpi_min_rtt * 1000ULL;
}

void socket_measure_round_trip(struct socket_transport *transport)
{
    const struct gyre_peer_info *infos = transport->config.infos;
    uint64_t least_ns = 0;
    for (int i = 0; i < transport->n_peers; i++) {
        const struct socket_peer *peer = &transport->peers[i];
        if (infos[peer->rank].host_hash == infos[transport->config.rank].host_hash)
            continue;
        for (uint32_t l = 0; l < peer->n_links; l++) {
            const uint64_t ns = shortest_ns(peer->links[l].fd);
            if (ns > 0 && (least_ns == 0 || ns < least_ns))
                least_ns = ns;
        }
    }
    transport->wire.round_trip_ns = least_ns;
}

void socket_measure(struct gyre_transport *base, struct gyre_wire *wire_out)
{
    *wire_out = ((const struct socket_transport *)base)->wire;
}
