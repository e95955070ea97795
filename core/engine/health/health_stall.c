/* SPDX-License-Identifier: Apache-2.0
 *
 * A call that makes no progress. The waiting rank repeatedly asks all other ranks, through the
 * rendezvous, where they are. A process that runs answers at once, or asks questions of its own,
 * which hold the same answer. So the process of a silent rank does not run, and messages name that
 * rank. The waiting rank also sends a message to itself to see whether the rendezvous passes
 * messages on at all. A slow peer is no error: ranks are named in a warning, and in the error where
 * the user set a time limit.
 */
#include "core/engine/health/watch.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SECOND_NS      ((uint64_t)1000000000)
#define STALL_NS       300000000ULL /* without progress this long: ask */
#define SELF_GAP_NS    SECOND_NS    /* this rank looks ten times a second, unless it was stopped */
#define SPEAKER_NS     500000000ULL /* for the verdict of the rank that explains to arrive */
#define HEAD_BYTES     64  /* of an error's words beside the call, the rank and the reasons */
#define MIN_WHY_BYTES  128 /* of the explanation of the waits, if the error has room or not */
#define LEFT_NS        1500000000ULL
#define GONE_NS        3500000000ULL /* leaving: a rank that is silent this long is not waited for */
#define MAX_ASKED_DONE 8             /* finished calls among those asked about */

/* ---- asking -------------------------------------------------------------------------------- */

/* Ask the peers about the latest finished calls too. Broadcasts with different roots may all end
 * although they do not fit, so that only the call after them waits. */
static void ask(struct gyre_health *health, uint64_t completed, uint64_t launched)
{
    struct gyre_member *member = health->member;
    struct gyre_health_message message = {.kind = GYRE_HEALTH_ASK};
    const struct gyre_health_message echo = {.kind = GYRE_HEALTH_ECHO};
    uint64_t last = UINT64_MAX;
    const uint64_t n_done = gyre_min_u64(completed, launched); /* without replays of graphs */
    for (uint64_t work = n_done - gyre_min_u64(n_done, MAX_ASKED_DONE);
         work < launched && message.n_records < GYRE_HEALTH_MAX_ASKED; work++) {
        const uint64_t index = gyre_call_log_record_of(&health->caller->call_log, work);
        if (index != last && gyre_call_log_get(&health->caller->call_log, index,
                                               &message.records[message.n_records]))
            message.n_records++;
        last = index;
    }
    gyre_health_place_of(health, &message.place);
    member->bootstrap->ops->post(member->bootstrap, -1, &message,
                                 offsetof(struct gyre_health_message, records) +
                                     message.n_records * sizeof(struct gyre_record));
    member->bootstrap->ops->post(member->bootstrap, member->rank, &echo,
                                 offsetof(struct gyre_health_message, records));
}

/* The texts of a warning or an error about a call that makes no progress. */
struct reasons {
    char call[160];
    char name[GYRE_RANK_NAME_BYTES];
    char who[GYRE_HEALTH_WHO_BYTES];
    char why[GYRE_HEALTH_WHY_BYTES + 2]; /* with a "; " before it, where `who` is not "" */
};

/* One rank explains the waits of all ranks, because only that rank receives the positions of all
 * workers. Every other rank describes the first wait of its own. */
static void find_reasons(struct gyre_health *health, uint64_t now_ns, struct reasons *reasons)
{
    struct gyre_record waiting;
    char why[GYRE_HEALTH_WHY_BYTES] = "";
    bool is_explained = false;
    const bool explains = gyre_health_explainer(health, now_ns) == health->member->rank;
    gyre_health_waiting_call(health, &waiting);
    gyre_health_call_text(health, reasons->call, sizeof(reasons->call));
    gyre_health_rank_name(health, health->member->rank, reasons->name);
    if (explains) {
        is_explained = gyre_health_explain(health, &waiting, now_ns, why, sizeof(why));
    } else if (health->waits.n_waits > 0) {
        snprintf(why, sizeof(why), "rank %d, ", health->member->rank);
        gyre_health_wait_text(&health->waits.waits[0], why, sizeof(why));
    }
    gyre_health_name_culprits(health, &waiting, now_ns, is_explained, reasons->who);
    const size_t n_before =
        strlen(reasons->call) + strlen(reasons->name) + strlen(reasons->who) + HEAD_BYTES;
    if (explains && n_before + strlen(why) >= GYRE_CAUSE_MAX_BYTES) /* explain in less room */
        (void)gyre_health_explain(health, &waiting, now_ns, why,
                                  n_before + MIN_WHY_BYTES < GYRE_CAUSE_MAX_BYTES
                                      ? GYRE_CAUSE_MAX_BYTES - n_before
                                      : MIN_WHY_BYTES);
    snprintf(reasons->why, sizeof(reasons->why), "%s%s",
             why[0] != '\0' && reasons->who[0] != '\0' ? "; " : "", why);
}

