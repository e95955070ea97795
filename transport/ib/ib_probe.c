/* SPDX-License-Identifier: Apache-2.0
 *
 * A port that looks active may still lose all packets, so a rail that was left out carries data
 * again only after each side's empty message over a queue pair of its own was answered. A thread
 * does this: a call that connects a queue pair may wait for seconds.
 */
#include "transport/ib/ib_path.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <string.h>

#define PROBE_NS  2000000000ULL
#define RTR_NS    500000000ULL
#define REPEAT_NS 200000000ULL
#define POLL_NS   2000000ULL
/* Until the next probe after one without an answer; doubles with each. */
#define AGAIN_NS     1000000000ULL
#define MAX_DOUBLING 6

static void destroy_pairs(const struct gyre_ib_transport *ib, struct gyre_ib_probe *probe)
{
    for (int i = 0; i < GYRE_IB_MAX_RAILS; i++) {
        if (probe->qps[i] != NULL)
            (void)ib->verbs->destroy_qp(probe->qps[i]);
        if (probe->cqs[i] != NULL)
            (void)ib->verbs->destroy_cq(probe->cqs[i]);
        probe->qps[i] = NULL;
        probe->cqs[i] = NULL;
    }
}

static gyre_status make_pair(struct gyre_ib_transport *ib, struct gyre_ib_probe *probe,
                             const struct gyre_ib_rail_pair *pair, int i)
{
    const struct gyre_ib_rail *rail = &ib->rails[pair->mine];
    struct gyre_ib_qp_path *path = &probe->paths[i];
    struct gyre_ib_qp_size size = {.n_send = 1, .n_recv = 1};
    struct ibv_recv_wr wr = {.num_sge = 0}, *bad = NULL;
    GYRE_TRY(gyre_ib_path_begin(ib, rail, path));
    path->remote = pair->remote;
    GYRE_TRY(gyre_ib_find_gid(ib, rail, pair->gid_row, path));
    probe->cqs[i] = ib->verbs->create_cq(rail->context, 2, NULL, NULL, 0);
    if (probe->cqs[i] == NULL)
        return gyre_fail_errno(errno, "ibv_create_cq");
    GYRE_TRY(gyre_ib_qp_create(ib->verbs, rail->pd, probe->cqs[i], path, 0, &size, &probe->qps[i]));
    probe->mine.qps[i].qpn = probe->qps[i]->qp_num;
    probe->mine.qps[i].psn = path->local.psn;
    const int error = ibv_post_recv(probe->qps[i], &wr, &bad);
    return error == 0 ? GYRE_SUCCESS : gyre_fail_errno(error, "ibv_post_recv");
}

static bool stops(struct gyre_ib_transport *ib)
{
    pthread_mutex_lock(&ib->mail_lock);
    const bool it_stops = ib->prober.stops;
    pthread_mutex_unlock(&ib->mail_lock);
    return it_stops;
}

static void tell(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint64_t now_ns)
{
    if (stops(ib)) /* a call took long, and the communicator may be gone */
        return;
    peer->move.probe.told_ns = now_ns;
    gyre_ib_post_state(ib, peer, &peer->move.probe.mine, sizeof(peer->move.probe.mine));
}

static void begin(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint32_t number,
                  uint64_t now_ns)
{
    struct gyre_ib_probe *probe = &peer->move.probe;
    const uint32_t left_out = gyre_load_relaxed_u32(&probe->left_out);
    destroy_pairs(ib, probe);
    memset(&probe->mine, 0, sizeof(probe->mine));
    probe->mine.number = number;
    probe->mine.step = GYRE_IB_MADE;
    probe->runs = true;
    probe->begun_ns = now_ns;
    for (int i = 0; i < peer->move.n_pairs; i++)
        if ((left_out >> i & 1) != 0 &&
            make_pair(ib, probe, &peer->move.pairs[i], i) == GYRE_SUCCESS)
            probe->mine.rails |= (uint8_t)(1U << i);
    tell(ib, peer, now_ns);
}

