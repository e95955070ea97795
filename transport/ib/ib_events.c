/* SPDX-License-Identifier: Apache-2.0
 *
 * A device's asynchronous events count for the (context, port) that they name. A port that is down
 * for less than the retry window only costs time, because the NIC sends again.
 */
#include "transport/ib/ib_path.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <string.h>

/* Some devices report no failed sends while their port is down. */
#define PORT_DOWN_GRACE_NS 2500000000ULL

/* ---- connections that can move (ib_failover.c) ----------------------------------------------- */

/* A send without an answer for so long, while another rail is usable, breaks the connection; the
 * second, if it broke on all others. */
#define SILENT_NS     500000000ULL
#define ALL_SILENT_NS 1200000000ULL
/* Rails that were left out are probed after so long, which doubles with each move in an hour. */
#define RETURN_NS     5000000000ULL
#define RETURN_MAX_NS (RETURN_NS << 7)
#define CALM_NS       (3600 * GYRE_SECOND_NS)
/* After a move to sockets, always. */
#define SOCKETS_RETURN_NS 1000000000ULL

uint64_t gyre_ib_return_ns(uint64_t last_ns, uint64_t ran_ns)
{
    return last_ns == 0 || ran_ns >= CALM_NS ? RETURN_NS : gyre_min_u64(2 * last_ns, RETURN_MAX_NS);
}

void gyre_ib_want_epoch(struct gyre_ib_transport *ib, struct gyre_ib_move *move, const char *cause)
{
    if (!move->is_broken && !move->is_halted)
        snprintf(move->cause, sizeof(move->cause), "%s", cause);
    move->is_broken = true;
    gyre_store_release_u32(&ib->needs_move, 1);
}

bool gyre_ib_break(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                   const struct gyre_ib_rail *rail, const char *cause)
{
    struct gyre_ib_move *move = &peer->move;
    char text[sizeof(move->cause)];
    if (!move->is_possible || ib->is_closing)
        return false;
    const uint64_t now_ns = gyre_now_ns();
    for (int i = 0; i < move->n_pairs; i++) {
        struct gyre_ib_rail_pair *pair = &move->pairs[i];
        if (&ib->rails[pair->mine] != rail || (pair->is_bad && move->is_broken))
            continue;
        pair->is_bad = true;
        pair->broken_ns = now_ns;
        snprintf(pair->cause, sizeof(pair->cause), "%s", cause);
    }
    snprintf(text, sizeof(text), "%s/%u: %s", rail->port.name, rail->port.port, cause);
    if (!move->is_broken && !move->is_halted)
        gyre_transport_tell(&ib->config, peer->rank, GYRE_CONNECTION_BROKE, text);
    gyre_ib_want_epoch(ib, move, text);
    return true;
}

static bool uses(const struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                 const struct gyre_ib_rail *rail)
{
    for (int i = 0; i < peer->move.n_pairs; i++)
        if (&ib->rails[peer->move.pairs[i].mine] == rail && (peer->move.used >> i & 1) != 0)
            return true;
    return false;
}

/* For all peers that use the rail. */
static bool break_rail(struct gyre_ib_transport *ib, const struct gyre_ib_rail *rail,
                       const char *cause)
{
    for (int i = 0; i < ib->config.n_peers && ib->can_move; i++)
        if (ib->peers[i].move.is_halted || uses(ib, &ib->peers[i], rail))
            (void)gyre_ib_break(ib, &ib->peers[i], rail, cause);
    return ib->can_move && !ib->is_closing;
}

/* Rails fail for all ranks of a host at once. */
void gyre_ib_suspect(struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                     const struct gyre_ib_rail *rail)
{
    const uint64_t host = ib->config.infos[peer->rank].host_hash;
    char cause[80];
    snprintf(cause, sizeof(cause), "the connection to rank %d broke there", peer->rank);
    for (int i = 0; i < ib->config.n_peers; i++) {
        struct gyre_ib_peer *other = &ib->peers[i];
        if (other != peer && ib->config.infos[other->rank].host_hash == host &&
            !other->move.is_halted && !other->move.is_broken && uses(ib, other, rail))
            (void)gyre_ib_break(ib, other, rail, cause);
    }
}

void gyre_ib_rails_to_text(const struct gyre_ib_transport *ib, const struct gyre_ib_move *move,
                           char *text_out, size_t text_bytes)
{
    text_out[0] = '\0';
    for (int i = 0; i < move->n_pairs; i++) {
        const struct gyre_ib_rail *rail = &ib->rails[move->pairs[i].mine];
        gyre_text_append(text_out, text_bytes, "%s%s/%u: %s", i > 0 ? "; " : "", rail->port.name,
                         rail->port.port,
                         rail->down_since_ns != 0          ? "its port is down"
                         : move->pairs[i].cause[0] != '\0' ? move->pairs[i].cause
                                                           : "not usable on the peer's side");
    }
}