/* Have all ranks had enough time to answer? */
static bool are_answers_due(const struct gyre_health *health, uint64_t now_ns)
{
    return health->asks_since_ns != 0 &&
           now_ns - health->asks_since_ns >= gyre_health_silence_limit_ns(health, now_ns);
}

/* ---- limits -------------------------------------------------------------------------------- */

static void warn(struct gyre_health *health, uint64_t now_ns)
{
    struct reasons reasons;
    find_reasons(health, now_ns, &reasons);
    GYRE_WARN("%s on %s makes no progress for %" PRIu64 " s: %s%s", reasons.call, reasons.name,
              (now_ns - health->still_since_ns) / SECOND_NS, reasons.who, reasons.why);
}

static bool is_late(const struct gyre_health *health, uint64_t now_ns)
{
    const int timeout_ms = health->member->config.timeout_ms;
    return timeout_ms > 0 && (now_ns - health->started_ns) / 1000000 > (uint64_t)timeout_ms;
}

/* Fail if an operation takes longer than the user allows. */
static void check_timeout(struct gyre_health *health, uint64_t now_ns)
{
    struct gyre_member *member = health->member;
    struct reasons reasons;
    char text[GYRE_CAUSE_MAX_BYTES];
    if (!is_late(health, now_ns) || !are_answers_due(health, now_ns))
        return;
    if (health->late_ns == 0)
        health->late_ns = now_ns;
    /* One rank reports the failure for all ranks, so that all ranks get the same message. */
    if (gyre_health_explainer(health, now_ns) != member->rank &&
        now_ns - health->late_ns < SPEAKER_NS)
        return;
    find_reasons(health, now_ns, &reasons);
    const int n_text = snprintf(text, sizeof(text),
                                "%s on %s took longer than %d ms (GYRE_TIMEOUT): ", reasons.call,
                                reasons.name, member->config.timeout_ms);
    snprintf(text + n_text, sizeof(text) - (size_t)n_text, "%s%s", reasons.who, reasons.why);
    gyre_health_end(health, GYRE_ERROR_TIMEOUT, text);
    gyre_health_fail(health, GYRE_ERROR_TIMEOUT, text, true);
}

/* Fail if a wait for a signal takes longer than the user allows. On the host the wait's stream says
 * so and the communicator goes on, but a GPU's stream has no status of its own. */
static void check_late_signal(struct gyre_health *health, const struct gyre_progress *progress)
{
    const struct gyre_member *member = health->member;
    char own[GYRE_RANK_NAME_BYTES], sender[GYRE_RANK_NAME_BYTES];
    char text[GYRE_CAUSE_MAX_BYTES];
    if (progress->late_signal == 0)
        return;
    const uint64_t index = progress->late_signal - 1;
    snprintf(text, sizeof(text),
             "wait_signal on %s: signal %d of %s did not come within %d ms (GYRE_TIMEOUT)",
             gyre_health_rank_name(health, member->rank, own), (int)(index % GYRE_N_SIGNALS),
             gyre_health_rank_name(health, (int)(index / GYRE_N_SIGNALS), sender),
             member->config.timeout_ms);
    gyre_health_end(health, GYRE_ERROR_TIMEOUT, text);
    gyre_health_fail(health, GYRE_ERROR_TIMEOUT, text, true);
}

/* Fail if a wait on a GPU is for signals of a rank that has left without sending them. On the host
 * the wait's stream says so, as above. */
static void check_lost_signal(struct gyre_health *health, const struct gyre_progress *progress)
{
    char sender[GYRE_RANK_NAME_BYTES];
    char text[GYRE_CAUSE_MAX_BYTES];
    if (progress->lost_signal == 0)
        return;
    const uint64_t index = progress->lost_signal - 1;
    snprintf(text, sizeof(text),
             "%s destroyed its communicator; the signal that rank %d waits for can no longer come "
             "(signal %d)",
             gyre_health_rank_name(health, (int)(index / GYRE_N_SIGNALS), sender),
             health->member->rank, (int)(index % GYRE_N_SIGNALS));
    gyre_health_end(health, GYRE_ERROR_REMOTE, text);
    gyre_health_fail(health, GYRE_ERROR_REMOTE, text, true);
}

/* Fail if this rank waits although a peer has left, because a peer that has left takes part in no
 * later call. Data that the peer sent before it left may still be under way, also to a process that
 * was stopped meanwhile. So the time limit starts when this process runs and knows that the peer
 * has left. */
