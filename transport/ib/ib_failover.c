/* SPDX-License-Identifier: Apache-2.0
 *
 * docs/failover.md has the protocol and its words. Only the proxy thread acts; the health thread
 * leaves the peer's messages in a mailbox. The peer's receives that had completed before the fence
 * but were not polled are dropped: their slots come again.
 */
#include "transport/ib/ib_path.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define RTR_NS 1000000000ULL
/* Rails that are only slow break sooner, and run again. */
#define BLACK_NS    1000000000ULL
#define TELL_MIN_NS 200000000ULL
#define TELL_MAX_NS 2000000000ULL

/* STATE. A wire format. Frozen at HALTED, but for step, seen and qps. */
struct gyre_ib_state {
    uint32_t epoch;
    uint8_t step;
    uint8_t seen;
    struct gyre_ib_rails_seen rails;
    char cause[87];
    struct {
        uint32_t qpn;
        uint32_t psn;
    } qps[GYRE_IB_MAX_QPS];
    struct {
        uint16_t arrived; /* the low bits of counts of slots */
        uint16_t head;
        uint16_t line_head;
        uint16_t pad;
    } fifos[]; /* to the sender of this message */
};

static bool is_gid_of(const uint8_t *gid, const struct gyre_sock_address *address)
{
    static const uint8_t ipv4[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return address->family == AF_INET ? memcmp(gid, ipv4, sizeof(ipv4)) == 0 &&
                                            memcmp(gid + sizeof(ipv4), address->bytes, 4) == 0
                                      : memcmp(gid, address->bytes, 16) == 0;
}

/* Ranks agree over the link to the rendezvous, which must not end with the rail. */
static void warn_of_shared_port(const struct gyre_ib_transport *ib)
{
    const struct gyre_sock_address *own = ib->config.rendezvous;
    char text[64];
    for (int i = 0; own != NULL && own->family != 0 && i < ib->n_rails; i++)
        for (int gid = 0; gid < ib->rails[i].n_gids; gid++)
            if (is_gid_of(ib->rails[i].gids[gid].raw, own)) {
                GYRE_WARN(
                    "NET/IB : this rank's link to the rendezvous, %s, runs over %s/%u: if this "
                    "port fails, the job ends. Set GYRE_SOCKET_IFNAME to another network",
                    gyre_sock_to_text(own, text, sizeof(text)), ib->rails[i].port.name,
                    ib->rails[i].port.port);
                return;
            }
}

gyre_status gyre_ib_moves_open(struct gyre_ib_transport *ib)
{
    uint32_t most_fifos = 0;
    for (int i = 0; i < ib->n_channels; i++)
        ib->channels[i].share = GYRE_IB_WHOLE_SHARE;
    if (gyre_param_number(ib->config.params, GYRE_PARAM_FAILOVER) == 0)
        return GYRE_SUCCESS;
    ib->has_shares = ib->n_rails > 1;
    for (int i = 0; i < ib->config.n_peers; i++)
        most_fifos =
            most_fifos < ib->peers[i].size.n_fifos ? ib->peers[i].size.n_fifos : most_fifos;
    const size_t n_fifo_bytes = sizeof(((struct gyre_ib_state *)NULL)->fifos[0]);
    ib->state_bytes = sizeof(struct gyre_ib_state) + most_fifos * n_fifo_bytes;
    const char *why = ib->config.post_state == NULL ? "there is no link to tell the peers"
                      : ib->cm != NULL              ? "rdma_cm connects the queue pairs"
                      : ib->fence.is_needed         ? "received slots are fenced by reads"
                      : ib->state_bytes > GYRE_TRANSPORT_STATE_BYTES ? "a pair has too many FIFOs"
                                                                     : NULL;
    if (why != NULL) {
        GYRE_WARN("NET/IB : %s=1 has no effect on connections over RDMA: %s",
                  gyre_param_called(ib->config.params, GYRE_PARAM_FAILOVER), why);
        return GYRE_SUCCESS;
    }
    ib->can_move = true;
    gyre_ib_sockets_open(ib);
    warn_of_shared_port(ib);
    for (int i = 0; i < ib->config.n_peers; i++) {
        struct gyre_ib_move *move = &ib->peers[i].move;
        move->mine = calloc(1, ib->state_bytes);
        move->theirs = calloc(1, ib->state_bytes);
        move->mail = calloc(1, ib->state_bytes);
        if (move->mine == NULL || move->theirs == NULL || move->mail == NULL)
            return gyre_fail_errno(ENOMEM, "ib: states of %d peers", ib->config.n_peers);
    }
    return GYRE_SUCCESS;
}

void gyre_ib_moves_close(struct gyre_ib_transport *ib)
{
    for (int i = 0; ib->peers != NULL && i < ib->config.n_peers; i++) {
        free(ib->peers[i].move.mine);
        free(ib->peers[i].move.theirs);
        free(ib->peers[i].move.mail);
    }
}

/* ---- steps ---------------------------------------------------------------------------------- */

void gyre_ib_post_state(const struct gyre_ib_transport *ib, const struct gyre_ib_peer *peer,
                        const void *bytes, size_t n_bytes)
{
    struct gyre_transport_state message = {.kind = GYRE_TRANSPORT_STATE_KIND,
                                           .for_puts = ib->config.for_puts,
                                           .n_bytes = (uint32_t)n_bytes};
    memcpy(message.bytes, bytes, n_bytes);
    ib->config.post_state(ib->config.check_context, peer->rank, &message);
}

static void tell(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint64_t now_ns)
{
    struct gyre_ib_move *move = &peer->move;
    move->mine->step = (uint8_t)move->step;
    move->mine->seen = (uint8_t)move->seen;
    move->told_ns = now_ns;
    gyre_ib_post_state(ib, peer, move->mine, ib->state_bytes);
}

static void go_to(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, enum gyre_ib_step step,
                  uint64_t now_ns)
{
    peer->move.step = step;
    peer->move.wait_ns = TELL_MIN_NS;
    tell(ib, peer, now_ns);
}

static void halt(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint32_t epoch,
                 uint64_t now_ns)
{
    struct gyre_ib_move *move = &peer->move;
    if (move->broken_ns == 0 || (!move->is_halted && peer->n_completions != move->n_run))
        move->broken_ns = now_ns;
    if (!move->is_halted && move->used == GYRE_IB_SOCKETS)
        move->broken_ns = gyre_ib_socket_since(peer, now_ns);
    move->epoch = epoch;
    move->is_halted = true;
    move->is_broken = move->is_parked = false;
    move->step = move->seen = GYRE_IB_NONE;
    gyre_ib_socket_stop(ib, peer);
    if (!move->is_fencing && gyre_ib_fence_begin(ib, peer, now_ns) != GYRE_SUCCESS)
        gyre_ib_raise(ib, GYRE_ERROR_SYSTEM, gyre_cause());
}

static void freeze(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint64_t now_ns)
{
    struct gyre_ib_move *move = &peer->move;
    struct gyre_ib_state *mine = move->mine;
    /* No completion of an old queue pair may wait for a new one of the same number. */
    for (int i = 0; i < ib->n_rails; i++)
        for (int n = 0; n <= ib->rails[i].n_cqe && !ib->is_failed; n++)
            if (!gyre_ib_take_completions(ib, &ib->rails[i]))
                break;
    if (ib->is_failed)
        return;
    memset(mine, 0, ib->state_bytes);
    mine->epoch = move->epoch;
    snprintf(mine->cause, sizeof(mine->cause), "%.86s", move->cause);
    for (int i = 0; i < move->n_pairs; i++) {
        const uint8_t bit = (uint8_t)(gyre_ib_is_active(ib, &move->pairs[i]) ? 1U << i : 0);
        mine->rails.active |= bit;
        mine->rails.good |= move->pairs[i].is_bad ? 0 : bit;
        mine->rails.last |= (uint8_t)(move->pairs[i].broken_ns > move->run_ns ? 1U << i : 0);
    }
    if (move->socket != NULL && !move->avoids_socket)
        mine->rails.active |= GYRE_IB_SOCKETS;
    move->avoids_socket = false;
    if (move->used != GYRE_IB_SOCKETS && move->run_ns > move->broken_ns &&
        now_ns - move->broken_ns >= BLACK_NS)
        mine->rails.last |= GYRE_IB_SOCKETS;
    for (uint32_t i = 0; i < peer->size.n_fifos; i++) {
        struct gyre_ib_recv *recv = &peer->recvs[i];
        recv->returned = gyre_load_acquire_u64(&recv->fifo.credit->head[GYRE_PROTO_SIMPLE]);
        recv->lines.returned = gyre_load_acquire_u64(&recv->fifo.credit->head[GYRE_PROTO_LL]);
        memset(recv->parts_seen, 0, sizeof(recv->parts_seen));
        memset(recv->n_parts, 0, sizeof(recv->n_parts));
        memset(recv->is_boxed, 0, sizeof(recv->is_boxed));
        mine->fifos[i].arrived = (uint16_t)recv->arrived;
        mine->fifos[i].head = (uint16_t)recv->returned;
        mine->fifos[i].line_head = (uint16_t)recv->lines.returned;
    }
    go_to(ib, peer, GYRE_IB_HALTED, now_ns);
}

gyre_status gyre_ib_find_gid(struct gyre_ib_transport *ib, const struct gyre_ib_rail *rail,
                             int gid_row, struct gyre_ib_qp_path *path)
{
    const struct gyre_ib_gid_row *known = &rail->gids[gid_row];
    int n = 0;
    if (!rail->port.is_roce)
        return GYRE_SUCCESS;
    struct gyre_ib_gid_row *rows = calloc(GYRE_IB_MAX_GIDS, sizeof(*rows));
    if (rows == NULL)
        return gyre_fail_errno(ENOMEM, "GID table");
    gyre_status status = gyre_ib_gid_table(ib->verbs, rail->context, rail->port.port, rows, &n);
    int found = -1;
    for (int i = 0; i < n && status == GYRE_SUCCESS && found < 0; i++)
        if (rows[i].type == known->type && memcmp(rows[i].raw, known->raw, sizeof(known->raw)) == 0)
            found = (int)rows[i].index;
    free(rows);
    if (status == GYRE_SUCCESS && found < 0)
        status = gyre_fail(GYRE_ERROR_SYSTEM, "the port has lost its GID");
    path->gid_index = (uint8_t)found;
    memcpy(path->local.gid, known->raw, sizeof(path->local.gid));
    return status;
}

static gyre_status make_channel(struct gyre_ib_transport *ib, struct gyre_ib_channel *channel)
{
    const struct gyre_ib_qp_end remote = channel->path.remote;
    GYRE_TRY(gyre_ib_channel_open(ib, channel));
    channel->path.remote = remote;
    return gyre_ib_find_gid(ib, channel->rail, channel->gid_row, &channel->path);
}

/* On the pairs of `used`; the first one carries credit. */
static bool make_set(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint8_t used)
{
    struct gyre_ib_move *move = &peer->move;
    const int n_qps = ib->channels_per_rail - 1;
    peer->n_used = 0;
    move->used = used;
    if (used == GYRE_IB_SOCKETS)
        return gyre_ib_socket_make(ib, peer);
    for (int pair = 0, n = 0; pair < move->n_pairs; pair++) {
        if ((used >> pair & 1) == 0)
            continue;
        for (int i = 0; i < n_qps + (n == 0 ? 1 : 0); i++) {
            const int nth = move->pairs[pair].mine * ib->channels_per_rail + i;
            struct gyre_ib_channel *channel = &peer->channels[nth];
            if (make_channel(ib, channel) != GYRE_SUCCESS) {
                (void)gyre_ib_break(ib, peer, channel->rail, gyre_cause());
                return false;
            }
            move->mine->qps[nth].qpn = channel->path.local.qpn;
            move->mine->qps[nth].psn = channel->path.local.psn;
            if (channel->is_control)
                peer->control = channel;
            else
                peer->used[peer->n_used++] = channel;
        }
        n++;
    }
    return true;
}

static bool connect_set(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint64_t now_ns)
{
    const uint8_t active = peer->move.mine->rails.active & peer->move.theirs->rails.active;
    if (peer->move.used == GYRE_IB_SOCKETS)
        return gyre_ib_socket_connect(ib, peer, active != GYRE_IB_SOCKETS, now_ns);
    for (int i = -1; i < peer->n_used; i++) {
        struct gyre_ib_channel *channel = i < 0 ? peer->control : peer->used[i];
        channel->path.remote.qpn = peer->move.theirs->qps[channel->remote_nth].qpn;
        channel->path.remote.psn = peer->move.theirs->qps[channel->remote_nth].psn & 0xffffff;
        if (gyre_ib_qp_connect(ib->verbs, channel->qp, &channel->path, gyre_now_ns() + RTR_NS) !=
            GYRE_SUCCESS) {
            (void)gyre_ib_break(ib, peer, channel->rail, gyre_cause());
            return false;
        }
    }
    return true;
}

/* The count next to `near` that has these low bits. */
static uint64_t widen(uint64_t near, uint16_t low)
{
    return near + (uint64_t)(int64_t)(int16_t)(uint16_t)(low - (uint16_t)near);
}

static bool rewind_sends(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    for (uint32_t i = 0; i < peer->size.n_fifos; i++) {
        struct gyre_ib_send *send = &peer->sends[i];
        struct gyre_ib_line_send *lines = &send->lines;
        const uint64_t arrived = widen(send->posted, peer->move.theirs->fifos[i].arrived);
        const uint64_t head = widen(send->posted, peer->move.theirs->fifos[i].head);
        const uint64_t line_head = widen(lines->posted, peer->move.theirs->fifos[i].line_head);
        if (arrived > send->posted || head > arrived) {
            gyre_fail(GYRE_ERROR_REMOTE,
                      "RDMA to rank %d: after a failure it tells counts that "
                      "cannot be",
                      peer->rank);
            gyre_ib_raise(ib, GYRE_ERROR_REMOTE, gyre_cause());
            return false;
        }
        send->posted = send->released = arrived;
        send->credit = gyre_max_u64(send->credit, head); /* a label may have told more since */
        memset(send->parts_left, 0, sizeof(send->parts_left));
        lines->credit = gyre_max_u64(lines->credit, line_head);
        lines->released = lines->posted = gyre_min_u64(lines->posted, lines->credit);
        memset(lines->is_under_way, 0, sizeof(lines->is_under_way));
        gyre_ib_release_slots(peer, send, false);
        gyre_ib_release_slots(peer, send, true);
    }
    return true;
}

static void run(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint64_t now_ns)
{
    struct gyre_ib_move *move = &peer->move;
    char rails[GYRE_CAUSE_MAX_BYTES / 2 + 160] = "", causes[GYRE_CAUSE_MAX_BYTES / 2];
    char address[GYRE_IB_SOCKET_TEXT_BYTES], times[24] = "";
    uint64_t n_to = 0, n_from = 0;
    int n_used = 0;
    for (uint32_t i = 0; i < peer->size.n_fifos; i++) {
        n_to += peer->sends[i].posted + peer->sends[i].lines.posted;
        n_from += peer->recvs[i].arrived + peer->recvs[i].lines.returned;
    }
    for (int i = 0; i < move->n_pairs; i++) {
        const struct gyre_ib_port *port = &ib->rails[move->pairs[i].mine].port;
        if ((move->used >> i & 1) == 0)
            continue;
        move->pairs[i].is_bad = false;
        move->pairs[i].cause[0] = '\0';
        gyre_text_append(rails, sizeof(rails), "%s%s/%u", n_used++ > 0 ? ", " : "", port->name,
                         port->port);
    }
    if ((n_used < move->n_pairs && gyre_ib_prober_start(ib) != GYRE_SUCCESS) ||
        (n_used == 0 && gyre_ib_socket_run(ib, peer, address) != GYRE_SUCCESS)) {
        gyre_ib_raise(ib, GYRE_ERROR_SYSTEM, gyre_cause());
        return;
    }
    if (n_used == 0) {
        const struct gyre_peer_info *info = &ib->config.infos[ib->config.rank];
        const uint32_t rails_mbit = (uint32_t)move->n_pairs * info->ib_mbit_per_s;
        const uint32_t n_times =
            gyre_peer_info_tells_rate(info) ? rails_mbit / info->net_mbit_per_s : 0;
        if (n_times > 1)
            snprintf(times, sizeof(times), "%u times ", n_times);
        gyre_ib_rails_to_text(ib, move, causes, sizeof(causes));
        snprintf(rails, sizeof(rails), "sockets to %s, %sslower until a rail answers (%s)", address,
                 times, causes);
    }
    move->probe_ns = move->n_unanswered = 0;
    move->is_halted = false;
    move->return_ns = gyre_ib_return_ns(move->return_ns, now_ns - move->run_ns);
    move->run_ns = now_ns;
    move->n_run = peer->n_completions;
    GYRE_WARN(
        "NET/IB : connection to rank %d (%s), after %llu slots to it and %llu from it: %s. It "
        "runs again after %.3f s, over %s (%d of %d rails)",
        peer->rank, ib->config.infos[peer->rank].host_name, (unsigned long long)n_to,
        (unsigned long long)n_from, move->cause, (double)(now_ns - move->broken_ns) / 1e9, rails,
        n_used, move->n_pairs);
    gyre_transport_tell(&ib->config, peer->rank, GYRE_CONNECTION_RUNS, rails);
}

static void advance(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint64_t now_ns)
{
    struct gyre_ib_move *move = &peer->move;
    if (move->step == GYRE_IB_HALTED && move->seen >= GYRE_IB_HALTED) {
        const uint8_t used = gyre_ib_choose_rails(&move->mine->rails, &move->theirs->rails);
        if (used == 0 && !move->is_parked)
            GYRE_WARN("NET/IB : connection to rank %d (%s): %s. No rail is left; it waits %lld s "
                      "for one",
                      peer->rank, ib->config.infos[peer->rank].host_name, move->cause,
                      (long long)gyre_param_number(ib->config.params, GYRE_PARAM_FAILOVER_WAIT));
        move->is_parked = used == 0;
        if (used != 0 && make_set(ib, peer, used))
            go_to(ib, peer, GYRE_IB_MADE, now_ns);
    }
    if (move->step == GYRE_IB_MADE && move->seen >= GYRE_IB_MADE && !move->is_broken &&
        connect_set(ib, peer, now_ns))
        go_to(ib, peer, GYRE_IB_UP, now_ns);
    if (move->step == GYRE_IB_UP && move->seen == GYRE_IB_UP && !move->is_broken &&
        rewind_sends(ib, peer))
        run(ib, peer, now_ns);
}

static void take_mail(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint64_t now_ns)
{
    struct gyre_ib_move *move = &peer->move;
    struct gyre_ib_state *mail = move->mail;
    pthread_mutex_lock(&ib->mail_lock);
    const bool has_mail = move->has_mail && mail->step <= GYRE_IB_UP;
    const bool is_higher = has_mail && mail->epoch > move->epoch;
    const bool is_news =
        is_higher || (has_mail && mail->epoch == move->epoch && mail->step > (uint8_t)move->seen);
    const bool is_behind =
        has_mail && (mail->epoch < move->epoch || mail->seen < (uint8_t)move->step);
    if (is_news)
        memcpy(move->theirs, mail, ib->state_bytes);
    move->has_mail = false;
    pthread_mutex_unlock(&ib->mail_lock);
    if (is_higher && !move->is_halted && !move->is_broken) {
        snprintf(move->cause, sizeof(move->cause), "rank %d: %.*s", peer->rank,
                 (int)sizeof(move->theirs->cause) - 1, move->theirs->cause);
        if (move->theirs->rails.last != 0) /* else a rail is taken again */
            gyre_transport_tell(&ib->config, peer->rank, GYRE_CONNECTION_BROKE, move->cause);
    }
    for (int i = 0; i < move->n_pairs && is_news; i++) {
        if ((move->theirs->rails.last >> i & 1) == 0)
            continue;
        move->pairs[i].is_bad = true;
        if (is_higher)
            gyre_ib_suspect(ib, peer, &ib->rails[move->pairs[i].mine]);
    }
    if (is_higher)
        halt(ib, peer, move->theirs->epoch, now_ns);
    if (is_news)
        move->seen = (enum gyre_ib_step)move->theirs->step;
    else if (is_behind && move->step != GYRE_IB_NONE)
        tell(ib, peer, now_ns);
}

static void give_up(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint64_t now_ns)
{
    const struct gyre_ib_move *move = &peer->move;
    char rails[GYRE_CAUSE_MAX_BYTES / 2], socket[GYRE_IB_SOCKET_CAUSE_BYTES];
    gyre_ib_rails_to_text(ib, move, rails, sizeof(rails));
    gyre_ib_socket_why(ib, peer, socket);
    gyre_fail(GYRE_ERROR_REMOTE,
              "E401 RDMA to rank %d on %s: %s. No rail carried data for %.1f s (%s): %s%s",
              peer->rank, ib->config.infos[peer->rank].host_name, move->cause,
              (double)(now_ns - move->broken_ns) / 1e9,
              gyre_param_called(ib->config.params, GYRE_PARAM_FAILOVER_WAIT), rails, socket);
    gyre_ib_raise(ib, GYRE_ERROR_REMOTE, gyre_cause());
}

void gyre_ib_move(struct gyre_ib_transport *ib)
{
    const uint64_t now_ns = gyre_now_ns();
    const uint64_t limit_ns =
        (uint64_t)gyre_param_number(ib->config.params, GYRE_PARAM_FAILOVER_WAIT) * 1000000000ULL;
    bool is_moving = false;
    gyre_store_release_u32(&ib->needs_move, 0);
    for (int i = 0; i < ib->config.n_peers && !ib->is_failed; i++) {
        struct gyre_ib_peer *peer = &ib->peers[i];
        struct gyre_ib_move *move = &peer->move;
        if (!move->is_possible)
            continue;
        if (gyre_ib_probe_take_result(ib, peer, now_ns) && !move->is_halted)
            gyre_ib_want_epoch(ib, move, "a rail answers again");
        take_mail(ib, peer, now_ns);
        if (move->is_broken && !ib->is_failed)
            halt(ib, peer, move->epoch + 1, now_ns);
        if (!move->is_halted || ib->is_failed)
            continue;
        if (move->step == GYRE_IB_NONE && gyre_ib_fence_ends(ib, peer, now_ns))
            freeze(ib, peer, now_ns);
        advance(ib, peer, now_ns);
        if (move->is_halted && move->step != GYRE_IB_NONE &&
            now_ns - move->told_ns >= move->wait_ns) {
            move->wait_ns = gyre_min_u64(2 * move->wait_ns, TELL_MAX_NS);
            tell(ib, peer, now_ns);
        }
        if (move->is_halted && now_ns - move->broken_ns >= limit_ns)
            give_up(ib, peer, now_ns);
        is_moving = is_moving || move->is_halted || move->is_broken;
    }
    if (is_moving)
        gyre_store_release_u32(&ib->needs_move, 1);
    gyre_store_relaxed_u32(&ib->base.is_moving, is_moving && !ib->is_failed);
}

void gyre_ib_take_state(struct gyre_ib_transport *ib, int rank, const void *state, size_t n_bytes)
{
    const bool is_probe = n_bytes == sizeof(struct gyre_ib_probe_state);
    if (!ib->can_move || (n_bytes != ib->state_bytes && !is_probe))
        return;
    for (int i = 0; i < ib->config.n_peers; i++) {
        struct gyre_ib_move *move = &ib->peers[i].move;
        if (ib->peers[i].rank != rank)
            continue;
        if (is_probe) {
            gyre_ib_probe_take_mail(ib, &ib->peers[i], state);
            return;
        }
        pthread_mutex_lock(&ib->mail_lock);
        memcpy(move->mail, state, n_bytes);
        move->has_mail = true;
        gyre_store_release_u32(&ib->needs_move, 1);
        if (ib->proxy != NULL)
            gyre_proxy_wake(ib->proxy);
        pthread_mutex_unlock(&ib->mail_lock);
    }
}
