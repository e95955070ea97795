/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the round trip to ranks of other hosts: the time from posting an RDMA write until the
 * peer's NIC has acknowledged it. The write goes over the control lane, as a probe does
 * (gyre_ib_probe()), so it changes nothing at the peer, and no thread of the peer takes part. The
 * kernel measures round trips of TCP in the same way (socket_round_trip.c).
 */
#include "transport/ib/ib_path.h"

#include "core/foundation/base/util.h"

#include <sched.h>

/* The shortest of so many round trips counts, because any of them may be late: another process may
 * run on this thread's processor. */
#define N_ROUND_TRIPS 16

/* The time for all round trips of a rank. */
#define ALL_NS 10000000ULL

GYRE_STATIC_ASSERT(ALL_NS < GYRE_MEASURE_NS, "the contract of `measure`");

/* A write, and how long this rank waited until the peer's NIC had acknowledged it. */
struct trip {
    uint64_t ns; /* 0 = no write could be posted, or it failed */
    bool is_complete;
};

static struct trip time_write(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                              uint64_t deadline_ns)
{
    const struct gyre_ib_lane *lane = peer->control;
    if (ib->is_failed || lane->n_retired < lane->signalled_at || !gyre_ib_has_room(lane, 1))
        return (struct trip){.ns = 0};
    const uint64_t begin_ns = gyre_now_ns();
    gyre_ib_write_credit_again(ib, peer);
    while (lane->n_retired < lane->signalled_at && gyre_now_ns() < deadline_ns && !ib->is_failed &&
           !gyre_fault_is_raised(ib->config.fault))
        if (!gyre_ib_poll(ib))
            sched_yield(); /* with few processors another process must move the packets */
    return (struct trip){.ns = ib->is_failed ? 0 : gyre_now_ns() - begin_ns,
                         .is_complete = lane->n_retired >= lane->signalled_at};
}

static bool is_on_other_host(const struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer)
{
    const struct gyre_peer_info *infos = ib->config.infos;
    return infos[peer->rank].host_hash != infos[ib->config.rank].host_hash;
}

/* The shortest round trip; 0 = unknown. If there are more peers than round trips, the peers with
 * the next higher ranks are asked, so that all ranks together ask all ranks. If not even the first
 * write is acknowledged in time, the time that was waited for it counts, so that a slow network is
 * not taken for an unknown one. */
static uint64_t find_shortest(struct gyre_ib_transport *ib)
{
    const uint64_t deadline_ns = gyre_now_ns() + ALL_NS;
    const int n_peers = ib->config.n_peers;
    uint64_t shortest_ns = 0;
    int first = 0, n_tries = 0;
    while (first < n_peers && ib->peers[first].rank < ib->config.rank)
        first++;
    for (int i = 0; n_tries < N_ROUND_TRIPS && gyre_now_ns() < deadline_ns; i++) {
        struct gyre_ib_peer *peer = &ib->peers[(first + i) % n_peers];
        if (i == n_peers && n_tries == 0)
            return 0; /* no peer is on another host */
        if (!is_on_other_host(ib, peer))
            continue;
        const struct trip trip = time_write(ib, peer, deadline_ns);
        n_tries++;
        if (shortest_ns == 0 || (trip.is_complete && trip.ns > 0 && trip.ns < shortest_ns))
            shortest_ns = trip.ns;
    }
    return shortest_ns;
}

void gyre_ib_measure(struct gyre_transport *transport, struct gyre_wire *wire_out)
{
    struct gyre_ib_transport *ib = (struct gyre_ib_transport *)(void *)transport;
    gyre_proxy_pause(ib->proxy);
    *wire_out = (struct gyre_wire){.round_trip_ns = find_shortest(ib)};
    gyre_proxy_resume(ib->proxy);
}
