/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread takes the events of the bootstrap links, checks this rank's calls, and tells ranks and
 * children of a failure.
 */
#include "core/engine/health/watch.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS 100

static void tell_children(struct gyre_health *health, int lost_rank, const char *how,
                          const char *text)
{
    GYRE_LOCKED(&health->lock);
    for (struct gyre_origin *at = health->children; at != NULL; at = at->next)
        gyre_origin_tell(at, lost_rank, how, text);
}

void gyre_health_watch_child(struct gyre_health *health, struct gyre_origin *origin)
{
    struct gyre_rank *self = &health->comm->self;
    GYRE_LOCKED(&health->lock);
    for (struct gyre_origin **at = &health->children; *at != NULL;) { /* forget released children */
        struct gyre_origin *child = *at;
        if (gyre_origin_is_alone(child)) {
            *at = child->next;
            gyre_origin_release(child);
        } else {
            at = &child->next;
        }
    }
    origin->next = health->children;
    health->children = origin;
    /* these are not announced again */
    const bool has_failed = gyre_fault_is_raised(&self->fault);
    const char *cause = has_failed ? self->fault.cause : "";
    for (int rank = 0; rank < self->n_ranks; rank++)
        if (health->was_lost[rank])
            gyre_origin_tell(origin, rank, "its process ended", cause);
    if (has_failed)
        gyre_origin_tell(origin, -1, "", cause);
}

void gyre_health_tell_blocked(struct gyre_health *health, const struct gyre_health_blocked *blocked)
{
    struct gyre_health_message message = {.kind = GYRE_HEALTH_BLOCKED};
    message.blocked = *blocked;
    gyre_health_post(health, -1, &message, sizeof(*blocked));
}

static void take_blocked(struct gyre_health *health, int rank,
                         const struct gyre_health_message *message, size_t n_bytes)
{
    struct gyre_health_peer *peer = &health->peers[rank];
    const struct gyre_health_blocked *blocked = &message->blocked;
    if (n_bytes < offsetof(struct gyre_health_message, blocked) + sizeof(*blocked) ||
        blocked->n_ended == 0 || blocked->n_senders > GYRE_BLOCKED_SENDERS)
        return;
    for (uint32_t i = 0; i < blocked->n_senders; i++)
        if (blocked->senders[i].rank >= (uint32_t)health->comm->self.n_ranks)
            return;
    GYRE_LOCKED(&health->lock);
    if (peer->blocked == NULL)
        peer->blocked = malloc(sizeof(*peer->blocked));
    if (peer->blocked != NULL)
        *peer->blocked = *blocked;
}

struct gyre_health_blocked gyre_health_blocked_of(struct gyre_health *health, int rank)
{
    struct gyre_health_blocked blocked = {0};
    GYRE_LOCKED(&health->lock);
    if (health->peers[rank].blocked != NULL)
        blocked = *health->peers[rank].blocked;
    return blocked;
}

static bool is_set(struct gyre_health *health, const bool *flag)
{
    GYRE_LOCKED(&health->lock);
    return *flag;
}

bool gyre_health_has_left(struct gyre_health *health, int rank)
{
    return is_set(health, &health->has_left[rank]);
}

static bool all_left(const struct gyre_health *health)
{
    const struct gyre_rank *self = &health->comm->self;
    for (int rank = 0; rank < self->n_ranks; rank++)
        if (rank != self->rank && !health->has_left[rank])
            return false;
    return true;
}

void gyre_health_wait_left(struct gyre_health *health, uint64_t deadline_ns)
{
    GYRE_LOCKED(&health->lock);
    health->is_leaving = true;
    for (;;) {
        /* This rank's data may wait for a rail. */
        gyre_comm *comm = health->comm;
        const bool is_moving = !gyre_fault_is_raised(&comm->self.fault) &&
                               gyre_links_are_moving(&comm->links, &comm->puts.transports);
        const uint64_t now_ns = gyre_now_ns();
        if (all_left(health) || health->is_alone || (now_ns >= deadline_ns && !is_moving))
            break;
        gyre_cond_wait_until(&health->changed, &health->lock,
                             gyre_max_u64(deadline_ns, now_ns + TICK_MS * 1000000ULL));
    }
}

