/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread a communicator that watches. It hears of dead peers from the bootstrap links; it
 * notices that this rank's operation makes no progress, and then sends the records of its
 * unfinished calls to all peers, who compare them with their own boards. Whoever finds calls that
 * do not fit tells everybody, so the error is the same on every rank. A slow peer is no error.
 */
#include "core/comm/comm.h"

#include "core/base/log.h"
#include "core/base/sync.h"
#include "core/base/thread.h"
#include "core/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS        100
#define STALL_NS       300000000ULL /* without progress this long: compare boards */
#define ASK_AGAIN_NS   1000000000ULL
#define MAX_ASKED      16 /* calls sent at once */
#define MAX_ASKED_DONE 8  /* of these, finished ones */
#define WORK_RING      4096

enum message_kind {
    MESSAGE_ASK,    /* my unfinished calls, and those before them; do yours fit? */
    MESSAGE_BEHIND, /* answer: I have not come to that call; my latest collective */
    MESSAGE_END     /* this communicator ends here, and why */
};

struct message {
    uint32_t kind;
    uint32_t status; /* END: the failure */
    uint32_t n_records;
    uint32_t pad;
    union {
        struct gyre_record records[MAX_ASKED];
        uint64_t n_collectives;
        char text[GYRE_CAUSE_MAX_BYTES];
    };
};

_Static_assert(sizeof(struct message) <= GYRE_MESSAGE_MAX_BYTES, "fits a bootstrap message");

/* What a peer asked about and this rank has not called yet. */
struct question {
    int rank;
    struct gyre_record record;
};

struct gyre_health {
    struct gyre_comm *comm;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stops;                   /* under lock */
    bool *has_left;               /* by rank: said goodbye or was lost */
    bool *was_lost;               /* by rank */
    struct gyre_origin *children; /* under lock */
    bool has_told_children;       /* the watcher's own */
    uint64_t *collectives_of;     /* by rank: latest heard of; 0 = nothing */
    struct question *questions;
    int n_questions;
    int max_questions;
    uint64_t record_of_work[WORK_RING]; /* written by the caller's thread, release/acquire */
    /* the watcher's own: */
    uint64_t seen_progress;
    uint64_t seen_completed;
    uint64_t still_since_ns;
    uint64_t started_ns; /* when the first unfinished work became it */
    uint64_t asked_ns;
    bool has_warned;
    uint32_t has_told; /* 1: peers know of the failure; written by whoever raises it */
};

static const char *host_of(const struct gyre_comm *comm, int rank)
{
    return comm->links.infos != NULL ? comm->links.infos[rank].host_name : "?";
}

/* ---- telling and comparing ---------------------------------------------------------------- */

static void tell(struct gyre_comm *comm, gyre_status status, const char *text)
{
    struct message message = {.kind = MESSAGE_END, .status = (uint32_t)status};
    snprintf(message.text, sizeof(message.text), "%s", text);
    const size_t n_bytes = offsetof(struct message, text) + strlen(message.text) + 1;
    comm->bootstrap->ops->post(comm->bootstrap, -1, &message, n_bytes);
}

void gyre_health_tell(struct gyre_health *health, const char *text)
{
    tell(health->comm, GYRE_ERROR_REMOTE, text);
}

/* One line a job, not one a rank: whoever finds a failure that others hear of prints it. */
static void fail(struct gyre_health *health, gyre_status status, const char *text, bool prints)
{
    struct gyre_comm *comm = health->comm;
    if (!gyre_fault_is_raised(&comm->fault))
        gyre_store_release_u32(&health->has_told, 1);
    if (gyre_fault_raise(&comm->fault, status, text))
        gyre_log(prints ? GYRE_LOG_WARN : GYRE_LOG_INFO, GYRE_LOG_COLL, "%s", text);
}

/* What a proxy or the executor found: its peers may have nothing that fails. */
static void pass_on(struct gyre_health *health)
{
    struct gyre_comm *comm = health->comm;
    char text[GYRE_CAUSE_MAX_BYTES];
    char name[GYRE_RANK_NAME_BYTES];
    if (gyre_load_acquire_u32(&health->has_told) != 0 ||
        gyre_load_acquire_u32(&comm->has_left) != 0)
        return;
    gyre_store_release_u32(&health->has_told, 1);
    snprintf(text, sizeof(text), "%s failed: %.800s", gyre_rank_name(comm, comm->rank, name),
             comm->fault.cause);
    comm->bootstrap->ops->fail(comm->bootstrap, text); /* first: tell_others() in comm.c says why */
    tell(comm, GYRE_ERROR_REMOTE, text);
}

