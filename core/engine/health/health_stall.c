/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that runs answers at once, so a silent rank's process does not run. A slow rank is no
 * error unless the user set a time limit.
 */
#include "core/engine/health/watch.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STALL_NS       300000000ULL   /* then ask */
#define SELF_GAP_NS    GYRE_SECOND_NS /* 100 ms unless this process is stopped */
#define SPEAKER_NS     500000000ULL   /* for the explaining rank's verdict */
#define LEFT_NS        1500000000ULL
#define GONE_NS        3500000000ULL /* leaving: a silent rank is given up */
#define MAX_ASKED_DONE 8
#define MAX_NAMED      4 /* ranks of a kind, with host and call */
#define MAX_NUMBERS    16
#define WHO_BYTES      GYRE_HEALTH_WHO_BYTES
#define HEAD_BYTES     64  /* of an error beside call, rank and reasons */
#define MIN_WHY_BYTES  128 /* even without room */

static void name_silent(const struct gyre_health *health, const char *name, int rank,
                        uint64_t now_ns, char *who)
{
    gyre_text_append(who, WHO_BYTES, "%s does not answer for %" PRIu64 " s", name,
                     (uint64_t)((gyre_health_silent_ns(health, rank, now_ns) + GYRE_SECOND_NS / 2) /
                                GYRE_SECOND_NS));
}

static void name_silent_rank(const struct gyre_health *health, int rank, uint64_t now_ns, char *who)
{
    const struct gyre_peer_info *mine = &health->comm->links.infos[health->comm->self.rank];
    const struct gyre_peer_info *peer = &health->comm->links.infos[rank];
    char name[GYRE_RANK_NAME_BYTES];
    char path[64];
    char line[256] = "";
    FILE *file = NULL;
    name_silent(health, gyre_health_rank_name(health, rank, name), rank, now_ns, who);
    /* By the state letter of proc(5), if the process is on this host. */
    snprintf(path, sizeof(path), "/proc/%u/stat", peer->pid);
    if (mine->host_hash == peer->host_hash && mine->pid_namespace == peer->pid_namespace)
        file = fopen(path, "re");
    if (file != NULL) {
        if (fgets(line, sizeof(line), file) == NULL)
            line[0] = '\0';
        fclose(file);
    }
    const char *end = strrchr(line, ')'); /* the process name may have any characters */
    const char state = end != NULL && end[1] == ' ' ? end[2] : '?';
    gyre_text_append(who, WHO_BYTES, ": its process %s",
                     state == 'T'   ? "is stopped (by a signal; SIGCONT lets it go on)"
                     : state == 't' ? "is stopped by a debugger"
                     : state == 'D'
                         ? "waits in the kernel (state D: a disk or a network file system)"
                         : "is stopped, swapped out or its host is overloaded");
}

static void name_rank(const struct gyre_health *health, int rank,
                      enum gyre_health_standing standing, uint64_t now_ns, char *who)
{
    const struct gyre_health_place *place = &health->peers[rank].place;
    char name[GYRE_RANK_NAME_BYTES];
    char call[160] = "an operation that is not on record";
    if (standing == GYRE_STANDS_SILENT) {
        name_silent_rank(health, rank, now_ns, who);
        return;
    }
    gyre_health_rank_name(health, rank, name);
    if (place->call.sequence != 0)
        gyre_record_text(&place->call, call, sizeof(call));
    if (standing == GYRE_STANDS_LEFT)
        gyre_text_append(who, WHO_BYTES, "%s has left", name);
    else if (standing == GYRE_STANDS_ELSEWHERE)
        gyre_text_append(who, WHO_BYTES, "%s waits in %s", name, call);
    else if (place->is_waiting)
        gyre_text_append(who, WHO_BYTES, "%s is behind: it waits in %s", name, call);
    else if (place->call.sequence != 0)
        gyre_text_append(who, WHO_BYTES, "%s is behind: it has called nothing after %s", name,
                         call);
    else
        gyre_text_append(who, WHO_BYTES, "%s is behind: it has called nothing yet", name);
}

/* Append "done with their part: ranks 0, 2, 3 and 17 more" for at least `n_least` ranks. */
static void list_numbers(const struct gyre_health *health, enum gyre_health_standing standing,
                         int n_least, const char *words, char *who)
{
    int n_all = 0;
    int n = 0;
    for (int rank = 0; rank < health->comm->self.n_ranks; rank++)
        n_all += health->standings[rank] == standing;
    if (n_all < n_least)
        return;
    gyre_text_append(who, WHO_BYTES, "%s%s: ranks ", who[0] != '\0' ? "; " : "", words);
    for (int rank = 0; rank < health->comm->self.n_ranks && n < MAX_NUMBERS; rank++)
        if (health->standings[rank] == standing)
            gyre_text_append(who, WHO_BYTES, "%s%d", n++ == 0 ? "" : ", ", rank);
    if (n_all > n)
        gyre_text_append(who, WHO_BYTES, " and %d more", n_all - n);
}

