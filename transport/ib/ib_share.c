/* SPDX-License-Identifier: Apache-2.0
 *
 * A rail that answers more slowly than the fastest one carries less. A rate is the bytes of a
 * window over the time in which any of them waited for an answer. Latency counts as busy time, so
 * shares settle where all parts of a slot end at once.
 */
#include "transport/ib/ib_path.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/util.h"

#define LOOK_NS 200000000ULL
/* Fewer bytes of a channel say nothing about its rate. */
#define WINDOW_MIN_BYTES (256u << 10)
/* Shares change if rates are off by more than an eighth at so many looks. */
#define N_LOOKS   5
#define MIN_SHARE 8

/* @parts: in each channel from `first` on. */
void gyre_ib_divide(struct gyre_ib_peer *peer, uint64_t n_bytes, struct gyre_ib_division *parts)
{
    uint32_t sum = 0;
    uint64_t begin = 0;
    for (uint32_t i = 0; parts->n == 1 && i < (uint32_t)peer->n_used; i++)
        if (peer->used[i]->load < peer->used[parts->first]->load)
            parts->first = i;
    for (uint32_t i = 0; i < parts->n; i++)
        sum += gyre_ib_nth(peer, parts, i)->share;
    for (uint32_t i = 0; i < parts->n; i++) {
        struct gyre_ib_channel *channel = gyre_ib_nth(peer, parts, i);
        const uint64_t share = gyre_round_up(n_bytes * channel->share / sum, 128);
        parts->begins[i] = begin;
        begin = i + 1 < parts->n ? gyre_min_u64(begin + share, n_bytes) : n_bytes;
        channel->load +=
            (begin - parts->begins[i] + GYRE_IB_BOX_BYTES) * GYRE_IB_WHOLE_SHARE / channel->share;
    }
    parts->begins[parts->n] = n_bytes;
}

void gyre_ib_part_posted(struct gyre_ib_channel *channel, uint64_t n_bytes, uint64_t now_ns)
{
    if (channel->n_in_flight++ == 0)
        channel->busy_since_ns = now_ns;
    channel->window_bytes += n_bytes;
}

void gyre_ib_part_answered(struct gyre_ib_channel *channel)
{
    if (--channel->n_in_flight == 0)
        channel->busy_ns += gyre_now_ns() - channel->busy_since_ns;
}

/* In KB/s since the last new_window(); 0 = not known yet. */
static uint64_t rate_of(struct gyre_ib_channel *channel, uint64_t now_ns)
{
    if (channel->n_in_flight > 0) {
        channel->busy_ns += now_ns - channel->busy_since_ns;
        channel->busy_since_ns = now_ns;
    }
    if (channel->window_bytes < WINDOW_MIN_BYTES || channel->busy_ns == 0)
        return 0;
    return channel->window_bytes * 1000000 / channel->busy_ns;
}

static void new_window(struct gyre_ib_peer *peer)
{
    peer->n_off = 0;
    for (int i = 0; i < peer->n_used; i++)
        peer->used[i]->window_bytes = peer->used[i]->busy_ns = 0;
}

static void set_shares(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                       const uint32_t *shares)
{
    peer->has_shares = false;
    for (int i = 0; i < peer->n_used; i++) {
        struct gyre_ib_channel *channel = peer->used[i];
        const struct gyre_ib_port *port = &channel->rail->port;
        const uint32_t was = channel->share;
        channel->load = 0;
        channel->share = shares[i] * 10 >= GYRE_IB_WHOLE_SHARE * 9
                             ? GYRE_IB_WHOLE_SHARE
                             : gyre_clamp_u32(shares[i], MIN_SHARE, GYRE_IB_WHOLE_SHARE);
        peer->has_shares = peer->has_shares || channel->share != GYRE_IB_WHOLE_SHARE;
        if (channel->share != was)
            GYRE_WARN("NET/IB : to rank %d (%s) %s/%u has %u %% of the fastest rail's rate: so "
                      "much it carries now",
                      peer->rank, ib->config.infos[peer->rank].host_name, port->name, port->port,
                      channel->share * 100 / GYRE_IB_WHOLE_SHARE);
    }
}

static void look_at_peer(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint64_t now_ns)
{
    uint64_t rates[GYRE_IB_MAX_CHANNELS], fastest = 0, slowest = UINT64_MAX;
    uint32_t shares[GYRE_IB_MAX_CHANNELS];
    bool is_off = false;
    for (int i = 0; i < peer->n_used; i++) {
        rates[i] = rate_of(peer->used[i], now_ns);
        fastest = gyre_max_u64(fastest, rates[i]);
        slowest = gyre_min_u64(slowest, rates[i]);
    }
    if (slowest == 0) {
        new_window(peer);
        return;
    }
    for (int i = 0; i < peer->n_used; i++) {
        const uint32_t is = peer->used[i]->share;
        shares[i] = (uint32_t)(rates[i] * GYRE_IB_WHOLE_SHARE / fastest);
        is_off = is_off || shares[i] * 8 < is * 7 || shares[i] * 8 > is * 9;
    }
    if (is_off && ++peer->n_off < N_LOOKS)
        return;
    if (is_off)
        set_shares(ib, peer, shares);
    new_window(peer);
}

void gyre_ib_shares_look(struct gyre_ib_transport *ib, uint64_t now_ns)
{
    if (!ib->has_shares || now_ns - ib->shares_looked_ns < LOOK_NS)
        return;
    ib->shares_looked_ns = now_ns;
    for (int i = 0; i < ib->config.n_peers; i++)
        if (ib->peers[i].n_used > 1 && !ib->peers[i].move.is_halted)
            look_at_peer(ib, &ib->peers[i], now_ns);
}
