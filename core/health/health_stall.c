/* SPDX-License-Identifier: Apache-2.0
 *
 * A call that makes no progress. The waiting rank asks all others where they are, again and again,
 * through the rendezvous. A living process answers at once, or asks itself, which says as much. So
 * a rank from which nothing comes is one whose process does not run: it is the one to name. A
 * message to itself tells whether the rendezvous passes messages on at all. A slow peer is no
 * error: names stand in a warning, and in the error where the user set a time limit.
 */
#include "core/health/health.h"

#include "core/base/log.h"
#include "core/base/sync.h"
#include "core/base/util.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SECOND_NS ((uint64_t)1000000000)
#define STALL_NS  300000000ULL /* without progress this long: ask */
#define ASK_NS    SECOND_NS
#define ASK_SELDOM_NS                                                          \
    (10 * SECOND_NS) /* a rendezvous that is stopped has to keep the questions \
                      */
#define SELDOM_FROM_NS (30 * SECOND_NS)
#define SELF_GAP_NS    SECOND_NS    /* this rank looks ten times a second, unless it was stopped */
#define SPEAKER_NS     500000000ULL /* for the lowest rank's verdict to arrive */
#define LEFT_NS        (3 * SECOND_NS)
#define MAX_ASKED_DONE 8 /* finished calls among those asked about */
#define MAX_NAMED      4 /* ranks of a kind in a message, with host and call */
#define MAX_NUMBERS    16
#define WHO_BYTES      640

/* ---- where this rank is -------------------------------------------------------------------- */

enum call_kind { CALL_NONE, CALL_RECORDED, CALL_FORGOTTEN, CALL_REPLAYED };

struct position {
    uint64_t completed;
    uint64_t launched;
    struct gyre_record call; /* CALL_RECORDED */
};

/* The first call that is not finished. */
static enum call_kind find_call(struct gyre_health *health, struct position *position_out)
{
    gyre_comm *comm = health->comm;
    *position_out = (struct position){0};
    if (comm->executor == NULL)
        return CALL_NONE;
    const struct gyre_pulse pulse = comm->executor->ops->pulse(comm->executor);
    const uint64_t completed = pulse.completed;
    const uint64_t launched = gyre_load_acquire_u64(&comm->executor->n_launched);
    position_out->completed = completed;
    position_out->launched = launched;
    if (completed >= launched)
        return completed < pulse.progress && comm->device_info.kind == GYRE_DEVICE_CUDA
                   ? CALL_REPLAYED
                   : CALL_NONE;
    const uint64_t index =
        gyre_load_acquire_u64(&health->record_of_work[completed % GYRE_HEALTH_WORKS]);
    return launched - completed <= GYRE_HEALTH_WORKS &&
                   gyre_board_get(&comm->board, index, &position_out->call)
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
    case CALL_FORGOTTEN: /* so much was enqueued since that its record is gone */
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
    struct gyre_board *board = &health->comm->board;
    struct position position;
    const enum call_kind kind = find_call(health, &position);
    *place_out = (struct gyre_health_place){.is_waiting = kind != CALL_NONE};
    pthread_mutex_lock(&board->lock);
    place_out->n_collectives = board->n_collectives;
    const uint64_t n_posted = board->n_posted;
    pthread_mutex_unlock(&board->lock);
    if (kind == CALL_RECORDED)
        place_out->call = position.call;
    else if (kind == CALL_NONE && n_posted > 0 &&
             !gyre_board_get(board, n_posted - 1, &place_out->call))
        memset(&place_out->call, 0, sizeof(place_out->call));
}

/* ---- asking -------------------------------------------------------------------------------- */

uint64_t gyre_health_ask_ns(const struct gyre_health *health, uint64_t now_ns)
{
    return now_ns - health->still_since_ns < SELDOM_FROM_NS ? ASK_NS : ASK_SELDOM_NS;
}

/* Nothing came for this long, in spite of questions: no answer. */
static uint64_t silence_limit_ns(const struct gyre_health *health, uint64_t now_ns)
{
    return gyre_health_ask_ns(health, now_ns) * 3 / 2;
}