static void check_left(struct gyre_health *health, uint64_t now_ns)
{
    struct gyre_member *member = health->member;
    char call[160];
    char name[GYRE_RANK_NAME_BYTES];
    char text[GYRE_CAUSE_MAX_BYTES];
    const uint64_t still_ns = gyre_max_u64(health->still_since_ns, health->resumed_ns);
    int first = -1; /* the first rank that left: the other ranks may have left because of it */
    for (int rank = 0; rank < member->n_ranks; rank++) {
        const uint64_t left_ns = health->peers[rank].left_ns;
        if (rank != member->rank && health->has_left[rank] &&
            now_ns - gyre_max_u64(still_ns, left_ns) >= LEFT_NS &&
            (first < 0 || left_ns < health->peers[first].left_ns))
            first = rank;
    }
    if (first < 0)
        return;
    gyre_health_call_text(health, call, sizeof(call));
    snprintf(text, sizeof(text), "%s destroyed its communicator while rank %d waits in %s",
             gyre_health_rank_name(health, first, name), member->rank, call);
    gyre_health_fail(health, GYRE_ERROR_REMOTE, text, true);
}

/* ---- progress ------------------------------------------------------------------------------ */

/* Has this rank works that are not finished? */
static bool is_busy(const struct gyre_member *member, uint64_t completed, uint64_t launched,
                    uint64_t progress)
{
    /* Replays of a graph complete works that were not launched by this library, so compare with the
     * number of works that have started. */
    if (member->device_info.kind == GYRE_DEVICE_CUDA)
        return completed < launched || completed < progress;
    return completed < launched;
}

/* Returns false while this rank waits for nothing. */
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
    if (!is_late(health, now_ns)) { /* questions go on about a call that exceeds the time limit */
        health->asked_ns = 0;
        health->asks_since_ns = 0;
    }
    return busy;
}

/* After this process was stopped, start to count the silence of other ranks anew: their messages
 * may have arrived without being read. */
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
    struct gyre_member *member = health->member;
    const struct gyre_progress progress =
        health->caller->executor->ops->progress(health->caller->executor);
    const uint64_t launched = gyre_load_acquire_u64(&health->caller->executor->n_launched);
    const uint64_t now_ns = gyre_now_ns();
    const bool busy = is_busy(member, progress.completed, launched, progress.activity);
    notice_own_stop(health, now_ns);
    check_late_signal(health, &progress);
    check_lost_signal(health, &progress);
    if (!take_progress(health, now_ns, busy, &progress))
        return;
    const uint64_t still_ns = now_ns - health->still_since_ns;
    const bool asks = progress.mismatch != 0 || still_ns > STALL_NS || is_late(health, now_ns);
    if (asks && now_ns - health->asked_ns > gyre_health_ask_ns(health, now_ns)) {
        if (health->asks_since_ns == 0)
            health->asks_since_ns = now_ns;
        ask(health, progress.completed, launched);
        gyre_health_share_waits(health, now_ns);
        health->asked_ns = now_ns;
    }
    const uint64_t warn_ns =
        (uint64_t)gyre_param_number(&member->params, GYRE_PARAM_STALL_WARN) * SECOND_NS;
    if (still_ns > warn_ns && !health->has_warned && are_answers_due(health, now_ns)) {
        warn(health, now_ns);
        health->has_warned = true;
    }
    check_timeout(health, now_ns);
    if (!gyre_fault_is_raised(&member->fault))
        check_left(health, now_ns);
}

/* ---- leaving ------------------------------------------------------------------------------- */

void gyre_health_check_leaving(struct gyre_health *health)
{
    const struct gyre_member *member = health->member;
    const uint64_t now_ns = gyre_now_ns();
    notice_own_stop(health, now_ns);
    if (health->left_self_ns == 0) { /* the questions of an earlier stall do not count */
        health->left_self_ns = now_ns;
        health->asks_since_ns = 0;
        health->asked_ns = 0;
    }
    if (health->asked_ns == 0 || now_ns - health->asked_ns > SECOND_NS) {
        if (health->asks_since_ns == 0)
            health->asks_since_ns = now_ns;
        ask(health, 0, 0);
        health->asked_ns = now_ns;
    }
    bool is_awaited = false;
    for (int rank = 0; rank < member->n_ranks && !is_awaited; rank++)
        is_awaited = rank != member->rank && !health->has_left[rank] &&
                     gyre_health_silent_ns(health, rank, now_ns) < GONE_NS;
    /* Without the rendezvous no goodbye arrives. */
    if (!is_awaited || gyre_health_silent_ns(health, member->rank, now_ns) >= GONE_NS)
        gyre_health_stop_waiting(health);
}
