/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks that destroy their communicators tell each other about the signals that they wait for.
 * core/engine/comm/drain.c makes these reports and reads them.
 */
#include "core/engine/health/watch.h"

#include <stdlib.h>
#include <string.h>

static bool is_valid(const struct gyre_health *health, const struct gyre_health_blocked *blocked)
{
    if (blocked->n_ended == 0 || blocked->n_senders > GYRE_BLOCKED_SENDERS)
        return false;
    for (uint32_t i = 0; i < blocked->n_senders; i++)
        if (blocked->senders[i].rank >= (uint32_t)health->member->n_ranks)
            return false;
    return true;
}

void gyre_health_take_blocked(struct gyre_health *health, int rank,
                              const struct gyre_health_message *message, size_t n_bytes)
{
    struct gyre_health_peer *peer = &health->peers[rank];
    if (n_bytes < offsetof(struct gyre_health_message, blocked) + sizeof(message->blocked) ||
        !is_valid(health, &message->blocked))
        return;
    pthread_mutex_lock(&health->lock);
    if (peer->blocked == NULL)
        peer->blocked = malloc(sizeof(*peer->blocked));
    if (peer->blocked != NULL)
        *peer->blocked = message->blocked;
    pthread_mutex_unlock(&health->lock);
}

void gyre_health_tell_blocked(struct gyre_health *health, const struct gyre_health_blocked *blocked)
{
    const struct gyre_member *member = health->member;
    struct gyre_health_message message = {.kind = GYRE_HEALTH_BLOCKED};
    message.blocked = *blocked;
    member->bootstrap->ops->post(member->bootstrap, -1, &message,
                                 offsetof(struct gyre_health_message, blocked) + sizeof(*blocked));
}

struct gyre_health_blocked gyre_health_blocked_of(struct gyre_health *health, int rank)
{
    struct gyre_health_blocked blocked = {0};
    pthread_mutex_lock(&health->lock);
    if (health->peers[rank].blocked != NULL)
        blocked = *health->peers[rank].blocked;
    pthread_mutex_unlock(&health->lock);
    return blocked;
}
