/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a rank is: the call that this rank waits in, and how long another rank has been silent.
 */
#include "core/engine/health/watch.h"

#include "core/foundation/base/sync.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SECOND_NS      ((uint64_t)1000000000)
#define ASK_NS         SECOND_NS
#define ASK_SELDOM_NS  (10 * SECOND_NS) /* a stopped rendezvous has to keep the questions */
#define SELDOM_FROM_NS (30 * SECOND_NS)

/* ---- this rank ----------------------------------------------------------------------------- */

enum call_kind { CALL_NONE, CALL_RECORDED, CALL_FORGOTTEN, CALL_REPLAYED };

struct position {
    uint64_t completed;
    uint64_t launched;
    struct gyre_record call; /* CALL_RECORDED */
};

/* The first call that is not finished. */
static enum call_kind find_call(struct gyre_health *health, struct position *position_out)
{
    struct gyre_member *member = health->member;
    *position_out = (struct position){0};
    if (health->caller->executor == NULL)
        return CALL_NONE;
    const struct gyre_progress progress =
        health->caller->executor->ops->progress(health->caller->executor);
    const uint64_t completed = progress.completed;
    const uint64_t launched = gyre_load_acquire_u64(&health->caller->executor->n_launched);
    position_out->completed = completed;
    position_out->launched = launched;
    if (completed >= launched)
        return completed < progress.activity && member->device_info.kind == GYRE_DEVICE_CUDA
                   ? CALL_REPLAYED
                   : CALL_NONE;
    const uint64_t index = gyre_call_log_record_of(&health->caller->call_log, completed);
    return launched - completed <= GYRE_CALL_LOG_WORKS &&
                   gyre_call_log_get(&health->caller->call_log, index, &position_out->call)
               ? CALL_RECORDED
               : CALL_FORGOTTEN;
}

void gyre_health_call_text(struct gyre_health *health, char *text_out, size_t text_bytes)
{
    struct position position;
    switch (find_call(health, &position)) {
    case CALL_NONE:
        snprintf(text_out, text_bytes, "no operation");
        break;
    case CALL_RECORDED:
        gyre_record_text(&position.call, text_out, text_bytes);
        break;
    case CALL_FORGOTTEN: /* later calls have overwritten the record of this one */
        snprintf(text_out, text_bytes, "operation %" PRIu64 " of %" PRIu64 " that were enqueued",
                 position.completed + 1, position.launched);
        break;
    case CALL_REPLAYED:
        snprintf(text_out, text_bytes, "a call of a replayed graph");
        break;
    }
}

void gyre_health_place_of(struct gyre_health *health, struct gyre_health_place *place_out)
{
    struct gyre_call_log *call_log = &health->caller->call_log;
    struct position position;
    const enum call_kind kind = find_call(health, &position);
    *place_out = (struct gyre_health_place){.is_waiting = kind != CALL_NONE};
    pthread_mutex_lock(&call_log->lock);
    place_out->n_collectives = call_log->n_collectives;
    const uint64_t n_posted = call_log->n_posted;
    pthread_mutex_unlock(&call_log->lock);
    if (kind == CALL_RECORDED)
        place_out->call = position.call;
    else if (kind == CALL_NONE && n_posted > 0 &&
             !gyre_call_log_get(call_log, n_posted - 1, &place_out->call))
        memset(&place_out->call, 0, sizeof(place_out->call));
}

void gyre_health_waiting_call(struct gyre_health *health, struct gyre_record *call_out)
{
    struct position position;
    (void)find_call(health, &position);
    *call_out = position.call;
}

bool gyre_health_is_record(const struct gyre_record *record)
{
    return record->coll < GYRE_N_COLLECTIVES && record->dtype < GYRE_N_DTYPES &&
           (record->op < GYRE_N_OPS || record->op >= GYRE_FIRST_USER_OP);
}

/* ---- another rank -------------------------------------------------------------------------- */

uint64_t gyre_health_ask_ns(const struct gyre_health *health, uint64_t now_ns)
{
    return now_ns - health->still_since_ns < SELDOM_FROM_NS ? ASK_NS : ASK_SELDOM_NS;
}

uint64_t gyre_health_silence_limit_ns(const struct gyre_health *health, uint64_t now_ns)
{
    return gyre_health_ask_ns(health, now_ns) * 3 / 2;
}

uint64_t gyre_health_silent_ns(const struct gyre_health *health, int rank, uint64_t now_ns)
{
    const uint64_t heard_ns = health->peers[rank].heard_ns;
    const uint64_t since_ns = heard_ns > health->asks_since_ns ? heard_ns : health->asks_since_ns;
    return health->asks_since_ns == 0 || since_ns > now_ns ? 0 : now_ns - since_ns;
}

bool gyre_health_is_silent(const struct gyre_health *health, int rank, uint64_t now_ns)
{
    return !health->has_left[rank] && gyre_health_silent_ns(health, rank, now_ns) >=
                                          gyre_health_silence_limit_ns(health, now_ns);
}
