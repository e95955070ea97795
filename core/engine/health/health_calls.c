/* SPDX-License-Identifier: Apache-2.0
 *
 * A mismatch ends the communicator.
 */
#include "core/engine/health/watch.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ASK_NS         GYRE_SECOND_NS
#define ASK_SELDOM_NS  (10 * GYRE_SECOND_NS) /* a stopped rendezvous has to keep the questions */
#define SELDOM_FROM_NS (30 * GYRE_SECOND_NS)

void gyre_health_post(const struct gyre_health *health, int rank,
                      const struct gyre_health_message *message, size_t body_bytes)
{
    struct gyre_bootstrap *bootstrap = health->comm->self.bootstrap;
    bootstrap->ops->post(bootstrap, rank, message,
                         offsetof(struct gyre_health_message, records) + body_bytes);
}

const char *gyre_health_rank_name(const struct gyre_health *health, int rank, char *name_out)
{
    return gyre_rank_name(health->comm->origin, health->comm->links.infos, rank, name_out);
}

void gyre_health_fail(struct gyre_health *health, gyre_status status, const char *text, bool prints)
{
    struct gyre_rank *self = &health->comm->self;
    struct gyre_executor *executor = health->comm->executor;
    if (!gyre_fault_is_raised(&self->fault)) {
        gyre_store_release_u32(&self->fault.is_told, 1);
        const uint64_t n_launched = gyre_load_acquire_u64(&executor->n_launched);
        /* is_idle() would wait for a launch that waits for the fault */
        if (status == GYRE_ERROR_REMOTE &&
            executor->ops->progress(executor).completed == n_launched)
            gyre_store_release_u64(&health->idle_after, n_launched + 1);
    }
    if (gyre_fault_raise(&self->fault, status, text))
        gyre_log(prints ? GYRE_LOG_WARN : GYRE_LOG_INFO, GYRE_LOG_COLL, "%s", text);
}

static void tell_end(const struct gyre_health *health, gyre_status status, const char *text)
{
    struct gyre_health_message message = {.kind = GYRE_HEALTH_END, .status = (uint32_t)status};
    snprintf(message.text, sizeof(message.text), "%s", text);
    gyre_health_post(health, -1, &message, strlen(message.text) + 1);
}

void gyre_health_fail_all(struct gyre_health *health, gyre_status status, const char *text)
{
    tell_end(health, status, text);
    gyre_health_fail(health, status, text, true);
}

void gyre_health_pass_on(struct gyre_health *health)
{
    struct gyre_rank *self = &health->comm->self;
    char text[GYRE_CAUSE_MAX_BYTES];
    char name[GYRE_RANK_NAME_BYTES];
    if (!gyre_fault_is_raised(&self->fault) || gyre_load_acquire_u32(&self->has_left) != 0 ||
        !gyre_compare_exchange_u32(&self->fault.is_told, 0, 1))
        return;
    if (self->fault.status == GYRE_ERROR_ABORTED) /* its cause names the rank */
        snprintf(text, sizeof(text), "%s", self->fault.cause);
    else
        snprintf(text, sizeof(text), "%s failed: %.800s",
                 gyre_health_rank_name(health, self->rank, name), self->fault.cause);
    /* Ranks in an all-gather come first: the goodbye of a rank that reads the message would be all
     * that they learn. */
    self->bootstrap->ops->fail(self->bootstrap, text);
    tell_end(health, GYRE_ERROR_REMOTE, text);
}

uint64_t gyre_health_ask_ns(const struct gyre_health *health, uint64_t now_ns)
{
    return now_ns - health->still_since_ns < SELDOM_FROM_NS ? ASK_NS : ASK_SELDOM_NS;
}

enum call_kind { CALL_NONE, CALL_RECORDED, CALL_FORGOTTEN, CALL_REPLAYED };

struct position {
    uint64_t completed;
    uint64_t launched;
    struct gyre_record call;
};

