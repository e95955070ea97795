/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the calls of this rank with the calls that other ranks ask about. A question about a
 * call that this rank has not made yet is kept until this rank makes the call. Calls that do not
 * fit are a mismatch, which ends the communicator.
 */
#include "core/engine/health/watch.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <string.h>

/* The message names the lower rank first, so both ranks report the mismatch in the same words. */
static void report_mismatch(struct gyre_health *health, const struct gyre_record *mine,
                            const struct gyre_record *theirs, int their_rank)
{
    struct gyre_member *member = health->member;
    const bool mine_first = member->rank < their_rank;
    const struct gyre_record *first = mine_first ? mine : theirs;
    const struct gyre_record *second = mine_first ? theirs : mine;
    const int first_rank = mine_first ? member->rank : their_rank;
    const int second_rank = mine_first ? their_rank : member->rank;
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
    gyre_health_end(health, GYRE_ERROR_INVALID_USAGE, text);
    gyre_health_fail(health, GYRE_ERROR_INVALID_USAGE, text, true);
}

static void remember_question(struct gyre_health *health, int rank,
                              const struct gyre_record *record)
{
    pthread_mutex_lock(&health->lock);
    bool is_known = false;
    for (uint32_t i = 0; i < health->n_questions; i++)
        is_known = is_known || (health->questions[i].rank == rank &&
                                memcmp(&health->questions[i].record, record, sizeof(*record)) == 0);
    if (!is_known && health->n_questions < health->max_questions) {
        health->questions[health->n_questions].rank = rank;
        health->questions[health->n_questions].record = *record;
        gyre_store_release_u32(&health->n_questions, health->n_questions + 1);
    }
    pthread_mutex_unlock(&health->lock);
}

void gyre_health_posted(struct gyre_health *health, const struct gyre_record *record)
{
    /* In the common case no peer has asked, and one load is enough. gyre_health_answer() finds this
     * record in the call log if a question arrives right after the load. */
    if (gyre_load_acquire_u32(&health->n_questions) == 0)
        return;
    struct gyre_member *member = health->member;
    struct gyre_health_question misfit = {.rank = -1};
    pthread_mutex_lock(&health->lock);
    for (uint32_t i = 0; i < health->n_questions;) {
        struct gyre_health_question *question = &health->questions[i];
        if (!gyre_record_same_place(record, member->rank, &question->record, question->rank)) {
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

/* Tell a rank the place of this rank. A rank that asks questions itself sends its place to all
 * ranks with every question, so it does not send it again here. */
static void tell_place(struct gyre_health *health, int rank, bool is_behind)
{
    struct gyre_member *member = health->member;
    struct gyre_health_message reply = {.kind = GYRE_HEALTH_ANSWER};
    const uint64_t now_ns = gyre_now_ns();
    if (!is_behind && health->asked_ns != 0 &&
        now_ns - health->asked_ns < gyre_health_ask_ns(health, now_ns))
        return;
    gyre_health_place_of(health, &reply.place);
    reply.place.is_behind = is_behind;
    member->bootstrap->ops->post(member->bootstrap, rank, &reply,
                                 offsetof(struct gyre_health_message, records));
}

void gyre_health_answer(struct gyre_health *health, int rank,
                        const struct gyre_health_message *message)
{
    struct gyre_member *member = health->member;
    bool is_behind = false;
    for (uint32_t i = 0; i < message->n_records && i < GYRE_HEALTH_MAX_ASKED; i++) {
        const struct gyre_record *theirs = &message->records[i];
        struct gyre_record mine;
        if (!gyre_health_is_record(theirs))
            continue;
        if (!gyre_call_log_find(&health->caller->call_log, member->rank, theirs, rank, &mine)) {
            remember_question(health, rank, theirs);
            /* If the caller posted the record in between, gyre_health_posted() may have missed the
             * question. */
            if (gyre_call_log_find(&health->caller->call_log, member->rank, theirs, rank, &mine))
                gyre_health_posted(health, &mine);
            is_behind = true;
        } else if (!gyre_record_fits(&mine, theirs)) {
            report_mismatch(health, &mine, theirs, rank);
            return;
        }
    }
    tell_place(health, rank, is_behind);
}