/* @is_explained: leaves out general advice. @who_out: WHO_BYTES. */
static void name_culprits(struct gyre_health *health, const struct gyre_record *mine,
                          uint64_t now_ns, bool is_explained, char *who_out)
{
    const struct gyre_rank *self = &health->comm->self;
    const struct gyre_bootstrap *bootstrap = self->bootstrap;
    who_out[0] = '\0';
    if (gyre_health_is_silent(health, self->rank, now_ns)) {
        if (bootstrap->server_rank >= 0)
            name_silent_rank(health, bootstrap->server_rank, now_ns, who_out);
        else
            name_silent(health, bootstrap->server_text, self->rank, now_ns, who_out);
        gyre_text_append(
            who_out, WHO_BYTES,
            "; that process carries the rendezvous, without which no other rank can be asked");
        return;
    }
    for (int rank = 0; rank < self->n_ranks; rank++)
        health->standings[rank] = (uint8_t)gyre_health_stands(health, rank, now_ns, mine);
    for (int standing = GYRE_STANDS_SILENT; standing <= GYRE_STANDS_ELSEWHERE; standing++) {
        int n = 0;
        for (int rank = 0; rank < self->n_ranks; rank++) {
            if (health->standings[rank] != standing || n++ >= MAX_NAMED)
                continue;
            gyre_text_append(who_out, WHO_BYTES, "%s", who_out[0] != '\0' ? "; " : "");
            name_rank(health, rank, (enum gyre_health_standing)standing, now_ns, who_out);
        }
        if (n > MAX_NAMED)
            gyre_text_append(who_out, WHO_BYTES, "; likewise %d more ranks", n - MAX_NAMED);
    }
    if (who_out[0] == '\0' && !is_explained)
        gyre_text_append(
            who_out, WHO_BYTES,
            "all ranks answer, and none is behind%s; look for slow links, and at what is ahead "
            "of the call on its stream on each rank: work of the program, or another "
            "communicator's call that some ranks made before this one and some after it",
            gyre_param_has(&self->params, GYRE_PARAM_CHECK, GYRE_CHECK_CALLS)
                ? ", and GYRE_CHECK=calls found them alike"
                : "");
    list_numbers(health, GYRE_STANDS_IN_THE_CALL, 2, "waiting in the same call", who_out);
    /* Replays of graphs are not on record: a rank before its replay looks like one behind it. */
    list_numbers(health, GYRE_STANDS_DONE, 1,
                 mine->sequence == 0 ? "done with their part, or not begun yet"
                                     : "done with their part",
                 who_out);
}

struct reasons {
    char call[160];
    char name[GYRE_RANK_NAME_BYTES];
    char who[WHO_BYTES];
    char why[GYRE_HEALTH_WHY_BYTES + 2]; /* with a "; " before it, unless `who` is "" */
};

/* Only the explainer receives all positions; other ranks describe their own first wait. */
static void find_reasons(struct gyre_health *health, uint64_t now_ns, struct reasons *reasons)
{
    struct gyre_record waiting;
    char why[GYRE_HEALTH_WHY_BYTES] = "";
    bool is_explained = false;
    const bool explains = gyre_health_explainer(health, now_ns) == health->comm->self.rank;
    gyre_health_waiting_call(health, &waiting);
    gyre_health_call_text(health, reasons->call, sizeof(reasons->call));
    gyre_health_rank_name(health, health->comm->self.rank, reasons->name);
    if (explains) {
        is_explained = gyre_health_explain(health, &waiting, now_ns, why, sizeof(why));
    } else if (health->waits.n_waits > 0) {
        snprintf(why, sizeof(why), "rank %d, ", health->comm->self.rank);
        gyre_health_wait_text(&health->waits.waits[0], why, sizeof(why));
    }
    name_culprits(health, &waiting, now_ns, is_explained, reasons->who);
    const size_t n_before =
        strlen(reasons->call) + strlen(reasons->name) + strlen(reasons->who) + HEAD_BYTES;
    if (explains && n_before + strlen(why) >= GYRE_CAUSE_MAX_BYTES)
        (void)gyre_health_explain(health, &waiting, now_ns, why,
                                  n_before + MIN_WHY_BYTES < GYRE_CAUSE_MAX_BYTES
                                      ? GYRE_CAUSE_MAX_BYTES - n_before
                                      : MIN_WHY_BYTES);
    snprintf(reasons->why, sizeof(reasons->why), "%s%s",
             why[0] != '\0' && reasons->who[0] != '\0' ? "; " : "", why);
}