/* The same words whichever of the two ranks finds it: the lower rank first. */
static void report_mismatch(struct gyre_health *health, const struct gyre_record *mine,
                            const struct gyre_record *theirs, int their_rank)
{
    struct gyre_comm *comm = health->comm;
    const bool mine_first = comm->rank < their_rank;
    const struct gyre_record *first = mine_first ? mine : theirs;
    const struct gyre_record *second = mine_first ? theirs : mine;
    const int first_rank = mine_first ? comm->rank : their_rank;
    const int second_rank = mine_first ? their_rank : comm->rank;
    char first_text[160];
    char second_text[160];
    char text[GYRE_CAUSE_MAX_BYTES];
    snprintf(text, sizeof(text),
             "calls do not fit: rank %d (%s) called %s, rank %d (%s) called %s; outputs are "
             "undefined - make all ranks call the same, or set GYRE_CHECK=calls to be told before "
             "data moves",
             first_rank, host_of(comm, first_rank),
             gyre_record_text(first, first_text, sizeof(first_text)), second_rank,
             host_of(comm, second_rank),
             gyre_record_text(second, second_text, sizeof(second_text)));
    tell(comm, GYRE_ERROR_INVALID_USAGE, text);
    fail(health, GYRE_ERROR_INVALID_USAGE, text, true);
}

