/* SPDX-License-Identifier: Apache-2.0
 *
 * The health thread, one for each communicator. The bootstrap links tell the thread which peers
 * have died. When an operation of this rank makes no progress (health_stall.c), the thread sends
 * the records of the unfinished calls to all peers, and the peers compare the records with their
 * own call logs. A rank that finds calls that do not fit tells all other ranks, so every rank
 * reports the same error. A slow peer is no error.
 */
#include "core/health/watch.h"

#include "core/base/log.h"
#include "core/base/sync.h"
#include "core/base/thread.h"
#include "core/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS   100
#define MAX_ASKED GYRE_HEALTH_MAX_ASKED

/* ---- comparing ---------------------------------------------------------------------------- */

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
    /* In the common case no peer has asked, and one load is enough. answer() finds this record in
     * the call log if a question arrives right after the load. */
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

static void answer(struct gyre_health *health, int rank, const struct gyre_health_message *message)
{
    struct gyre_member *member = health->member;
    bool is_behind = false;
    for (uint32_t i = 0; i < message->n_records && i < MAX_ASKED; i++) {
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

/* ---- events ------------------------------------------------------------------------------- */

static void take_message(struct gyre_health *health, const struct gyre_event *event)
{
    struct gyre_health_message message;
    struct gyre_health_peer *peer = &health->peers[event->rank];
    const size_t n_head = offsetof(struct gyre_health_message, records);
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
            answer(health, event->rank, &message);
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
    default: /* an echo, or a message of a kind that this library does not send */
        break;
    }
}

/* Tell the children that this communicator has failed: ranks of a child that have not joined its
 * rendezvous yet may never join it.
 * @lost_rank: the rank that died; -1 = none did. @how: the cause of its death. */
static void tell_children(struct gyre_health *health, int lost_rank, const char *how,
                          const char *text)
{
    pthread_mutex_lock(&health->lock);
    for (struct gyre_origin *at = health->children; at != NULL; at = at->next)
        gyre_origin_tell(at, lost_rank, how, text);
    pthread_mutex_unlock(&health->lock);
}

static void mark_lost(struct gyre_health *health, int rank)
{
    pthread_mutex_lock(&health->lock);
    health->was_lost[rank] = true;
    pthread_mutex_unlock(&health->lock);
}

static void mark_left(struct gyre_health *health, int rank)
{
    pthread_mutex_lock(&health->lock);
    health->has_left[rank] = true;
    health->peers[rank].left_ns = gyre_now_ns();
    pthread_cond_broadcast(&health->changed);
    pthread_mutex_unlock(&health->lock);
}

static void take_loss(struct gyre_health *health, const struct gyre_event *event)
{
    struct gyre_member *member = health->member;
    char call[160];
    char name[GYRE_RANK_NAME_BYTES];
    char before[GYRE_CAUSE_MAX_BYTES];
    char text[GYRE_CAUSE_MAX_BYTES];
    gyre_health_call_text(health, call, sizeof(call));
    gyre_health_rank_name(health, event->rank, name);
    const int n_text =
        snprintf(text, sizeof(text), "%s died: %s; rank %d%s was in %s", name, event->text,
                 member->rank, health->origin != NULL ? " of it" : "", call);
    /* The rank may only have given up because the parent had failed. */
    if (gyre_origin_word(health->origin, before) && strstr(before, name) == NULL)
        snprintf(text + n_text, sizeof(text) - (size_t)n_text, "; before that %.300s", before);
    if (gyre_load_acquire_u32(&member->has_left) == 0)
        gyre_health_fail(health, GYRE_ERROR_REMOTE, text,
                         member->rank == (event->rank == 0 ? 1 : 0));
    mark_lost(health, event->rank);
    mark_left(health, event->rank);
    tell_children(health, event->rank, event->text, text);
}

static void take_event(struct gyre_health *health, const struct gyre_event *event)
{
    if (event->kind == GYRE_EVENT_NONE || event->rank < 0 || event->rank >= health->member->n_ranks)
        return;
    if (event->kind == GYRE_EVENT_MESSAGE)
        take_message(health, event);
    else if (event->kind == GYRE_EVENT_LEFT)
        mark_left(health, event->rank);
    else
        take_loss(health, event);
}

/* ---- the thread --------------------------------------------------------------------------- */

static bool goes_on(struct gyre_health *health)
{
    pthread_mutex_lock(&health->lock);
    const bool stops = health->stops;
    pthread_mutex_unlock(&health->lock);
    return !stops;
}

/* The rendezvous is gone, or this rank has no memory to read the messages of the rendezvous. This
 * rank can no longer watch any rank, and no goodbye arrives. */
static void take_end_of_link(struct gyre_health *health, gyre_status status)
{
    struct gyre_member *member = health->member;
    if (status == GYRE_ERROR_OUT_OF_MEMORY) {
        gyre_fault_raise(&member->fault, status, gyre_cause());
        gyre_health_pass_on(health);
    }
    if (gyre_load_acquire_u32(&member->has_left) == 0)
        gyre_health_fail(health, GYRE_ERROR_REMOTE, gyre_cause(), true);
    else
        for (int rank = 0; rank < member->n_ranks; rank++)
            mark_left(health, rank);
}

static bool is_leaving(struct gyre_health *health)
{
    pthread_mutex_lock(&health->lock);
    const bool is_leaving = health->is_leaving;
    pthread_mutex_unlock(&health->lock);
    return is_leaving;
}

static void *watch(void *argument)
{
    struct gyre_health *health = argument;
    struct gyre_member *member = health->member;
    struct gyre_event event;
    gyre_log_set_rank(member->rank);
    while (goes_on(health)) {
        const gyre_status status = member->bootstrap->ops->poll(member->bootstrap, TICK_MS, &event);
        if (status != GYRE_SUCCESS) {
            take_end_of_link(health, status);
            break;
        }
        take_event(health, &event);
        gyre_health_check_dump(health);
        if (is_leaving(health)) {
            gyre_health_check_leaving(health);
            continue;
        }
        if (!gyre_fault_is_raised(&member->fault)) {
            gyre_health_check_progress(health);
            continue;
        }
        gyre_health_pass_on(health);
        if (!health->has_told_children)
            tell_children(health, -1, "", member->fault.cause);
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
    for (int rank = 0; health->peers != NULL && rank < health->member->n_ranks; rank++)
        free(health->peers[rank].waits);
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

gyre_status gyre_health_open(const struct gyre_health_config *config,
                             struct gyre_health **health_out)
{
    struct gyre_member *member = config->member;
    const size_t n = (size_t)member->n_ranks;
    struct gyre_health *health = calloc(1, sizeof(*health));
    if (health == NULL)
        return gyre_fail_errno(ENOMEM, "health of rank %d", member->rank);
    health->member = member;
    health->links = config->links;
    health->caller = config->caller;
    health->origin = config->origin;
    health->max_questions = (uint32_t)n * MAX_ASKED;
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
                   : gyre_fail_errno(ENOMEM, "health of rank %d", member->rank);
    if (status != GYRE_SUCCESS) {
        free_health(health);
        return status;
    }
    *health_out = health;
    return GYRE_SUCCESS;
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

static bool all_left(const struct gyre_health *health)
{
    const struct gyre_member *member = health->member;
    for (int rank = 0; rank < member->n_ranks; rank++)
        if (rank != member->rank && !health->has_left[rank])
            return false;
    return true;
}

bool gyre_health_has_left(struct gyre_health *health, int rank)
{
    pthread_mutex_lock(&health->lock);
    const bool has_left = health->has_left[rank];
    pthread_mutex_unlock(&health->lock);
    return has_left;
}

void gyre_health_wait_left(struct gyre_health *health, uint64_t deadline_ns)
{
    pthread_mutex_lock(&health->lock);
    health->is_leaving = true;
    while (!all_left(health) && !health->is_alone && gyre_now_ns() < deadline_ns)
        gyre_cond_wait_until(&health->changed, &health->lock, deadline_ns);
    pthread_mutex_unlock(&health->lock);
}

void gyre_health_close(struct gyre_health *health)
{
    if (health == NULL)
        return;
    pthread_mutex_lock(&health->lock);
    health->stops = true;
    pthread_cond_broadcast(&health->changed);
    pthread_mutex_unlock(&health->lock);
    health->member->bootstrap->ops->wake(health->member->bootstrap);
    pthread_join(health->thread, NULL);
    free_health(health);
}
