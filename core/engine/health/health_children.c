/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells the children of a communicator, which were split or shrunk from it, when it fails. Ranks of
 * a child that have not joined its rendezvous yet may never join it after that.
 */
#include "core/engine/health/watch.h"

void gyre_health_tell_children(struct gyre_health *health, int lost_rank, const char *how,
                               const char *text)
{
    pthread_mutex_lock(&health->lock);
    for (struct gyre_origin *at = health->children; at != NULL; at = at->next)
        gyre_origin_tell(at, lost_rank, how, text);
    pthread_mutex_unlock(&health->lock);
}

/* Forget the children that are gone. The caller holds the lock. */
static void drop_children(struct gyre_health *health)
{
    for (struct gyre_origin **at = &health->children; *at != NULL;) {
        struct gyre_origin *child = *at;
        if (gyre_origin_is_alone(child)) {
            *at = child->next;
            gyre_origin_release(child);
        } else {
            at = &child->next;
        }
    }
}

void gyre_health_watch_child(struct gyre_health *health, struct gyre_origin *origin)
{
    struct gyre_member *member = health->member;
    pthread_mutex_lock(&health->lock);
    drop_children(health);
    origin->next = health->children;
    health->children = origin;
    /* Losses and the failure of the past are told here, because they are not announced again. */
    const bool has_failed = gyre_fault_is_raised(&member->fault);
    const char *cause = has_failed ? member->fault.cause : "";
    for (int rank = 0; rank < member->n_ranks; rank++)
        if (health->was_lost[rank])
            gyre_origin_tell(origin, rank, "its process ended", cause);
    if (has_failed)
        gyre_origin_tell(origin, -1, "", cause);
    pthread_mutex_unlock(&health->lock);
}

void gyre_health_release_children(struct gyre_health *health)
{
    while (health->children != NULL) {
        struct gyre_origin *next = health->children->next;
        gyre_origin_release(health->children);
        health->children = next;
    }
}