static void remember_question(struct gyre_health *health, int rank,
                              const struct gyre_record *record)
{
    pthread_mutex_lock(&health->lock);
    bool is_known = false;
    for (int i = 0; i < health->n_questions; i++)
        is_known = is_known || (health->questions[i].rank == rank &&
                                memcmp(&health->questions[i].record, record, sizeof(*record)) == 0);
    if (!is_known && health->n_questions < health->max_questions) {
        health->questions[health->n_questions].rank = rank;
        health->questions[health->n_questions].record = *record;
        __atomic_store_n(&health->n_questions, health->n_questions + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&health->lock);
}

void gyre_health_posted(struct gyre_health *health, const struct gyre_record *record)
{
    /* One load in the common case: nobody asked. A question that arrives right after it finds the
     * record on the board. */
    if (__atomic_load_n(&health->n_questions, __ATOMIC_ACQUIRE) == 0)
        return;
    struct gyre_comm *comm = health->comm;
    struct question misfit = {.rank = -1};
    pthread_mutex_lock(&health->lock);
    for (int i = 0; i < health->n_questions;) {
        struct question *question = &health->questions[i];
        if (!gyre_record_same_place(record, comm->rank, &question->record, question->rank)) {
            i++;
            continue;
        }
        if (!gyre_record_fits(record, &question->record))
            misfit = *question;
        *question = health->questions[health->n_questions - 1];
        __atomic_store_n(&health->n_questions, health->n_questions - 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&health->lock);
    if (misfit.rank >= 0)
        report_mismatch(health, record, &misfit.record, misfit.rank);
}

static void answer(struct gyre_health *health, int rank, const struct message *message)
{
    struct gyre_comm *comm = health->comm;
    bool is_behind = false;
    for (uint32_t i = 0; i < message->n_records && i < MAX_ASKED; i++) {
        const struct gyre_record *theirs = &message->records[i];
        struct gyre_record mine;
        if (theirs->coll >= GYRE_N_COLLECTIVES || theirs->dtype >= GYRE_N_DTYPES)
            continue;
        if (!gyre_board_find(&comm->board, comm->rank, theirs, rank, &mine)) {
            remember_question(health, rank, theirs);
            /* Posted in between? Then gyre_health_posted may have missed the question. */
            if (gyre_board_find(&comm->board, comm->rank, theirs, rank, &mine))
                gyre_health_posted(health, &mine);
            is_behind = true;
        } else if (!gyre_record_fits(&mine, theirs)) {
            report_mismatch(health, &mine, theirs, rank);
            return;
        }
    }
    if (!is_behind)
        return;
    struct message reply = {.kind = MESSAGE_BEHIND};
    pthread_mutex_lock(&comm->board.lock);
    reply.n_collectives = comm->board.n_collectives;
    pthread_mutex_unlock(&comm->board.lock);
    comm->bootstrap->ops->post(comm->bootstrap, rank, &reply,
                               offsetof(struct message, n_collectives) + sizeof(uint64_t));
}

/* ---- events ------------------------------------------------------------------------------- */

/* What this rank was doing, for messages about others. */
static void current_call(struct gyre_health *health, char *text_out, size_t text_bytes)
{
    struct gyre_comm *comm = health->comm;
    snprintf(text_out, text_bytes, "no operation");
    if (comm->executor == NULL)
        return;
    const struct gyre_pulse pulse = comm->executor->ops->pulse(comm->executor);
    const uint64_t completed = pulse.completed;
    const uint64_t launched = gyre_load_acquire_u64(&comm->executor->n_launched);
    struct gyre_record record;
    if (completed >= launched) {
        if (completed < pulse.progress && comm->device_info.kind == GYRE_DEVICE_CUDA)
            snprintf(text_out, text_bytes, "a call of a replayed graph");
        return;
    }
    const uint64_t index = gyre_load_acquire_u64(&health->record_of_work[completed % WORK_RING]);
    if (launched - completed <= WORK_RING && gyre_board_get(&comm->board, index, &record))
        gyre_record_text(&record, text_out, text_bytes);
    else /* so much was enqueued since that its record is gone */
        snprintf(text_out, text_bytes, "operation %" PRIu64 " of %" PRIu64 " that were enqueued",
                 completed + 1, launched);
}

static void take_message(struct gyre_health *health, const struct gyre_event *event)
{
    struct message message;
    if (event->n_bytes < offsetof(struct message, records) || event->n_bytes > sizeof(message))
        return;
    memset(&message, 0, sizeof(message));
    memcpy(&message, event->message, event->n_bytes);
    switch (message.kind) {
    case MESSAGE_ASK:
        if (event->n_bytes >= offsetof(struct message, records) +
                                  (size_t)message.n_records * sizeof(struct gyre_record))
            answer(health, event->rank, &message);
        break;
    case MESSAGE_BEHIND:
        health->collectives_of[event->rank] = message.n_collectives + 1;
        break;
    case MESSAGE_END:
        message.text[sizeof(message.text) - 1] = '\0';
        fail(health,
             message.status == GYRE_ERROR_INVALID_USAGE ? GYRE_ERROR_INVALID_USAGE
                                                        : GYRE_ERROR_REMOTE,
             message.text, false);
        break;
    default:
        break;
    }
}

/* The communicator has failed: its children whose ranks have not met yet may never meet.
 * @lost_rank, @how: who died of what; -1 = nobody. */
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
    pthread_cond_broadcast(&health->changed);
    pthread_mutex_unlock(&health->lock);
}

static void take_loss(struct gyre_health *health, const struct gyre_event *event)
{
    gyre_comm *comm = health->comm;
    char call[160];
    char name[GYRE_RANK_NAME_BYTES];
    char before[GYRE_CAUSE_MAX_BYTES];
    char text[GYRE_CAUSE_MAX_BYTES];
    current_call(health, call, sizeof(call));
    gyre_rank_name(comm, event->rank, name);
    const int n_text =
        snprintf(text, sizeof(text), "%s died: %s; rank %d%s was in %s", name, event->text,
                 comm->rank, comm->origin != NULL ? " of it" : "", call);
    /* The rank may only have given up for what ended the parent. */
    if (gyre_origin_word(comm->origin, before) && strstr(before, name) == NULL)
        snprintf(text + n_text, sizeof(text) - (size_t)n_text, "; before that %.300s", before);
    if (gyre_load_acquire_u32(&comm->has_left) == 0)
        fail(health, GYRE_ERROR_REMOTE, text, comm->rank == (event->rank == 0 ? 1 : 0));
    mark_lost(health, event->rank);
    mark_left(health, event->rank);
    tell_children(health, event->rank, event->text, text);
}

static void take_event(struct gyre_health *health, const struct gyre_event *event)
{
    if (event->kind == GYRE_EVENT_NONE || event->rank < 0 || event->rank >= health->comm->n_ranks)
        return;
    if (event->kind == GYRE_EVENT_MESSAGE)
        take_message(health, event);
    else if (event->kind == GYRE_EVENT_LEFT)
        mark_left(health, event->rank);
    else
        take_loss(health, event);
}

/* ---- stalls ------------------------------------------------------------------------------- */

/* A call may end here although it does not fit, as two roots' broadcasts do, and only the next one
 * waits: so finished ones are asked about too. */
static void ask(struct gyre_health *health, uint64_t completed, uint64_t launched)
{
    struct gyre_comm *comm = health->comm;
    struct message message = {.kind = MESSAGE_ASK};
    uint64_t last = UINT64_MAX;
    const uint64_t n_done = gyre_min_u64(completed, launched); /* without replays of graphs */
    for (uint64_t work = n_done - gyre_min_u64(n_done, MAX_ASKED_DONE);
         work < launched && message.n_records < MAX_ASKED; work++) {
        const uint64_t index = gyre_load_acquire_u64(&health->record_of_work[work % WORK_RING]);
        if (index != last &&
            gyre_board_get(&comm->board, index, &message.records[message.n_records]))
            message.n_records++;
        last = index;
    }
    comm->bootstrap->ops->post(comm->bootstrap, -1, &message,
                               offsetof(struct message, records) +
                                   message.n_records * sizeof(struct gyre_record));
}

static void warn_who_is_behind(struct gyre_health *health, uint64_t still_ns)
{
    struct gyre_comm *comm = health->comm;
    char call[160];
    char who[256] = "";
    current_call(health, call, sizeof(call));
    for (int rank = 0; rank < comm->n_ranks; rank++) {
        const size_t used = strlen(who);
        if (health->collectives_of[rank] > 0 && used < sizeof(who) - 64)
            snprintf(who + used, sizeof(who) - used, "%srank %d (%s) has called %" PRIu64,
                     used > 0 ? ", " : "", rank, host_of(comm, rank),
                     health->collectives_of[rank] - 1);
    }
    GYRE_WARN("%s on rank %d makes no progress for %" PRIu64 " s; collectives called elsewhere: %s",
              call, comm->rank, still_ns / 1000000000,
              who[0] != '\0' ? who : "as many; GYRE_CHECK=calls compares each of them");
}

/* A peer that left, or an operation that takes longer than the user allows. */
static void check_limits(struct gyre_health *health, uint64_t now_ns)
{
    struct gyre_comm *comm = health->comm;
    char call[160];
    char text[GYRE_CAUSE_MAX_BYTES];
    const uint64_t took_ms = (now_ns - health->started_ns) / 1000000;
    if (comm->config.timeout_ms > 0 && took_ms > (uint64_t)comm->config.timeout_ms) {
        current_call(health, call, sizeof(call));
        snprintf(text, sizeof(text), "%s on rank %d (%s) took longer than %d ms (GYRE_TIMEOUT)",
                 call, comm->rank, host_of(comm, comm->rank), comm->config.timeout_ms);
        tell(comm, GYRE_ERROR_TIMEOUT, text);
        fail(health, GYRE_ERROR_TIMEOUT, text, true);
        return;
    }
    if (now_ns - health->still_since_ns < 3 * ASK_AGAIN_NS)
        return;
    for (int rank = 0; rank < comm->n_ranks; rank++) {
        if (rank == comm->rank || !health->has_left[rank])
            continue;
        current_call(health, call, sizeof(call));
        snprintf(text, sizeof(text),
                 "rank %d (%s) destroyed its communicator while rank %d waits in %s", rank,
                 host_of(comm, rank), comm->rank, call);
        fail(health, GYRE_ERROR_REMOTE, text, true);
        return;
    }
}

/* Has this rank works that are not finished? */
static bool is_busy(const struct gyre_comm *comm, uint64_t completed, uint64_t launched,
                    uint64_t progress)
{
    /* Replays of a graph complete works that nobody launched: there the started ones count. */
    if (comm->device_info.kind == GYRE_DEVICE_CUDA)
        return completed < launched || completed < progress;
    return completed < launched;
}

static void check_progress(struct gyre_health *health)
{
    struct gyre_comm *comm = health->comm;
    const struct gyre_pulse pulse = comm->executor->ops->pulse(comm->executor);
    const uint64_t completed = pulse.completed, progress = pulse.progress;
    const uint64_t launched = gyre_load_acquire_u64(&comm->executor->n_launched);
    const uint64_t now_ns = gyre_now_ns();
    const bool busy = is_busy(comm, completed, launched, progress);
    if (!busy || completed != health->seen_completed)
        health->started_ns = now_ns;
    if (!busy || completed != health->seen_completed || progress != health->seen_progress) {
        health->seen_completed = completed;
        health->seen_progress = progress;
        health->still_since_ns = now_ns;
        health->asked_ns = 0;
        if (health->has_warned)
            memset(health->collectives_of, 0, (size_t)comm->n_ranks * sizeof(uint64_t));
        health->has_warned = false;
        if (!busy)
            return;
    }
    const bool misfits = pulse.mismatch != 0;
    const uint64_t still_ns = now_ns - health->still_since_ns;
    if ((misfits || still_ns > STALL_NS) && now_ns - health->asked_ns > ASK_AGAIN_NS) {
        ask(health, completed, launched);
        health->asked_ns = now_ns;
    }
    const uint64_t warn_ns =
        (uint64_t)gyre_param_number(&comm->params, GYRE_PARAM_STALL_WARN) * 1000000000ULL;
    if (still_ns > warn_ns && !health->has_warned) {
        warn_who_is_behind(health, still_ns);
        health->has_warned = true;
    }
    check_limits(health, now_ns);
}

/* ---- the thread --------------------------------------------------------------------------- */

static bool goes_on(struct gyre_health *health)
{
    pthread_mutex_lock(&health->lock);
    const bool stops = health->stops;
    pthread_mutex_unlock(&health->lock);
    return !stops;
}

static void *watch(void *argument)
{
    struct gyre_health *health = argument;
    struct gyre_comm *comm = health->comm;
    struct gyre_event event;
    gyre_log_set_rank(comm->rank);
    while (goes_on(health)) {
        const gyre_status status = comm->bootstrap->ops->poll(comm->bootstrap, TICK_MS, &event);
        if (status != GYRE_SUCCESS) {
            /* The hub is gone: nobody can be watched any more, and no goodbye comes. */
            if (gyre_load_acquire_u32(&comm->has_left) == 0)
                fail(health, GYRE_ERROR_REMOTE, gyre_cause(), true);
            else
                for (int rank = 0; rank < comm->n_ranks; rank++)
                    mark_left(health, rank);
            break;
        }
        take_event(health, &event);
        if (!gyre_fault_is_raised(&comm->fault)) {
            check_progress(health);
            continue;
        }
        pass_on(health);
        if (!health->has_told_children)
            tell_children(health, -1, "", comm->fault.cause);
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
    pthread_cond_destroy(&health->changed);
    pthread_mutex_destroy(&health->lock);
    free(health->has_left);
    free(health->was_lost);
    free(health->collectives_of);
    free(health->questions);
    free(health);
}

gyre_status gyre_health_open(gyre_comm *comm, struct gyre_health **health_out)
{
    const size_t n = (size_t)comm->n_ranks;
    struct gyre_health *health = calloc(1, sizeof(*health));
    if (health == NULL)
        return gyre_fail_errno(ENOMEM, "health of rank %d", comm->rank);
    health->comm = comm;
    health->max_questions = (int)n * MAX_ASKED;
    health->has_left = calloc(n, sizeof(bool));
    health->was_lost = calloc(n, sizeof(bool));
    health->collectives_of = calloc(n, sizeof(uint64_t));
    health->questions = calloc((size_t)health->max_questions, sizeof(struct question));
    pthread_mutex_init(&health->lock, NULL);
    gyre_cond_init(&health->changed);
    health->still_since_ns = gyre_now_ns();
    health->started_ns = health->still_since_ns;
    const bool has_memory = health->has_left != NULL && health->was_lost != NULL &&
                            health->collectives_of != NULL && health->questions != NULL;
    const gyre_status status =
        has_memory ? gyre_thread_start(&health->thread, 0, watch, health, "the health thread")
                   : gyre_fail_errno(ENOMEM, "health of rank %d", comm->rank);
    if (status != GYRE_SUCCESS) {
        free_health(health);
        return status;
    }
    *health_out = health;
    return GYRE_SUCCESS;
}

/* Under the lock: forget the children that are gone. */
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
    gyre_comm *comm = health->comm;
    pthread_mutex_lock(&health->lock);
    drop_children(health);
    origin->next = health->children;
    health->children = origin;
    /* What has happened before nobody tells again. */
    const bool has_failed = gyre_fault_is_raised(&comm->fault);
    const char *cause = has_failed ? comm->fault.cause : "";
    for (int rank = 0; rank < comm->n_ranks; rank++)
        if (health->was_lost[rank])
            gyre_origin_tell(origin, rank, "its process ended", cause);
    if (has_failed)
        gyre_origin_tell(origin, -1, "", cause);
    pthread_mutex_unlock(&health->lock);
}

void gyre_health_launched(struct gyre_health *health, uint64_t work, uint64_t record)
{
    gyre_store_release_u64(&health->record_of_work[work % WORK_RING], record);
}

static bool all_left(const struct gyre_health *health)
{
    const struct gyre_comm *comm = health->comm;
    for (int rank = 0; rank < comm->n_ranks; rank++)
        if (rank != comm->rank && !health->has_left[rank])
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
    while (!all_left(health) && gyre_now_ns() < deadline_ns)
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
    health->comm->bootstrap->ops->wake(health->comm->bootstrap);
    pthread_join(health->thread, NULL);
    free_health(health);
}