static void take_message(struct gyre_health *health, const struct gyre_event *event)
{
    struct gyre_health_message message;
    struct gyre_health_peer *peer = &health->peers[event->rank];
    const size_t n_head = offsetof(struct gyre_health_message, records);
    uint32_t kind = 0;
    if (event->n_bytes >= sizeof(kind))
        memcpy(&kind, event->message, sizeof(kind));
    if (kind == GYRE_TRANSPORT_STATE_KIND && event->rank != health->comm->self.rank) {
        peer->heard_ns = gyre_now_ns();
        gyre_links_take_state(&health->comm->links, &health->comm->puts.transports, event->rank,
                              event->message, event->n_bytes);
        return;
    }
    if (event->n_bytes < n_head || event->n_bytes > sizeof(message))
        return;
    memset(&message, 0, sizeof(message));
    memcpy(&message, event->message, event->n_bytes);
    peer->heard_ns = gyre_now_ns();
    if ((message.kind <= GYRE_HEALTH_ANSWER || message.kind == GYRE_HEALTH_WAITS) &&
        gyre_health_is_record(&message.place.call))
        peer->place = message.place;
    switch (message.kind) {
    case GYRE_HEALTH_ASK:
        peer->asked_ns = peer->heard_ns;
        if (event->n_bytes >= n_head + (size_t)message.n_records * sizeof(struct gyre_record))
            gyre_health_answer(health, event->rank, &message);
        break;
    case GYRE_HEALTH_ANSWER:
        peer->behind_ns = message.place.is_behind != 0 ? peer->heard_ns : 0;
        break;
    case GYRE_HEALTH_END:
        message.text[sizeof(message.text) - 1] = '\0';
        gyre_health_fail(health,
                         message.status == GYRE_ERROR_INVALID_USAGE ||
                                 message.status == GYRE_ERROR_TIMEOUT
                             ? (gyre_status)message.status
                             : GYRE_ERROR_REMOTE,
                         message.text, false);
        break;
    case GYRE_HEALTH_WHERE:
        gyre_health_tell_waits(health, event->rank);
        break;
    case GYRE_HEALTH_WAITS:
        gyre_health_take_waits(health, event->rank, &message, event->n_bytes);
        break;
    case GYRE_HEALTH_END_ASK:
        gyre_health_take_end_ask(health, event->rank, &message, event->n_bytes);
        break;
    case GYRE_HEALTH_END_ANSWER:
        gyre_health_take_end_answer(health, event->rank, &message, event->n_bytes);
        break;
    case GYRE_HEALTH_BLOCKED:
        take_blocked(health, event->rank, &message, event->n_bytes);
        break;
    default: /* an echo, or an unknown kind */
        break;
    }
}

static void mark_left(struct gyre_health *health, int rank, bool was_lost)
{
    GYRE_LOCKED(&health->lock);
    health->was_lost[rank] = health->was_lost[rank] || was_lost;
    health->has_left[rank] = true;
    health->peers[rank].left_ns = gyre_now_ns();
    pthread_cond_broadcast(&health->changed);
}

static void take_event(struct gyre_health *health, const struct gyre_event *event)
{
    struct gyre_executor *executor = health->comm->executor;
    if (event->kind == GYRE_EVENT_NONE || event->rank < 0 ||
        event->rank >= health->comm->self.n_ranks)
        return;
    if (event->kind == GYRE_EVENT_MESSAGE) {
        take_message(health, event);
    } else if (event->kind == GYRE_EVENT_LEFT) {
        /* Ends waits for signals that the rank has not sent, and puts to it. A rank behind a proxy
         * says goodbye on its put link, after its signals (core/engine/comm/put_peers.c). */
        if (!gyre_links_is_proxied_to(&health->comm->links, event->rank))
            executor->ops->peer_left(executor, event->rank);
        mark_left(health, event->rank, false);
    } else {
        struct gyre_rank *self = &health->comm->self;
        char call[160];
        char name[GYRE_RANK_NAME_BYTES];
        char before[GYRE_CAUSE_MAX_BYTES];
        char text[GYRE_CAUSE_MAX_BYTES];
        gyre_health_call_text(health, call, sizeof(call));
        gyre_health_rank_name(health, event->rank, name);
        snprintf(text, sizeof(text), "%s died: %s; rank %d%s was in %s", name, event->text,
                 self->rank, health->comm->origin != NULL ? " of it" : "", call);
        /* The rank may only have given up because the parent had failed. */
        if (gyre_origin_word(health->comm->origin, before) && strstr(before, name) == NULL)
            gyre_text_append(text, sizeof(text), "; before that %.300s", before);
        if (gyre_load_acquire_u32(&self->has_left) == 0)
            gyre_health_fail(health, GYRE_ERROR_REMOTE, text,
                             self->rank == (event->rank == 0 ? 1 : 0));
        mark_left(health, event->rank, true);
        tell_children(health, event->rank, event->text, text);
    }
}