static void connect_pairs(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint64_t now_ns)
{
    struct gyre_ib_probe *probe = &peer->move.probe;
    probe->mine.rails &= probe->theirs.rails;
    for (int i = 0; i < peer->move.n_pairs; i++) {
        if ((probe->mine.rails >> i & 1) == 0 || stops(ib))
            continue;
        probe->paths[i].remote.qpn = probe->theirs.qps[i].qpn;
        probe->paths[i].remote.psn = probe->theirs.qps[i].psn & 0xffffff;
        if (gyre_ib_qp_connect(ib->verbs, probe->qps[i], &probe->paths[i],
                               gyre_now_ns() + RTR_NS) != GYRE_SUCCESS)
            probe->mine.rails &= (uint8_t) ~(1U << i);
    }
    probe->mine.step = GYRE_IB_UP;
    tell(ib, peer, now_ns);
}

static void send_all(struct gyre_ib_peer *peer)
{
    struct gyre_ib_probe *probe = &peer->move.probe;
    for (int i = 0; i < peer->move.n_pairs; i++) {
        struct ibv_send_wr wr = {
            .wr_id = GYRE_IB_WR_ENDS_PART, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
        struct ibv_send_wr *bad = NULL;
        if ((probe->mine.rails & probe->theirs.rails) >> i & 1)
            (void)ibv_post_send(probe->qps[i], &wr, &bad);
    }
    probe->begun_ns = gyre_now_ns(); /* connecting other peers may have taken long */
    probe->has_sent = true;
}

/* To own messages. */
static bool take_answers(struct gyre_ib_peer *peer)
{
    struct gyre_ib_probe *probe = &peer->move.probe;
    const uint8_t known = probe->mine.answered;
    struct ibv_wc wc;
    for (int i = 0; i < peer->move.n_pairs; i++)
        while (probe->cqs[i] != NULL && ibv_poll_cq(probe->cqs[i], 1, &wc) > 0)
            if (wc.status == IBV_WC_SUCCESS && wc.wr_id == GYRE_IB_WR_ENDS_PART)
                probe->mine.answered |= (uint8_t)(1U << i);
    return probe->mine.answered != known;
}

static void report(struct gyre_ib_transport *ib, struct gyre_ib_probe *probe, bool has_ended)
{
    pthread_mutex_lock(&ib->mail_lock);
    probe->result.begun_ns = probe->begun_ns;
    probe->result.answered = probe->mine.answered;
    probe->result.both = probe->mine.answered & probe->theirs.answered;
    probe->result.has_ended = has_ended;
    probe->has_result = true;
    gyre_store_release_u32(&ib->needs_move, 1);
    if (ib->proxy != NULL)
        gyre_proxy_wake(ib->proxy);
    pthread_mutex_unlock(&ib->mail_lock);
}

static bool advance(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    struct gyre_ib_probe *probe = &peer->move.probe;
    const uint64_t now_ns = gyre_now_ns();
    pthread_mutex_lock(&ib->mail_lock);
    const bool is_due = probe->is_due, has_mail = probe->has_mail;
    const struct gyre_ib_probe_state mail = probe->mail;
    probe->is_due = probe->has_mail = false;
    pthread_mutex_unlock(&ib->mail_lock);
    const bool is_higher = has_mail && mail.number > probe->mine.number;
    if (is_higher || (is_due && !probe->runs)) {
        memset(&probe->theirs, 0, sizeof(probe->theirs));
        probe->has_sent = false;
        begin(ib, peer, is_higher ? mail.number : probe->mine.number + 1, now_ns);
    }
    if (!probe->runs)
        return false;
    if (has_mail && mail.number == probe->mine.number)
        probe->theirs = mail;
    if (probe->mine.step == GYRE_IB_MADE && probe->theirs.step >= GYRE_IB_MADE)
        connect_pairs(ib, peer, now_ns);
    if (probe->theirs.step == GYRE_IB_UP && !probe->has_sent)
        send_all(peer);
    if (take_answers(peer)) {
        report(ib, probe, false); /* before the peer may begin an epoch with these rails */
        tell(ib, peer, now_ns);
    }
    const uint8_t common = probe->mine.rails & probe->theirs.rails;
    const bool is_done =
        probe->has_sent && common == (probe->mine.answered & probe->theirs.answered);
    if (is_done || gyre_now_ns() - probe->begun_ns >= PROBE_NS) {
        report(ib, probe, true);
        destroy_pairs(ib, probe);
        probe->runs = false;
    } else if (now_ns - probe->told_ns >= REPEAT_NS) {
        tell(ib, peer, now_ns);
    }
    return probe->runs;
}

static void *work(void *argument)
{
    struct gyre_ib_transport *ib = argument;
    struct gyre_ib_worker *worker = &ib->prober;
    pthread_mutex_lock(&ib->mail_lock);
    while (!worker->stops) {
        bool runs = false;
        worker->has_work = false;
        pthread_mutex_unlock(&ib->mail_lock);
        for (int i = 0; i < ib->config.n_peers && !stops(ib); i++)
            runs = advance(ib, &ib->peers[i]) || runs;
        pthread_mutex_lock(&ib->mail_lock);
        if (runs)
            gyre_cond_wait_until(&worker->changed, &ib->mail_lock, gyre_now_ns() + POLL_NS);
        else if (!worker->has_work && !worker->stops)
            pthread_cond_wait(&worker->changed, &ib->mail_lock);
    }
    for (int i = 0; i < ib->config.n_peers; i++)
        destroy_pairs(ib, &ib->peers[i].move.probe);
    gyre_ib_worker_ends(worker);
    pthread_mutex_unlock(&ib->mail_lock);
    return NULL;
}

static void wake(struct gyre_ib_transport *ib)
{
    ib->prober.has_work = true;
    pthread_cond_broadcast(&ib->prober.changed);
}

gyre_status gyre_ib_prober_start(struct gyre_ib_transport *ib)
{
    return gyre_ib_worker_start(ib, &ib->prober, work, "probe");
}

void gyre_ib_probe_begin(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer)
{
    peer->move.probe_ns = UINT64_MAX; /* until it has ended */
    pthread_mutex_lock(&ib->mail_lock);
    peer->move.probe.is_due = true;
    wake(ib);
    pthread_mutex_unlock(&ib->mail_lock);
}

void gyre_ib_probe_take_mail(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                             const void *state)
{
    pthread_mutex_lock(&ib->mail_lock);
    memcpy(&peer->move.probe.mail, state, sizeof(peer->move.probe.mail));
    peer->move.probe.has_mail = true;
    wake(ib);
    pthread_mutex_unlock(&ib->mail_lock);
}

bool gyre_ib_probe_take_result(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                               uint64_t now_ns)
{
    struct gyre_ib_move *move = &peer->move;
    struct gyre_ib_probe *probe = &move->probe;
    pthread_mutex_lock(&ib->mail_lock);
    const bool has_result = probe->has_result;
    const struct gyre_ib_probe_result result = probe->result;
    probe->has_result = false;
    pthread_mutex_unlock(&ib->mail_lock);
    uint8_t both = 0;
    for (int i = 0; i < move->n_pairs && has_result; i++) {
        struct gyre_ib_rail_pair *pair = &move->pairs[i];
        if ((result.answered >> i & 1) == 0 || pair->broken_ns >= result.begun_ns)
            continue;
        pair->is_bad = false;
        both |= (uint8_t)(result.both & ~move->used & 1U << i);
    }
    if (has_result && result.has_ended) {
        move->probe_ns = now_ns + (AGAIN_NS << gyre_min_u32(move->n_unanswered, MAX_DOUBLING));
        move->n_unanswered++;
    }
    return both != 0;
}