static bool are_answers_due(const struct gyre_health *health, uint64_t now_ns)
{
    return health->asks_since_ns != 0 &&
           now_ns - health->asks_since_ns >= gyre_health_silence_limit_ns(health, now_ns);
}

static bool is_late(const struct gyre_health *health, uint64_t now_ns)
{
    const int timeout_ms = health->comm->self.config.timeout_ms;
    return timeout_ms > 0 && (now_ns - health->started_ns) / 1000000 > (uint64_t)timeout_ms;
}

static void check_timeout(struct gyre_health *health, uint64_t now_ns)
{
    struct gyre_rank *self = &health->comm->self;
    struct reasons reasons;
    char text[GYRE_CAUSE_MAX_BYTES];
    if (!is_late(health, now_ns) || !are_answers_due(health, now_ns))
        return;
    if (health->late_ns == 0)
        health->late_ns = now_ns;
    /* one rank reports for all, so that all get the same message */
    if (gyre_health_explainer(health, now_ns) != self->rank &&
        now_ns - health->late_ns < SPEAKER_NS)
        return;
    find_reasons(health, now_ns, &reasons);
    snprintf(text, sizeof(text), "%s on %s took longer than %d ms (GYRE_TIMEOUT): ", reasons.call,
             reasons.name, self->config.timeout_ms);
    gyre_text_append(text, sizeof(text), "%s%s", reasons.who, reasons.why);
    gyre_health_fail_all(health, GYRE_ERROR_TIMEOUT, text);
}

/* A peer that has left takes part in no later call. Its data may still be under way, so the time
 * limit starts when its goodbye is known, and when no connection waits for another rail. */
static void check_left(struct gyre_health *health, uint64_t now_ns)
{
    struct gyre_rank *self = &health->comm->self;
    char call[160];
    char name[GYRE_RANK_NAME_BYTES];
    char text[GYRE_CAUSE_MAX_BYTES];
    if (gyre_links_are_moving(&health->comm->links, &health->comm->puts.transports))
        health->resumed_ns = now_ns;
    const uint64_t still_ns = gyre_max_u64(health->still_since_ns, health->resumed_ns);
    int first = -1; /* others may have left because of it */
    for (int rank = 0; rank < self->n_ranks; rank++) {
        const uint64_t left_ns = health->peers[rank].left_ns;
        if (rank != self->rank && health->has_left[rank] &&
            now_ns - gyre_max_u64(still_ns, left_ns) >= LEFT_NS &&
            (first < 0 || left_ns < health->peers[first].left_ns))
            first = rank;
    }
    if (first < 0)
        return;
    gyre_health_call_text(health, call, sizeof(call));
    snprintf(text, sizeof(text), "%s destroyed its communicator while rank %d waits in %s",
             gyre_health_rank_name(health, first, name), self->rank, call);
    gyre_health_fail(health, GYRE_ERROR_REMOTE, text, true);
}

/* False before the interval has passed. The latest finished calls count too: broadcasts with
 * different roots may all end, and only the next call waits. */
static bool ask(struct gyre_health *health, uint64_t now_ns, uint64_t interval_ns,
                uint64_t completed, uint64_t launched)
{
    struct gyre_call_log *call_log = &health->comm->call_log;
    struct gyre_health_message message = {.kind = GYRE_HEALTH_ASK};
    const struct gyre_health_message echo = {.kind = GYRE_HEALTH_ECHO};
    uint64_t last = UINT64_MAX;
    if (now_ns - health->asked_ns <= interval_ns)
        return false;
    const uint64_t n_done = gyre_min_u64(completed, launched); /* without replays of graphs */
    for (uint64_t work = n_done - gyre_min_u64(n_done, MAX_ASKED_DONE);
         work < launched && message.n_records < GYRE_HEALTH_MAX_ASKED; work++) {
        const uint64_t index = gyre_call_log_record_of(call_log, work);
        if (index != last &&
            gyre_call_log_get(call_log, index, &message.records[message.n_records]))
            message.n_records++;
        last = index;
    }
    if (health->asks_since_ns == 0)
        health->asks_since_ns = now_ns;
    health->asked_ns = now_ns;
    gyre_health_place_of(health, &message.place);
    gyre_health_post(health, -1, &message, message.n_records * sizeof(struct gyre_record));
    gyre_health_post(health, health->comm->self.rank, &echo, 0);
    return true;
}

/* False while this rank waits for nothing. */
static bool take_progress(struct gyre_health *health, uint64_t now_ns, bool busy,
                          const struct gyre_progress *progress)
{
    const bool has_completed = progress->completed != health->seen_completed;
    if (!busy || has_completed) {
        health->started_ns = now_ns;
        health->late_ns = 0;
    }
    if (busy && !has_completed && progress->activity == health->seen_progress)
        return true;
    health->seen_completed = progress->completed;
    health->seen_progress = progress->activity;
    health->still_since_ns = now_ns;
    health->has_warned = false;
    if (!is_late(health, now_ns)) { /* questions about a late call go on */
        health->asked_ns = 0;
        health->asks_since_ns = 0;
    }
    return busy;
}