bool gyre_health_is_unharmed(const struct gyre_health *health)
{
    return gyre_load_acquire_u64(&health->idle_after) ==
           gyre_load_acquire_u64(&health->comm->executor->n_launched) + 1;
}

static void *watch(void *argument)
{
    struct gyre_health *health = argument;
    struct gyre_rank *self = &health->comm->self;
    struct gyre_event event;
    gyre_log_set_rank(self->rank);
    while (!is_set(health, &health->stops)) {
        const gyre_status status = self->bootstrap->ops->poll(self->bootstrap, TICK_MS, &event);
        if (status != GYRE_SUCCESS) {
            /* Without the rendezvous or memory for its messages this rank can watch no rank any
             * more, and no goodbye arrives. */
            if (status == GYRE_ERROR_OUT_OF_MEMORY) {
                gyre_fault_raise(&self->fault, status, gyre_cause());
                gyre_health_pass_on(health);
            }
            if (gyre_load_acquire_u32(&self->has_left) == 0)
                gyre_health_fail(health, GYRE_ERROR_REMOTE, gyre_cause(), true);
            else
                for (int rank = 0; rank < self->n_ranks; rank++)
                    mark_left(health, rank, false);
            break;
        }
        take_event(health, &event);
        gyre_health_check_dump(health);
        if (is_set(health, &health->is_leaving)) {
            if (!gyre_health_check_leaving(health)) {
                pthread_mutex_lock(&health->lock);
                health->is_alone = true;
                pthread_cond_broadcast(&health->changed);
                pthread_mutex_unlock(&health->lock);
            }
            continue;
        }
        if (!gyre_fault_is_raised(&self->fault)) {
            gyre_health_check_progress(health);
            continue;
        }
        gyre_health_pass_on(health);
        if (!health->has_told_children)
            tell_children(health, -1, "", self->fault.cause);
        health->has_told_children = true;
    }
    return NULL;
}

static void free_health(struct gyre_health *health)
{
    while (health->children != NULL) {
        struct gyre_origin *next = health->children->next;
        gyre_origin_release(health->children);
        health->children = next;
    }
    for (int rank = 0; health->peers != NULL && rank < health->comm->self.n_ranks; rank++) {
        free(health->peers[rank].waits);
        free(health->peers[rank].blocked);
    }
    free(health->dump.text);
    pthread_cond_destroy(&health->changed);
    pthread_mutex_destroy(&health->lock);
    free(health->has_left);
    free(health->was_lost);
    free(health->peers);
    free(health->standings);
    free(health->questions);
    free(health);
}

gyre_status gyre_health_open(gyre_comm *comm, struct gyre_health **health_out)
{
    const struct gyre_rank *self = &comm->self;
    const size_t n = (size_t)self->n_ranks;
    struct gyre_health *health = calloc(1, sizeof(*health));
    if (health == NULL)
        return gyre_fail_errno(ENOMEM, "health of rank %d", self->rank);
    health->comm = comm;
    comm->pass_on = gyre_health_pass_on;
    health->max_questions = (uint32_t)n * GYRE_HEALTH_MAX_ASKED;
    health->has_left = calloc(n, sizeof(bool));
    health->was_lost = calloc(n, sizeof(bool));
    health->peers = calloc(n, sizeof(*health->peers));
    health->standings = calloc(n, 1);
    health->questions = calloc(health->max_questions, sizeof(*health->questions));
    pthread_mutex_init(&health->lock, NULL);
    gyre_cond_init(&health->changed);
    health->still_since_ns = gyre_now_ns();
    health->started_ns = health->still_since_ns;
    health->checked_ns = health->still_since_ns;
    const bool has_memory = health->has_left != NULL && health->was_lost != NULL &&
                            health->peers != NULL && health->standings != NULL &&
                            health->questions != NULL;
    const gyre_status status =
        has_memory ? gyre_thread_start(&health->thread, 0, watch, health, "the health thread")
                   : gyre_fail_errno(ENOMEM, "health of rank %d", self->rank);
    if (status != GYRE_SUCCESS) {
        free_health(health);
        return status;
    }
    *health_out = health;
    return GYRE_SUCCESS;
}

void gyre_health_close(struct gyre_health *health)
{
    if (health == NULL)
        return;
    pthread_mutex_lock(&health->lock);
    health->stops = true;
    pthread_cond_broadcast(&health->changed);
    pthread_mutex_unlock(&health->lock);
    health->comm->self.bootstrap->ops->wake(health->comm->self.bootstrap);
    pthread_join(health->thread, NULL);
    free_health(health);
}