/* A call may end here although it does not fit, as two roots' broadcasts do, and only the next one
 * waits: so finished ones are asked about too. */
static void ask(struct gyre_health *health, uint64_t completed, uint64_t launched)
{
    gyre_comm *comm = health->comm;
    struct gyre_health_message message = {.kind = GYRE_HEALTH_ASK};
    const struct gyre_health_message echo = {.kind = GYRE_HEALTH_ECHO};
    uint64_t last = UINT64_MAX;
    const uint64_t n_done = gyre_min_u64(completed, launched); /* without replays of graphs */
    for (uint64_t work = n_done - gyre_min_u64(n_done, MAX_ASKED_DONE);
         work < launched && message.n_records < GYRE_HEALTH_MAX_ASKED; work++) {
        const uint64_t index =
            gyre_load_acquire_u64(&health->record_of_work[work % GYRE_HEALTH_WORKS]);
        if (index != last &&
            gyre_board_get(&comm->board, index, &message.records[message.n_records]))
            message.n_records++;
        last = index;
    }
    gyre_health_place_of(health, &message.place);
    comm->bootstrap->ops->post(comm->bootstrap, -1, &message,
                               offsetof(struct gyre_health_message, records) +
                                   message.n_records * sizeof(struct gyre_record));
    comm->bootstrap->ops->post(comm->bootstrap, comm->rank, &echo,
                               offsetof(struct gyre_health_message, records));
}

static uint64_t silent_ns(const struct gyre_health *health, int rank, uint64_t now_ns)
{
    const uint64_t heard_ns = health->peers[rank].heard_ns;
    const uint64_t since_ns = heard_ns > health->asks_since_ns ? heard_ns : health->asks_since_ns;
    return health->asks_since_ns == 0 || since_ns > now_ns ? 0 : now_ns - since_ns;
}

static bool is_silent(const struct gyre_health *health, int rank, uint64_t now_ns)
{
    return !health->has_left[rank] &&
           silent_ns(health, rank, now_ns) >= silence_limit_ns(health, now_ns);
}

/* Has everybody had the time to answer? */
static bool are_answers_due(const struct gyre_health *health, uint64_t now_ns)
{
    return health->asks_since_ns != 0 &&
           now_ns - health->asks_since_ns >= silence_limit_ns(health, now_ns);
}

/* ---- naming -------------------------------------------------------------------------------- */

static void append(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* @text: WHO_BYTES; what does not fit is cut off. */
static void append(char *text, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, WHO_BYTES - used, format, args);
    va_end(args);
}