static void rail_returned(struct gyre_ib_transport *ib, const struct gyre_ib_rail *rail)
{
    for (int i = 0; i < ib->config.n_peers; i++) {
        struct gyre_ib_move *move = &ib->peers[i].move;
        for (int pair = 0; pair < move->n_pairs; pair++)
            if (&ib->rails[move->pairs[pair].mine] == rail && move->probe_ns != UINT64_MAX)
                move->probe_ns = move->n_unanswered = 0;
        if (move->is_halted) /* its state says that the port is down */
            gyre_ib_want_epoch(ib, move, "a port is active again");
    }
}

static bool is_silent(struct gyre_ib_channel *channel, uint64_t now_ns, uint64_t limit_ns)
{
    const bool is_answered = channel->n_retired >= channel->signalled_at;
    if (is_answered || channel->silent_ns == 0 || channel->n_retired != channel->n_retired_seen) {
        channel->n_retired_seen = channel->n_retired;
        channel->silent_ns = is_answered ? 0 : now_ns;
        return false;
    }
    return now_ns - channel->silent_ns >= limit_ns;
}

static void look_at_rails(struct gyre_ib_transport *ib, uint64_t now_ns)
{
    for (int i = 0; i < ib->config.n_peers; i++) {
        struct gyre_ib_peer *peer = &ib->peers[i];
        struct gyre_ib_move *move = &peer->move;
        int n_active = 0, n_good = 0;
        const int n_least = move->socket != NULL ? 0 : 1;
        uint32_t left_out = 0;
        if (!move->is_possible || move->is_halted || move->is_broken)
            continue;
        for (int pair = 0; pair < move->n_pairs; pair++)
            if (gyre_ib_is_active(ib, &move->pairs[pair])) {
                left_out |= (1U << pair) & ~move->used;
                n_active++;
                n_good += !move->pairs[pair].is_bad;
            }
        gyre_store_relaxed_u32(&move->probe.left_out, left_out);
        for (int c = -1; c < peer->n_used && n_active > n_least; c++) {
            struct gyre_ib_channel *channel = c < 0 ? peer->control : peer->used[c];
            const uint64_t limit_ns = n_good > 1 ? SILENT_NS : ALL_SILENT_NS;
            char cause[40];
            if (!is_silent(channel, now_ns, limit_ns))
                continue;
            snprintf(cause, sizeof(cause), "no answer for %.1f s", (double)limit_ns / 1e9);
            (void)gyre_ib_break(ib, peer, channel->rail, cause);
            gyre_ib_suspect(ib, peer, channel->rail);
        }
        const uint64_t return_ns =
            move->used == GYRE_IB_SOCKETS ? SOCKETS_RETURN_NS : move->return_ns;
        if (left_out != 0 && now_ns - move->run_ns >= return_ns && now_ns >= move->probe_ns)
            gyre_ib_probe_begin(ib, peer);
    }
}

/* ---- errors and events ----------------------------------------------------------------------- */

void gyre_ib_raise(struct gyre_ib_transport *ib, gyre_status status, const char *cause)
{
    ib->is_failed = true;
    gyre_store_relaxed_u32(&ib->base.is_moving, 0);
    gyre_fault_raise(ib->config.fault, status, cause);
}

const char *gyre_ib_channel_to_text(const struct gyre_ib_transport *ib,
                                    const struct gyre_ib_channel *channel, char *text_out,
                                    size_t text_bytes)
{
    const struct gyre_ib_qp_path *path = &channel->path;
    char local[48];
    char remote[48];
    char class[48];
    const int rank = channel->peer->rank;
    if (!path->is_roce) {
        snprintf(text_out, text_bytes,
                 "%s/%u lid %u qpn 0x%x MTU %u SL %u -> rank %d (%s) lid %u qpn 0x%x MTU %u",
                 channel->rail->port.name, path->port, path->local.lid, path->local.qpn,
                 gyre_ib_mtu_bytes(path->local.mtu), path->service_level, rank,
                 ib->config.infos[rank].host_name, path->remote.lid, path->remote.qpn,
                 gyre_ib_mtu_bytes(path->remote.mtu));
        return text_out;
    }
    snprintf(text_out, text_bytes,
             "local GID %u %s qpn 0x%x MTU %u %s, remote GID %u %s qpn 0x%x MTU %u of rank %d (%s)",
             path->gid_index, gyre_ib_gid_to_text(path->local.gid, local, sizeof(local)),
             path->local.qpn, gyre_ib_mtu_bytes(path->local.mtu),
             gyre_ib_class_to_text(path->traffic_class, class, sizeof(class)),
             channel->remote_gid_index,
             gyre_ib_gid_to_text(path->remote.gid, remote, sizeof(remote)), path->remote.qpn,
             gyre_ib_mtu_bytes(path->remote.mtu), rank, ib->config.infos[rank].host_name);
    return text_out;
}

