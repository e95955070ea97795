/* SPDX-License-Identifier: Apache-2.0
 *
 * The fence of docs/failover.md: a thread takes the queue pairs of a broken connection to ERR and
 * destroys them, because a device that has failed may not return from these calls.
 */
#include "transport/ib/ib_path.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <time.h>

/* On a machine with too much to do calls take seconds. */
#define HANG_NS  10000000000ULL
#define CLOSE_NS 2000000000ULL
/* No completion says that a NIC's writes have reached a GPU's memory. */
#define GPU_WRITES_NS 10000000L

static void destroy_all(const struct gyre_ib_transport *ib, struct gyre_ib_move *move)
{
    const struct timespec gpu_writes = {0, GPU_WRITES_NS};
    move->fence_error = 0;
    for (int i = 0; i < move->n_old; i++)
        gyre_ib_qp_stop(ib->verbs, move->old[i]);
    for (int i = 0; i < move->n_old && move->fence_error == 0; i++)
        move->fence_error = ib->verbs->destroy_qp(move->old[i]);
    if (ib->recv_gdr != GYRE_IB_GDR_NONE)
        (void)nanosleep(&gpu_writes, NULL);
}

static void *work(void *argument)
{
    struct gyre_ib_transport *ib = argument;
    struct gyre_ib_worker *fencer = &ib->fencer;
    pthread_mutex_lock(&ib->mail_lock);
    while (!fencer->stops) {
        bool has_worked = false;
        for (int i = 0; i < ib->config.n_peers; i++) {
            struct gyre_ib_move *move = &ib->peers[i].move;
            if (move->fence != GYRE_IB_FENCE_RUNS)
                continue;
            pthread_mutex_unlock(&ib->mail_lock);
            destroy_all(ib, move);
            pthread_mutex_lock(&ib->mail_lock);
            move->fence = GYRE_IB_FENCE_ENDED;
            has_worked = true;
            gyre_store_release_u32(&ib->needs_move, 1);
            if (ib->proxy != NULL)
                gyre_proxy_wake(ib->proxy);
        }
        if (!has_worked && !fencer->stops)
            pthread_cond_wait(&fencer->changed, &ib->mail_lock);
    }
    gyre_ib_worker_ends(fencer);
    pthread_mutex_unlock(&ib->mail_lock);
    return NULL;
}

gyre_status gyre_ib_fence_begin(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer,
                                uint64_t now_ns)
{
    struct gyre_ib_move *move = &peer->move;
    move->n_old = 0;
    for (int i = 0; i < ib->channels_per_peer; i++) {
        struct gyre_ib_channel *channel = &peer->channels[i];
        if (channel->qp != NULL)
            move->old[move->n_old++] = channel->qp;
        channel->qp = NULL;
        channel->n_batch = 0;
        channel->n_recv_due = 0;
        channel->n_posted = channel->n_retired = channel->signalled_at = 0;
        channel->silent_ns = 0;
        channel->n_in_flight = 0;
    }
    move->fence_ns = now_ns;
    move->is_fencing = true;
    GYRE_TRY(gyre_ib_worker_start(ib, &ib->fencer, work, "failover"));
    pthread_mutex_lock(&ib->mail_lock);
    move->fence = GYRE_IB_FENCE_RUNS;
    pthread_cond_broadcast(&ib->fencer.changed);
    pthread_mutex_unlock(&ib->mail_lock);
    return GYRE_SUCCESS;
}

bool gyre_ib_fence_ends(struct gyre_ib_transport *ib, struct gyre_ib_peer *peer, uint64_t now_ns)
{
    struct gyre_ib_move *move = &peer->move;
    const struct gyre_ib_channel *channel = &peer->channels[0];
    char ends[400];
    pthread_mutex_lock(&ib->mail_lock);
    const bool has_ended = move->fence == GYRE_IB_FENCE_ENDED;
    if (has_ended)
        move->fence = GYRE_IB_FENCE_NONE;
    pthread_mutex_unlock(&ib->mail_lock);
    move->is_fencing = !has_ended;
    if (!has_ended && now_ns - move->fence_ns >= HANG_NS)
        gyre_fail(GYRE_ERROR_SYSTEM,
                  "E401 RDMA %s/%u: a broken connection cannot be fenced: ibv_destroy_qp has not "
                  "returned for %.1f s: %s",
                  channel->rail->port.name, channel->rail->port.port,
                  (double)(now_ns - move->fence_ns) / 1e9,
                  gyre_ib_channel_to_text(ib, channel, ends, sizeof(ends)));
    else if (has_ended && move->fence_error != 0)
        gyre_fail_errno(move->fence_error,
                        "E401 RDMA %s/%u: a broken connection cannot be fenced: ibv_destroy_qp: %s",
                        channel->rail->port.name, channel->rail->port.port,
                        gyre_ib_channel_to_text(ib, channel, ends, sizeof(ends)));
    else
        return has_ended;
    gyre_ib_raise(ib, GYRE_ERROR_SYSTEM, gyre_cause());
    return false;
}

gyre_status gyre_ib_worker_start(struct gyre_ib_transport *ib, struct gyre_ib_worker *worker,
                                 void *(*work_of)(void *), const char *name)
{
    if (!worker->is_running)
        GYRE_TRY(gyre_thread_start(&worker->thread, 0, work_of, ib, name));
    worker->is_running = true;
    return GYRE_SUCCESS;
}

void gyre_ib_worker_ends(struct gyre_ib_worker *worker)
{
    worker->has_ended = true;
    pthread_cond_broadcast(&worker->changed);
}

bool gyre_ib_worker_close(struct gyre_ib_transport *ib, struct gyre_ib_worker *worker)
{
    const uint64_t deadline_ns = gyre_now_ns() + CLOSE_NS;
    if (!worker->is_running)
        return true;
    pthread_mutex_lock(&ib->mail_lock);
    worker->stops = true;
    pthread_cond_broadcast(&worker->changed);
    while (!worker->has_ended && gyre_now_ns() < deadline_ns)
        gyre_cond_wait_until(&worker->changed, &ib->mail_lock, deadline_ns);
    const bool has_ended = worker->has_ended;
    pthread_mutex_unlock(&ib->mail_lock);
    if (has_ended)
        pthread_join(worker->thread, NULL);
    else
        pthread_detach(worker->thread);
    return has_ended;
}