/* The letter of proc(5), of a process of this host; '?' if it cannot be seen. */
static char process_state(const gyre_comm *comm, int rank)
{
    const struct gyre_peer_info *mine = &comm->links.infos[comm->rank];
    const struct gyre_peer_info *peer = &comm->links.infos[rank];
    char path[64];
    char line[256];
    char state = '?';
    if (mine->host_hash != peer->host_hash || mine->pid_namespace != peer->pid_namespace)
        return state;
    snprintf(path, sizeof(path), "/proc/%u/stat", peer->pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return state;
    if (fgets(line, sizeof(line), file) != NULL) {
        const char *end = strrchr(line, ')'); /* its name may have any characters */
        if (end != NULL && end[1] == ' ')
            state = end[2];
    }
    fclose(file);
    return state;
}

static const char *why_silent(char state)
{
    switch (state) {
    case 'T':
        return "its process is stopped (by a signal; SIGCONT lets it go on)";
    case 't':
        return "its process is stopped by a debugger";
    case 'D':
        return "its process waits in the kernel (state D: a disk or a network file system)";
    default:
        return "its process is stopped, swapped out or its host is overloaded";
    }
}

static void name_silent_rank(const struct gyre_health *health, int rank, uint64_t now_ns, char *who)
{
    char name[GYRE_RANK_NAME_BYTES];
    append(who, "%s does not answer for %" PRIu64 " s: %s",
           gyre_rank_name(health->comm, rank, name),
           (silent_ns(health, rank, now_ns) + SECOND_NS / 2) / SECOND_NS,
           why_silent(process_state(health->comm, rank)));
}

/* Without the rendezvous nobody can be asked. */
static void name_rendezvous(const struct gyre_health *health, uint64_t now_ns, char *who)
{
    const gyre_comm *comm = health->comm;
    const struct gyre_bootstrap *bootstrap = comm->bootstrap;
    if (bootstrap->hub_rank >= 0)
        name_silent_rank(health, bootstrap->hub_rank, now_ns, who);
    else
        append(who, "%s does not answer for %" PRIu64 " s", bootstrap->hub_text,
               (silent_ns(health, comm->rank, now_ns) + SECOND_NS / 2) / SECOND_NS);
    append(who, "; that process carries the rendezvous, without which no other rank can be asked");
}

/* How a rank stands to the call that this rank waits in. */
enum standing {
    IS_SILENT,
    HAS_LEFT,
    IS_BEHIND,
    IS_ELSEWHERE,
    IS_DONE,
    IS_IN_THE_CALL,
    N_STANDINGS
};

static enum standing stands(const struct gyre_health *health, int rank, uint64_t now_ns,
                            const struct gyre_record *mine)
{
    const struct gyre_health_peer *peer = &health->peers[rank];
    const struct gyre_health_place *place = &peer->place;
    const bool is_collective = mine->sequence > 0 && mine->coll != GYRE_COLL_SEND_RECV;
    if (rank == health->comm->rank)
        return IS_IN_THE_CALL;
    if (health->has_left[rank])
        return HAS_LEFT;
    if (is_silent(health, rank, now_ns))
        return IS_SILENT;
    if ((is_collective && place->n_collectives < mine->sequence) ||
        (peer->behind_ns != 0 && now_ns - peer->behind_ns < silence_limit_ns(health, now_ns)))
        return IS_BEHIND;
    if (!place->is_waiting)
        return IS_DONE;
    return place->call.sequence == mine->sequence && place->call.coll == mine->coll ? IS_IN_THE_CALL
                                                                                    : IS_ELSEWHERE;
}

static void name_rank(const struct gyre_health *health, int rank, enum standing standing,
                      uint64_t now_ns, char *who)
{
    const struct gyre_health_place *place = &health->peers[rank].place;
    char name[GYRE_RANK_NAME_BYTES];
    char call[160] = "an operation that is not on record";
    if (standing == IS_SILENT) {
        name_silent_rank(health, rank, now_ns, who);
        return;
    }
    gyre_rank_name(health->comm, rank, name);
    if (place->call.sequence != 0)
        gyre_record_text(&place->call, call, sizeof(call));
    if (standing == HAS_LEFT)
        append(who, "%s has left", name);
    else if (standing == IS_ELSEWHERE)
        append(who, "%s waits in %s", name, call);
    else if (place->is_waiting)
        append(who, "%s is behind: it waits in %s", name, call);
    else if (place->call.sequence != 0)
        append(who, "%s is behind: it has called nothing after %s", name, call);
    else
        append(who, "%s is behind: it has called nothing yet", name);
}

/* "ranks 0, 2, 3 and 17 more" */
static void list_numbers(const uint8_t *standings, int n_ranks, enum standing standing, char *who)
{
    int n = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        if (standings[rank] != standing)
            continue;
        if (n < MAX_NUMBERS)
            append(who, "%s%d", n == 0 ? "" : ", ", rank);
        n++;
    }
    if (n > MAX_NUMBERS)
        append(who, " and %d more", n - MAX_NUMBERS);
}

/* Those to blame, each with its host and its call. Returns how many there are. */
static int name_culprits(const struct gyre_health *health, const uint8_t *standings,
                         uint64_t now_ns, char *who)
{
    int n_all = 0;
    for (int standing = IS_SILENT; standing <= IS_ELSEWHERE; standing++) {
        int n = 0;
        for (int rank = 0; rank < health->comm->n_ranks; rank++) {
            if (standings[rank] != standing)
                continue;
            if (n < MAX_NAMED) {
                append(who, "%s", n_all + n > 0 ? "; " : "");
                name_rank(health, rank, (enum standing)standing, now_ns, who);
            }
            n++;
        }
        if (n > MAX_NAMED)
            append(who, "; likewise %d more ranks", n - MAX_NAMED);
        n_all += n;
    }
    return n_all;
}