/* Messages may have arrived during the stop, so silence is counted anew. */
static void notice_own_stop(struct gyre_health *health, uint64_t now_ns)
{
    if (now_ns - health->checked_ns > SELF_GAP_NS) {
        health->resumed_ns = now_ns;
        health->asks_since_ns = health->asks_since_ns != 0 ? now_ns : 0;
        health->asked_ns = 0;
    }
    health->checked_ns = now_ns;
}

void gyre_health_check_progress(struct gyre_health *health)
{
    struct gyre_rank *self = &health->comm->self;
    struct gyre_executor *executor = health->comm->executor;
    const struct gyre_progress progress = executor->ops->progress(executor);
    const uint64_t launched = gyre_load_acquire_u64(&executor->n_launched);
    const uint64_t now_ns = gyre_now_ns();
    /* works of replayed graphs are not launched here */
    const bool replays =
        self->device_info.kind == GYRE_DEVICE_CUDA && progress.completed < progress.activity;
    notice_own_stop(health, now_ns);
    /* A host stream reports both failures and the communicator goes on; a GPU's stream has no
     * status. */
    char own[GYRE_RANK_NAME_BYTES], sender[GYRE_RANK_NAME_BYTES];
    char text[GYRE_CAUSE_MAX_BYTES];
    if (progress.late_signal != 0) {
        const uint64_t index = progress.late_signal - 1;
        snprintf(text, sizeof(text),
                 "wait_signal on %s: signal %d of %s did not come within %d ms (GYRE_TIMEOUT)",
                 gyre_health_rank_name(health, self->rank, own), (int)(index % GYRE_N_SIGNALS),
                 gyre_health_rank_name(health, (int)(index / GYRE_N_SIGNALS), sender),
                 self->config.timeout_ms);
        gyre_health_fail_all(health, GYRE_ERROR_TIMEOUT, text);
    }
    if (progress.lost_signal != 0) {
        const uint64_t index = progress.lost_signal - 1;
        snprintf(text, sizeof(text),
                 "%s destroyed its communicator; the signal that rank %d waits for can no longer "
                 "come (signal %d)",
                 gyre_health_rank_name(health, (int)(index / GYRE_N_SIGNALS), sender), self->rank,
                 (int)(index % GYRE_N_SIGNALS));
        gyre_health_fail_all(health, GYRE_ERROR_REMOTE, text);
    }
    if (!take_progress(health, now_ns, progress.completed < launched || replays, &progress))
        return;
    const uint64_t still_ns = now_ns - health->still_since_ns;
    if ((progress.mismatch != 0 || still_ns > STALL_NS || is_late(health, now_ns)) &&
        ask(health, now_ns, gyre_health_ask_ns(health, now_ns), progress.completed, launched))
        gyre_health_share_waits(health, now_ns);
    const uint64_t warn_ns =
        (uint64_t)gyre_param_number(&self->params, GYRE_PARAM_STALL_WARN) * GYRE_SECOND_NS;
    if (still_ns > warn_ns && !health->has_warned && are_answers_due(health, now_ns)) {
        struct reasons reasons;
        find_reasons(health, now_ns, &reasons);
        GYRE_WARN("%s on %s makes no progress for %" PRIu64 " s: %s%s", reasons.call, reasons.name,
                  (uint64_t)(still_ns / GYRE_SECOND_NS), reasons.who, reasons.why);
        health->has_warned = true;
    }
    check_timeout(health, now_ns);
    if (!gyre_fault_is_raised(&self->fault))
        check_left(health, now_ns);
}

bool gyre_health_check_leaving(struct gyre_health *health)
{
    const struct gyre_rank *self = &health->comm->self;
    const uint64_t now_ns = gyre_now_ns();
    bool is_awaited = false;
    notice_own_stop(health, now_ns);
    if (health->left_self_ns == 0) { /* an earlier stall's questions do not count */
        health->left_self_ns = now_ns;
        health->asks_since_ns = 0;
        health->asked_ns = 0;
    }
    (void)ask(health, now_ns, GYRE_SECOND_NS, 0, 0);
    for (int rank = 0; rank < self->n_ranks && !is_awaited; rank++)
        is_awaited = rank != self->rank && !health->has_left[rank] &&
                     gyre_health_silent_ns(health, rank, now_ns) < GONE_NS;
    /* Without the rendezvous no goodbye arrives. */
    return is_awaited && gyre_health_silent_ns(health, self->rank, now_ns) < GONE_NS;
}
