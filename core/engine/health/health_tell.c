/* SPDX-License-Identifier: Apache-2.0
 *
 * Telling the other ranks, and this rank's waiting threads, that a communicator ends and why.
 */
#include "core/engine/health/watch.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"

#include <stdio.h>
#include <string.h>

void gyre_health_end(const struct gyre_health *health, gyre_status status, const char *text)
{
    const struct gyre_member *member = health->member;
    struct gyre_health_message message = {.kind = GYRE_HEALTH_END, .status = (uint32_t)status};
    snprintf(message.text, sizeof(message.text), "%s", text);
    const size_t n_bytes = offsetof(struct gyre_health_message, text) + strlen(message.text) + 1;
    member->bootstrap->ops->post(member->bootstrap, -1, &message, n_bytes);
}

const char *gyre_health_rank_name(const struct gyre_health *health, int rank, char *name_out)
{
    return gyre_rank_name(health->origin, health->links->infos, rank, name_out);
}

void gyre_health_fail(struct gyre_health *health, gyre_status status, const char *text, bool prints)
{
    struct gyre_member *member = health->member;
    if (!gyre_fault_is_raised(&member->fault))
        gyre_store_release_u32(&health->has_told, 1);
    if (gyre_fault_raise(&member->fault, status, text))
        gyre_log(prints ? GYRE_LOG_WARN : GYRE_LOG_INFO, GYRE_LOG_COLL, "%s", text);
}

void gyre_health_expect_alike(struct gyre_health *health)
{
    gyre_store_release_u32(&health->has_told, 1);
}

void gyre_health_pass_on(struct gyre_health *health)
{
    struct gyre_member *member = health->member;
    char text[GYRE_CAUSE_MAX_BYTES];
    char name[GYRE_RANK_NAME_BYTES];
    if (!gyre_fault_is_raised(&member->fault) || gyre_load_acquire_u32(&member->has_left) != 0 ||
        !gyre_compare_exchange_u32(&health->has_told, 0, 1))
        return;
    if (member->fault.status == GYRE_ERROR_ABORTED) /* its cause names the rank */
        snprintf(text, sizeof(text), "%s", member->fault.cause);
    else
        snprintf(text, sizeof(text), "%s failed: %.800s",
                 gyre_health_rank_name(health, member->rank, name), member->fault.cause);
    /* Ranks that wait in an all-gather over the bootstrap are told first: the rank that reads the
     * message may leave at once, and its goodbye would be all that they learn. */
    member->bootstrap->ops->fail(member->bootstrap, text);
    gyre_health_end(health, GYRE_ERROR_REMOTE, text);
}

void gyre_health_stop_waiting(struct gyre_health *health)
{
    pthread_mutex_lock(&health->lock);
    health->is_alone = true;
    pthread_cond_broadcast(&health->changed);
    pthread_mutex_unlock(&health->lock);
}