/* Why the call does not go on: who does not answer, who is behind, who else waits.
 * @who_out: WHO_BYTES */
static void name_who(struct gyre_health *health, uint64_t now_ns, char *who_out)
{
    const gyre_comm *comm = health->comm;
    struct position position;
    int n_of[N_STANDINGS] = {0};
    who_out[0] = '\0';
    if (is_silent(health, comm->rank, now_ns)) {
        name_rendezvous(health, now_ns, who_out);
        return;
    }
    (void)find_call(health, &position);
    for (int rank = 0; rank < comm->n_ranks; rank++) {
        health->standings[rank] = (uint8_t)stands(health, rank, now_ns, &position.call);
        n_of[health->standings[rank]]++;
    }
    if (name_culprits(health, health->standings, now_ns, who_out) == 0)
        append(who_out,
               "all ranks answer, and none is behind%s; look for slow links, and at what is ahead "
               "of the call on its stream on each rank: work of the program, or another "
               "communicator's call that some ranks made before this one and some after it",
               gyre_param_is_set(&comm->params, GYRE_PARAM_CHECK)
                   ? ", and GYRE_CHECK=calls found them alike"
                   : "");
    if (n_of[IS_IN_THE_CALL] > 1) {
        append(who_out, "; waiting in the same call: ranks ");
        list_numbers(health->standings, comm->n_ranks, IS_IN_THE_CALL, who_out);
    }
    if (n_of[IS_DONE] > 0) {
        append(who_out, "; done with their part: ranks ");
        list_numbers(health->standings, comm->n_ranks, IS_DONE, who_out);
    }
}

/* ---- limits -------------------------------------------------------------------------------- */

static void warn(struct gyre_health *health, uint64_t now_ns)
{
    char call[160];
    char who[WHO_BYTES];
    char name[GYRE_RANK_NAME_BYTES];
    gyre_health_call_text(health, call, sizeof(call));
    name_who(health, now_ns, who);
    GYRE_WARN("%s on %s makes no progress for %" PRIu64 " s: %s", call,
              gyre_rank_name(health->comm, health->comm->rank, name),
              (now_ns - health->still_since_ns) / SECOND_NS, who);
}

/* One rank speaks for all, so that all get the same words: the lowest that is there. */
static bool is_speaker(const struct gyre_health *health, uint64_t now_ns)
{
    for (int rank = 0; rank < health->comm->rank; rank++)
        if (!health->has_left[rank] && !is_silent(health, rank, now_ns))
            return false;
    return true;
}

static bool is_late(const struct gyre_health *health, uint64_t now_ns)
{
    const int timeout_ms = health->comm->config.timeout_ms;
    return timeout_ms > 0 && (now_ns - health->started_ns) / 1000000 > (uint64_t)timeout_ms;
}

/* An operation takes longer than the user allows. */
static void check_timeout(struct gyre_health *health, uint64_t now_ns)
{
    gyre_comm *comm = health->comm;
    char call[160];
    char who[WHO_BYTES];
    char name[GYRE_RANK_NAME_BYTES];
    char text[GYRE_CAUSE_MAX_BYTES];
    if (!is_late(health, now_ns) || !are_answers_due(health, now_ns))
        return;
    if (health->late_ns == 0)
        health->late_ns = now_ns;
    if (!is_speaker(health, now_ns) && now_ns - health->late_ns < SPEAKER_NS)
        return;
    gyre_health_call_text(health, call, sizeof(call));
    name_who(health, now_ns, who);
    snprintf(text, sizeof(text), "%s on %s took longer than %d ms (GYRE_TIMEOUT): %s", call,
             gyre_rank_name(comm, comm->rank, name), comm->config.timeout_ms, who);
    gyre_health_end(comm, GYRE_ERROR_TIMEOUT, text);
    gyre_health_fail(health, GYRE_ERROR_TIMEOUT, text, true);
}