void gyre_ib_raise_post(struct gyre_ib_transport *ib, const struct gyre_ib_channel *channel,
                        const char *what, int error_number)
{
    char ends[400];
    char text[80];
    snprintf(text, sizeof(text), "%s: errno %d", what, error_number);
    if (gyre_ib_break(ib, channel->peer, channel->rail, text))
        return;
    gyre_fail_errno(error_number, "E401 RDMA %s/%u: %s: %s", channel->rail->port.name,
                    channel->rail->port.port, what,
                    gyre_ib_channel_to_text(ib, channel, ends, sizeof(ends)));
    gyre_ib_raise(ib, GYRE_ERROR_SYSTEM, gyre_cause());
}

static void handle_event(struct gyre_ib_transport *ib, struct gyre_ib_rail *rail,
                         const struct ibv_async_event *event, uint64_t now_ns)
{
    const char *name = rail->port.name;
    char text[240];
    switch (event->event_type) {
    case IBV_EVENT_PORT_ERR:
        if (event->element.port_num == rail->port.port && rail->down_since_ns == 0) {
            rail->down_since_ns = now_ns;
            if (break_rail(ib, rail, "its port went down"))
                return;
            GYRE_WARN("NET/IB : port %s/%u went down; it has %.1f s to come back", name,
                      rail->port.port,
                      (double)gyre_ib_retry_window_ns(ib->timeout, ib->retries) / 1e9);
        }
        return;
    case IBV_EVENT_PORT_ACTIVE:
        if (event->element.port_num == rail->port.port && rail->down_since_ns != 0) {
            GYRE_WARN("NET/IB : port %s/%u is active again after %.2f s", name, rail->port.port,
                      (double)(now_ns - rail->down_since_ns) / 1e9);
            rail->down_since_ns = 0;
            rail_returned(ib, rail);
        }
        return;
    case IBV_EVENT_DEVICE_FATAL:
        snprintf(text, sizeof(text), "E401 RDMA %s: the device failed (DEVICE_FATAL); see dmesg",
                 name);
        break;
    case IBV_EVENT_CQ_ERR:
        snprintf(text, sizeof(text),
                 "E401 RDMA %s: completion queue of %d entries failed (CQ_ERR: overrun)", name,
                 rail->n_cqe);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        snprintf(text, sizeof(text), "E401 RDMA %s: queue pair 0x%x failed (%s); see dmesg", name,
                 event->element.qp != NULL ? event->element.qp->qp_num : 0,
                 event->event_type == IBV_EVENT_QP_FATAL     ? "QP_FATAL"
                 : event->event_type == IBV_EVENT_QP_REQ_ERR ? "QP_REQ_ERR"
                                                             : "QP_ACCESS_ERR");
        break;
    case IBV_EVENT_GID_CHANGE:
        /* Queue pairs keep their address. If it is gone, sends fail with RETRY_EXC. */
        GYRE_INFO(NET, "NET/IB : the GID table of %s/%d changed", name, event->element.port_num);
        return;
    default:
        GYRE_INFO(NET, "NET/IB : %s: asynchronous event %d", name, (int)event->event_type);
        return;
    }
    rail->is_dead =
        event->event_type == IBV_EVENT_DEVICE_FATAL || event->event_type == IBV_EVENT_CQ_ERR;
    if (break_rail(ib, rail, text))
        return;
    if (gyre_param_number(ib->config.params, GYRE_PARAM_IB_RETURN_ASYNC_EVENTS) != 0)
        gyre_ib_raise(ib, GYRE_ERROR_SYSTEM, text);
    else
        GYRE_WARN("NET/IB : %s; %s=0 goes on", text,
                  gyre_param_called(ib->config.params, GYRE_PARAM_IB_RETURN_ASYNC_EVENTS));
}

/* -1 = no event is pending. ibv_destroy_qp() and the like wait for each acknowledgement. */
static void take_events(struct gyre_ib_transport *ib, struct gyre_ib_rail *rail, uint64_t now_ns)
{
    struct ibv_async_event event;
    while (ib->verbs->get_async_event(rail->context, &event) == 0) {
        handle_event(ib, rail, &event, now_ns);
        ib->verbs->ack_async_event(&event);
    }
}