static enum call_kind find_call(struct gyre_health *health, struct position *position_out)
{
    struct gyre_executor *executor = health->comm->executor;
    struct gyre_call_log *call_log = &health->comm->call_log;
    *position_out = (struct position){0};
    if (executor == NULL)
        return CALL_NONE;
    const struct gyre_progress progress = executor->ops->progress(executor);
    const uint64_t completed = progress.completed;
    const uint64_t launched = gyre_load_acquire_u64(&executor->n_launched);
    position_out->completed = completed;
    position_out->launched = launched;
    if (completed >= launched)
        return completed < progress.activity &&
                       health->comm->self.device_info.kind == GYRE_DEVICE_CUDA
                   ? CALL_REPLAYED
                   : CALL_NONE;
    return launched - completed <= GYRE_CALL_LOG_WORKS &&
                   gyre_call_log_get(call_log, gyre_call_log_record_of(call_log, completed),
                                     &position_out->call)
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
    case CALL_FORGOTTEN: /* later calls have overwritten its record */
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
    struct gyre_call_log *call_log = &health->comm->call_log;
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

uint64_t gyre_health_silence_limit_ns(const struct gyre_health *health, uint64_t now_ns)
{
    return gyre_health_ask_ns(health, now_ns) * 3 / 2;
}

uint64_t gyre_health_silent_ns(const struct gyre_health *health, int rank, uint64_t now_ns)
{
    const uint64_t since_ns = gyre_max_u64(health->peers[rank].heard_ns, health->asks_since_ns);
    return health->asks_since_ns == 0 || since_ns > now_ns ? 0 : now_ns - since_ns;
}

bool gyre_health_is_silent(const struct gyre_health *health, int rank, uint64_t now_ns)
{
    return !health->has_left[rank] && gyre_health_silent_ns(health, rank, now_ns) >=
                                          gyre_health_silence_limit_ns(health, now_ns);
}

enum gyre_health_standing gyre_health_stands(const struct gyre_health *health, int rank,
                                             uint64_t now_ns, const struct gyre_record *mine)
{
    const struct gyre_health_peer *peer = &health->peers[rank];
    const struct gyre_health_place *place = &peer->place;
    const bool is_collective = mine->sequence > 0 && mine->coll != GYRE_COLL_SEND_RECV;
    if (rank == health->comm->self.rank)
        return GYRE_STANDS_IN_THE_CALL;
    if (health->has_left[rank])
        return GYRE_STANDS_LEFT;
    if (gyre_health_is_silent(health, rank, now_ns))
        return GYRE_STANDS_SILENT;
    if ((is_collective && place->n_collectives < mine->sequence) ||
        (peer->behind_ns != 0 &&
         now_ns - peer->behind_ns < gyre_health_silence_limit_ns(health, now_ns)))
        return GYRE_STANDS_BEHIND;
    if (!place->is_waiting)
        return GYRE_STANDS_DONE;
    return place->call.sequence == mine->sequence && place->call.coll == mine->coll
               ? GYRE_STANDS_IN_THE_CALL
               : GYRE_STANDS_ELSEWHERE;
}

bool gyre_health_is_record(const struct gyre_record *record)
{
    return record->coll < GYRE_N_COLLECTIVES && record->dtype < GYRE_N_DTYPES &&
           (record->op < GYRE_N_OPS || record->op >= GYRE_FIRST_USER_OP);
}

/* the same words on both ranks: the lower rank comes first */
static void report_mismatch(struct gyre_health *health, const struct gyre_record *mine,
                            const struct gyre_record *theirs, int their_rank)
{
    const int rank = health->comm->self.rank;
    const bool mine_first = rank < their_rank;
    const struct gyre_record *first = mine_first ? mine : theirs;
    const struct gyre_record *second = mine_first ? theirs : mine;
    const int first_rank = mine_first ? rank : their_rank;
    const int second_rank = mine_first ? their_rank : rank;
    char first_name[GYRE_RANK_NAME_BYTES];
    char second_name[GYRE_RANK_NAME_BYTES];
    char first_text[160];
    char second_text[160];
    char text[GYRE_CAUSE_MAX_BYTES];
    snprintf(text, sizeof(text),
             "calls do not fit: %s called %s, %s called %s; outputs are "
             "undefined - make all ranks call the same, or set GYRE_CHECK=calls to be told before "
             "data moves",
             gyre_health_rank_name(health, first_rank, first_name),
             gyre_record_text(first, first_text, sizeof(first_text)),
             gyre_health_rank_name(health, second_rank, second_name),
             gyre_record_text(second, second_text, sizeof(second_text)));
    gyre_health_fail_all(health, GYRE_ERROR_INVALID_USAGE, text);
}

void gyre_health_posted(struct gyre_health *health, const struct gyre_record *record)
{
    /* gyre_health_answer() takes a question that arrives after this load */
    if (gyre_load_acquire_u32(&health->n_questions) == 0)
        return;
    struct gyre_health_question misfit = {.rank = -1};
    pthread_mutex_lock(&health->lock);
    for (uint32_t i = 0; i < health->n_questions;) {
        struct gyre_health_question *question = &health->questions[i];
        if (!gyre_record_same_place(record, health->comm->self.rank, &question->record,
                                    question->rank)) {
            i++;
            continue;
        }
        if (!gyre_record_fits(record, &question->record))
            misfit = *question;
        *question = health->questions[health->n_questions - 1];
        gyre_store_release_u32(&health->n_questions, health->n_questions - 1);
    }
    pthread_mutex_unlock(&health->lock);
    if (misfit.rank >= 0)
        report_mismatch(health, record, &misfit.record, misfit.rank);
}

void gyre_health_answer(struct gyre_health *health, int rank,
                        const struct gyre_health_message *message)
{
    struct gyre_call_log *call_log = &health->comm->call_log;
    const int own = health->comm->self.rank;
    const uint64_t now_ns = gyre_now_ns();
    struct gyre_health_message reply = {.kind = GYRE_HEALTH_ANSWER};
    bool is_behind = false;
    for (uint32_t i = 0; i < message->n_records && i < GYRE_HEALTH_MAX_ASKED; i++) {
        const struct gyre_record *theirs = &message->records[i];
        struct gyre_record mine;
        if (!gyre_health_is_record(theirs))
            continue;
        if (!gyre_call_log_find(call_log, own, theirs, rank, &mine)) {
            /* Keep the question until this rank makes the call. */
            pthread_mutex_lock(&health->lock);
            bool is_known = false;
            for (uint32_t j = 0; j < health->n_questions; j++)
                is_known = is_known ||
                           (health->questions[j].rank == rank &&
                            memcmp(&health->questions[j].record, theirs, sizeof(*theirs)) == 0);
            if (!is_known && health->n_questions < health->max_questions) {
                health->questions[health->n_questions].rank = rank;
                health->questions[health->n_questions].record = *theirs;
                gyre_store_release_u32(&health->n_questions, health->n_questions + 1);
            }
            pthread_mutex_unlock(&health->lock);
            /* gyre_health_posted() may have missed the question */
            if (gyre_call_log_find(call_log, own, theirs, rank, &mine))
                gyre_health_posted(health, &mine);
            is_behind = true;
        } else if (!gyre_record_fits(&mine, theirs)) {
            report_mismatch(health, &mine, theirs, rank);
            return;
        }
    }
    /* A rank that asks sends its place with every question. */
    if (!is_behind && health->asked_ns != 0 &&
        now_ns - health->asked_ns < gyre_health_ask_ns(health, now_ns))
        return;
    gyre_health_place_of(health, &reply.place);
    reply.place.is_behind = is_behind;
    gyre_health_post(health, rank, &reply, 0);
}