/* A peer that left has no part in any call to come. */
static void check_left(struct gyre_health *health, uint64_t now_ns)
{
    gyre_comm *comm = health->comm;
    char call[160];
    char name[GYRE_RANK_NAME_BYTES];
    char text[GYRE_CAUSE_MAX_BYTES];
    if (now_ns - health->still_since_ns < LEFT_NS)
        return;
    for (int rank = 0; rank < comm->n_ranks; rank++) {
        if (rank == comm->rank || !health->has_left[rank])
            continue;
        gyre_health_call_text(health, call, sizeof(call));
        snprintf(text, sizeof(text), "%s destroyed its communicator while rank %d waits in %s",
                 gyre_rank_name(comm, rank, name), comm->rank, call);
        gyre_health_fail(health, GYRE_ERROR_REMOTE, text, true);
        return;
    }
}

/* ---- progress ------------------------------------------------------------------------------ */

/* Has this rank works that are not finished? */
static bool is_busy(const gyre_comm *comm, uint64_t completed, uint64_t launched, uint64_t progress)
{
    /* Replays of a graph complete works that nobody launched: there the started ones count. */
    if (comm->device_info.kind == GYRE_DEVICE_CUDA)
        return completed < launched || completed < progress;
    return completed < launched;
}

/* Returns false while this rank waits for nothing. */
static bool take_progress(struct gyre_health *health, uint64_t now_ns, bool busy,
                          const struct gyre_pulse *pulse)
{
    const bool has_completed = pulse->completed != health->seen_completed;
    if (!busy || has_completed) {
        health->started_ns = now_ns;
        health->late_ns = 0;
    }
    if (busy && !has_completed && pulse->progress == health->seen_progress)
        return true;
    health->seen_completed = pulse->completed;
    health->seen_progress = pulse->progress;
    health->still_since_ns = now_ns;
    health->has_warned = false;
    if (!is_late(health, now_ns)) { /* a call that is slow beyond the limit is asked about, too */
        health->asked_ns = 0;
        health->asks_since_ns = 0;
    }
    return busy;
}

/* What came while this process was stopped has not been read yet; what did not come says nothing
 * about others. */
static void notice_own_stop(struct gyre_health *health, uint64_t now_ns)
{
    if (now_ns - health->checked_ns > SELF_GAP_NS && health->asks_since_ns != 0) {
        health->asks_since_ns = now_ns;
        health->asked_ns = 0;
    }
    health->checked_ns = now_ns;
}

void gyre_health_check_progress(struct gyre_health *health)
{
    gyre_comm *comm = health->comm;
    const struct gyre_pulse pulse = comm->executor->ops->pulse(comm->executor);
    const uint64_t launched = gyre_load_acquire_u64(&comm->executor->n_launched);
    const uint64_t now_ns = gyre_now_ns();
    const bool busy = is_busy(comm, pulse.completed, launched, pulse.progress);
    notice_own_stop(health, now_ns);
    if (!take_progress(health, now_ns, busy, &pulse))
        return;
    const uint64_t still_ns = now_ns - health->still_since_ns;
    const bool asks = pulse.mismatch != 0 || still_ns > STALL_NS || is_late(health, now_ns);
    if (asks && now_ns - health->asked_ns > gyre_health_ask_ns(health, now_ns)) {
        if (health->asks_since_ns == 0)
            health->asks_since_ns = now_ns;
        ask(health, pulse.completed, launched);
        health->asked_ns = now_ns;
    }
    const uint64_t warn_ns =
        (uint64_t)gyre_param_number(&comm->params, GYRE_PARAM_STALL_WARN) * SECOND_NS;
    if (still_ns > warn_ns && !health->has_warned && are_answers_due(health, now_ns)) {
        warn(health, now_ns);
        health->has_warned = true;
    }
    check_timeout(health, now_ns);
    if (!gyre_fault_is_raised(&comm->fault))
        check_left(health, now_ns);
}