/* The others are bugs. A port that is down may give LOC_QP_OP (rxe). */
static bool may_move(enum ibv_wc_status status)
{
    return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR ||
           status == IBV_WC_RESP_TIMEOUT_ERR || status == IBV_WC_LOC_QP_OP_ERR ||
           status == IBV_WC_GENERAL_ERR || status == IBV_WC_FATAL_ERR;
}

void gyre_ib_raise_completion(struct gyre_ib_transport *ib, const struct gyre_ib_channel *channel,
                              const struct ibv_wc *wc)
{
    char text[GYRE_CAUSE_MAX_BYTES];
    char ends[400];
    char after[48] = "";
    char remote[48];
    const char *failure = wc->status == IBV_WC_RETRY_EXC_ERR       ? "no acknowledgement"
                          : wc->status == IBV_WC_RNR_RETRY_EXC_ERR ? "no receive was posted"
                                                                   : "the request failed";
    /* Its event may wait. */
    take_events(ib, channel->rail, gyre_now_ns());
    if (ib->is_failed)
        return;
    if (wc->status == IBV_WC_RETRY_EXC_ERR)
        snprintf(after, sizeof(after), " after %ux%.2fs", ib->retries + 1,
                 (double)gyre_ib_ack_timeout_ns(ib->timeout) / 1e9);
    if (may_move(wc->status) && !ib->is_closing) {
        snprintf(text, sizeof(text), "%s (%s)%s", failure, gyre_ib_wc_name(wc->status), after);
        if (gyre_ib_break(ib, channel->peer, channel->rail, text))
            return;
    }
    snprintf(
        text, sizeof(text),
        "E401 RDMA %s/%u->%s (rank %d on %s, %s channel): %s (%s, status %d, vendor error 0x%x)%s; "
        "%s%s. %s.",
        channel->rail->port.name, channel->rail->port.port,
        gyre_ib_gid_to_text(channel->path.remote.gid, remote, sizeof(remote)), channel->peer->rank,
        ib->config.infos[channel->peer->rank].host_name, channel->is_control ? "control" : "data",
        failure, gyre_ib_wc_name(wc->status), (int)wc->status, wc->vendor_err, after,
        gyre_ib_channel_to_text(ib, channel, ends, sizeof(ends)),
        channel->path.local.mtu != channel->path.remote.mtu ? ". MTU differs" : "",
        channel->rail->down_since_ns != 0 ? "This port is down" : gyre_ib_wc_hint(wc->status));
    gyre_ib_raise(ib, GYRE_ERROR_REMOTE, text);
}

static void check_down(struct gyre_ib_transport *ib, const struct gyre_ib_rail *rail,
                       uint64_t now_ns)
{
    const uint64_t allowed_ns =
        gyre_ib_retry_window_ns(ib->timeout, ib->retries) + PORT_DOWN_GRACE_NS;
    if (ib->can_move || rail->down_since_ns == 0 || now_ns - rail->down_since_ns < allowed_ns)
        return;
    char text[GYRE_CAUSE_MAX_BYTES];
    char ends[400];
    char remote[48];
    const struct gyre_ib_channel *channel = ib->peers[0].control;
    for (int i = 0; i < ib->config.n_peers; i++)
        if (ib->peers[i].control->rail == rail)
            channel = ib->peers[i].control;
    snprintf(text, sizeof(text),
             "E401 RDMA %s/%u->%s (rank %d on %s): the port has been down for %.1f s, longer than "
             "its peers retry (%ux%.2fs); %s",
             rail->port.name, rail->port.port,
             gyre_ib_gid_to_text(channel->path.remote.gid, remote, sizeof(remote)),
             channel->peer->rank, ib->config.infos[channel->peer->rank].host_name,
             (double)(now_ns - rail->down_since_ns) / 1e9, ib->retries + 1,
             (double)gyre_ib_ack_timeout_ns(ib->timeout) / 1e9,
             gyre_ib_channel_to_text(ib, channel, ends, sizeof(ends)));
    gyre_ib_raise(ib, GYRE_ERROR_SYSTEM, text);
}

void gyre_ib_events_look(struct gyre_ib_transport *ib, uint64_t now_ns)
{
    for (int i = 0; i < ib->n_rails && !ib->is_failed; i++) {
        take_events(ib, &ib->rails[i], now_ns);
        check_down(ib, &ib->rails[i], now_ns);
    }
    if (ib->can_move && !ib->is_failed && !ib->is_closing)
        look_at_rails(ib, now_ns);
    gyre_ib_shares_look(ib, now_ns);
}
