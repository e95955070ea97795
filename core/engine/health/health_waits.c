/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers' positions, told between ranks when a call stalls or a thread asks for a dump. A rank
 * first asks the awaited rank how many slots its end has moved, to tell a lost slot from one that
 * was not sent. A stalled rank's messages a second do not grow with the number of ranks.
 */
#include "core/engine/health/watch.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <stdlib.h>

#define ANSWER_NS   1000000000ULL /* for the other ranks to answer */
#define PATIENCE_NS 3000000000ULL /* for the health thread to print */
#define LINE_BYTES  512
#define MAX_OWN     256
#define MAX_RANKS   16 /* all n ranks of a job may print at once */

static bool waits_as_sender(const struct gyre_position *position)
{
    return position->waits_for == GYRE_WAIT_CREDIT || position->waits_for == GYRE_WAIT_ENTRY;
}

static bool waits_at_end(const struct gyre_position *position)
{
    return position->waits_for == GYRE_WAIT_SLOT || waits_as_sender(position);
}

void gyre_health_look(struct gyre_health *health)
{
    struct gyre_executor *executor = health->comm->executor;
    struct gyre_position positions[GYRE_HEALTH_MAX_WAITS];
    struct gyre_health_waits waits = {.version = GYRE_HEALTH_WAITS_VERSION};
    if (executor == NULL)
        return;
    const gyre_status status =
        executor->ops->positions(executor, positions, GYRE_HEALTH_MAX_WAITS, &waits.n_all);
    waits.is_known = status == GYRE_SUCCESS;
    if (waits.is_known) {
        waits.has_begun = waits.n_all > 0;
        waits.n_waits = (uint16_t)gyre_min_u64(waits.n_all, GYRE_HEALTH_MAX_WAITS);
        for (uint16_t i = 0; i < waits.n_waits; i++) {
            waits.waits[i].position = positions[i];
            waits.waits[i].transport = health->comm->links.transport_of[positions[i].peer];
        }
        /* Keep peers' answers about waits that still go on. */
        for (uint16_t k = 0; k < waits.n_waits; k++) {
            struct gyre_health_wait *wait = &waits.waits[k];
            const struct gyre_position *now = &wait->position;
            for (uint16_t j = 0; j < health->waits.n_waits && waits_at_end(now); j++) {
                const struct gyre_health_wait *old = &health->waits.waits[j];
                const struct gyre_position *then = &old->position;
                if (now->peer != then->peer || now->fifo != then->fifo || now->slot != then->slot ||
                    now->waits_for != then->waits_for || now->is_lines != then->is_lines)
                    continue;
                wait->answer = old->answer;
                wait->peer_worker = old->peer_worker;
                wait->n_peer_moved = old->n_peer_moved;
            }
        }
    } else {
        const struct gyre_progress progress = executor->ops->progress(executor);
        waits.n_all = 0;
        waits.has_begun = progress.activity > progress.completed;
    }
    health->waits = waits;
}

static void tell(struct gyre_health *health, int rank)
{
    struct gyre_health_message message = {.kind = GYRE_HEALTH_WAITS};
    gyre_health_place_of(health, &message.place);
    message.waits = health->waits;
    gyre_health_post(health, rank, &message,
                     offsetof(struct gyre_health_waits, waits) +
                         health->waits.n_waits * sizeof(struct gyre_health_wait));
}

int gyre_health_explainer(const struct gyre_health *health, uint64_t now_ns)
{
    for (int rank = 0; rank < health->comm->self.rank; rank++) {
        const uint64_t asked_ns = health->peers[rank].asked_ns;
        if (asked_ns != 0 && !health->has_left[rank] &&
            now_ns - asked_ns < gyre_health_silence_limit_ns(health, now_ns))
            return rank;
    }
    return health->comm->self.rank;
}

void gyre_health_share_waits(struct gyre_health *health, uint64_t now_ns)
{
    const int explainer = gyre_health_explainer(health, now_ns);
    gyre_health_look(health);
    if (explainer != health->comm->self.rank)
        tell(health, explainer);
    for (uint16_t i = 0; i < health->waits.n_waits; i++) {
        const struct gyre_position *position = &health->waits.waits[i].position;
        struct gyre_health_message message = {.kind = GYRE_HEALTH_END_ASK};
        if (!waits_at_end(position))
            continue;
        message.end = (struct gyre_health_end){
            .slot = position->slot,
            .fifo = position->fifo,
            .is_send = !waits_as_sender(position),
            .is_lines = position->is_lines,
        };
        gyre_health_post(health, position->peer, &message, sizeof(message.end));
    }
}

void gyre_health_tell_waits(struct gyre_health *health, int rank)
{
    gyre_health_look(health);
    tell(health, rank);
}

static void clean(char *text, size_t text_bytes)
{
    text[text_bytes - 1] = '\0';
    for (char *at = text; *at != '\0'; at++)
        if (!gyre_text_is_printable(*at))
            *at = '?';
}

void gyre_health_take_waits(struct gyre_health *health, int rank,
                            struct gyre_health_message *message, size_t n_bytes)
{
    struct gyre_health_peer *peer = &health->peers[rank];
    struct gyre_health_waits *waits = &message->waits;
    const size_t n_head =
        offsetof(struct gyre_health_message, waits) + offsetof(struct gyre_health_waits, waits);
    if (n_bytes < n_head || waits->version != GYRE_HEALTH_WAITS_VERSION ||
        waits->n_waits > GYRE_HEALTH_MAX_WAITS ||
        n_bytes != n_head + waits->n_waits * sizeof(struct gyre_health_wait))
        return;
    for (uint16_t i = 0; i < waits->n_waits; i++) {
        struct gyre_position *position = &waits->waits[i].position;
        uint8_t n_transports = 0;
        while (gyre_transports[n_transports] != NULL)
            n_transports++;
        if (!(waits->waits[i].position.peer < health->comm->self.n_ranks &&
              waits->waits[i].position.waits_for < GYRE_N_WAITS &&
              waits->waits[i].position.coll < GYRE_N_COLLECTIVES &&
              waits->waits[i].answer < GYRE_N_PEER_ENDS &&
              waits->waits[i].transport < n_transports))
            return;
        clean(position->algorithm, sizeof(position->algorithm));
        clean(position->step_text, sizeof(position->step_text));
    }
    if (peer->waits == NULL)
        peer->waits = malloc(sizeof(*peer->waits));
    if (peer->waits == NULL)
        return;
    *peer->waits = *waits;
    peer->waits_ns = peer->heard_ns;
}

void gyre_health_take_end_ask(struct gyre_health *health, int rank,
                              const struct gyre_health_message *message, size_t n_bytes)
{
    struct gyre_executor *executor = health->comm->executor;
    struct gyre_health_message reply = {.kind = GYRE_HEALTH_END_ANSWER};
    struct gyre_side_state state;
    if (n_bytes != offsetof(struct gyre_health_message, end) + sizeof(message->end) ||
        executor == NULL)
        return;
    const struct gyre_side_name name = {(uint32_t)rank, message->end.fifo,
                                        message->end.is_send != 0, message->end.is_lines != 0};
    reply.end = message->end;
    reply.end.is_known = executor->ops->side_state(executor, &name, &state) == GYRE_SUCCESS;
    if (reply.end.is_known) {
        reply.end.n_moved = state.n_moved;
        reply.end.is_held = state.is_held;
        reply.end.worker = (struct gyre_wait_worker){state.work, state.channel, state.worker, 0};
    }
    gyre_health_post(health, rank, &reply, sizeof(reply.end));
}

void gyre_health_take_end_answer(struct gyre_health *health, int rank,
                                 const struct gyre_health_message *message, size_t n_bytes)
{
    const struct gyre_health_end *end = &message->end;
    if (n_bytes != offsetof(struct gyre_health_message, end) + sizeof(*end))
        return;
    for (uint16_t i = 0; i < health->waits.n_waits; i++) {
        struct gyre_health_wait *wait = &health->waits.waits[i];
        const struct gyre_position *position = &wait->position;
        if (!waits_at_end(position) || position->peer != rank || position->fifo != end->fifo ||
            position->slot != end->slot || position->is_lines != end->is_lines ||
            waits_as_sender(position) == (end->is_send != 0))
            continue;
        /* A sender of placed data that waits for the receiver's entry does not wait for n_moved. */
        if (!end->is_known)
            wait->answer = GYRE_PEER_END_UNKNOWN;
        else if (position->waits_for != GYRE_WAIT_ENTRY && end->n_moved > position->slot)
            wait->answer = GYRE_PEER_END_MOVED;
        else
            wait->answer = end->is_held ? GYRE_PEER_END_HELD : GYRE_PEER_END_FREE;
        wait->peer_worker = end->worker;
        wait->n_peer_moved = end->n_moved;
    }
}

static void print_place(FILE *file, const struct gyre_health_place *place)
{
    char call[160] = "a call that is no longer on record, because many were made after it";
    if (place->call.sequence != 0)
        gyre_record_text(&place->call, call, sizeof(call));
    if (place->is_waiting != 0)
        fprintf(file, "waits in %s\n", call);
    else if (place->call.sequence != 0)
        fprintf(file, "waits in no call; the latest was %s\n", call);
    else
        fputs("has made no call\n", file);
}

static void print_wait(FILE *file, const struct gyre_health_wait *wait)
{
    char line[LINE_BYTES] = "";
    gyre_health_wait_text(wait, line, sizeof(line));
    fprintf(file, "    %s\n", line);
}

static void print_rest(FILE *file, const struct gyre_health_waits *waits, uint32_t n_printed,
                       bool is_waiting)
{
    if (waits->n_all > n_printed)
        fprintf(file, "    and %u more workers\n", waits->n_all - n_printed);
    else if (is_waiting && !waits->has_begun)
        fputs("    the call has not begun: other work is ahead of it on its stream\n", file);
    else if (is_waiting && !waits->is_known)
        fputs("    the position in the program is not known on this device\n", file);
}

/* the most likely cause of a standstill first */
enum state { IS_THIS_RANK, HAS_GONE, IS_SILENT, WAITS_IN_NO_CALL, WAITS_IN_A_CALL, N_STATES };

static enum state state_of(const struct gyre_health *health, int rank)
{
    const struct gyre_health_peer *peer = &health->peers[rank];
    if (rank == health->comm->self.rank)
        return IS_THIS_RANK;
    if (health->has_left[rank])
        return HAS_GONE;
    if (peer->waits == NULL || peer->waits_ns < health->dump.started_ns)
        return IS_SILENT;
    return peer->place.is_waiting != 0 ? WAITS_IN_A_CALL : WAITS_IN_NO_CALL;
}

static void print_rank(FILE *file, struct gyre_health *health, int rank)
{
    const struct gyre_health_peer *peer = &health->peers[rank];
    char name[GYRE_RANK_NAME_BYTES];
    fprintf(file, "  %s ", gyre_health_rank_name(health, rank, name));
    switch (state_of(health, rank)) {
    case IS_THIS_RANK: {
        /* More workers than a message holds. */
        struct gyre_executor *executor = health->comm->executor;
        GYRE_FREED struct gyre_position *positions = malloc(MAX_OWN * sizeof(*positions));
        struct gyre_health_place place;
        uint32_t n = 0;
        uint32_t n_printed = 0;
        gyre_health_place_of(health, &place);
        print_place(file, &place);
        if (positions != NULL && executor != NULL &&
            executor->ops->positions(executor, positions, MAX_OWN, &n) == GYRE_SUCCESS) {
            for (; n_printed < n && n_printed < MAX_OWN; n_printed++) {
                const struct gyre_position *position = &positions[n_printed];
                const struct gyre_health_wait wait = {
                    .position = *position,
                    .transport = health->comm->links.transport_of[position->peer]};
                print_wait(file, &wait);
            }
            health->waits.n_all = n;
        }
        print_rest(file, &health->waits, n_printed, place.is_waiting != 0);
    } break;
    case HAS_GONE:
        fputs(health->was_lost[rank] ? "has died\n" : "has left\n", file);
        break;
    case IS_SILENT:
        fputs("does not answer\n", file);
        break;
    default:
        print_place(file, &peer->place);
        for (uint16_t i = 0; i < peer->waits->n_waits; i++)
            print_wait(file, &peer->waits->waits[i]);
        print_rest(file, peer->waits, peer->waits->n_waits, peer->place.is_waiting != 0);
        break;
    }
}

static char *print_all(struct gyre_health *health, uint64_t now_ns)
{
    const struct gyre_rank *self = &health->comm->self;
    struct gyre_record waiting;
    char why[GYRE_HEALTH_WHY_BYTES] = "";
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    if (file == NULL)
        return NULL;
    fprintf(file, "gyre: positions of %d ranks, as rank %d sees them\n", self->n_ranks, self->rank);
    for (int rank = 0; rank < self->n_ranks && self->n_ranks <= MAX_RANKS; rank++)
        print_rank(file, health, rank);
    if (self->n_ranks > MAX_RANKS) {
        static const char *const words[N_STATES] = {
            [HAS_GONE] = "have left or died",
            [IS_SILENT] = "do not answer",
            [WAITS_IN_NO_CALL] = "wait in no call",
            [WAITS_IN_A_CALL] = "wait in a call",
        };
        int n_printed = 0;
        for (int state = 0; state < N_STATES; state++) {
            int n_left_out = 0;
            for (int rank = 0; rank < health->comm->self.n_ranks; rank++) {
                if ((int)state_of(health, rank) != state)
                    continue;
                if (n_printed < MAX_RANKS) {
                    print_rank(file, health, rank);
                    n_printed++;
                } else {
                    n_left_out++;
                }
            }
            if (n_left_out > 0)
                fprintf(file, "  and %d more ranks %s\n", n_left_out, words[state]);
        }
    }
    gyre_health_waiting_call(health, &waiting);
    if (health->waits.n_waits > 0)
        (void)gyre_health_explain(health, &waiting, now_ns, why, sizeof(why));
    if (why[0] != '\0')
        fprintf(file, "  chain of waits: %s\n", why);
    return gyre_text_finish(file, &text) ? text : NULL;
}

void gyre_health_check_dump(struct gyre_health *health)
{
    const struct gyre_health_message where = {.kind = GYRE_HEALTH_WHERE};
    pthread_mutex_lock(&health->lock);
    const bool is_wanted = health->dump.is_wanted && health->dump.text == NULL;
    pthread_mutex_unlock(&health->lock);
    if (!is_wanted) {
        health->dump.started_ns = 0;
        return;
    }
    const uint64_t now_ns = gyre_now_ns();
    if (health->dump.started_ns == 0) {
        health->dump.started_ns = now_ns;
        gyre_health_look(health);
        gyre_health_post(health, -1, &where, 0);
    }
    bool have_all_answered = true;
    for (int rank = 0; rank < health->comm->self.n_ranks; rank++)
        have_all_answered =
            have_all_answered && (rank == health->comm->self.rank || health->has_left[rank] ||
                                  health->peers[rank].waits_ns >= health->dump.started_ns);
    if (!have_all_answered && now_ns - health->dump.started_ns < ANSWER_NS)
        return;
    GYRE_FREED char *text = print_all(health, now_ns);
    health->dump.started_ns = 0;
    GYRE_LOCKED(&health->lock);
    if (health->dump.is_wanted && text != NULL) {
        health->dump.text = text;
        text = NULL;
    }
    pthread_cond_broadcast(&health->changed);
}

gyre_status gyre_health_dump(struct gyre_health *health, char **text_out)
{
    struct gyre_bootstrap *bootstrap = health->comm->self.bootstrap;
    const uint64_t deadline_ns = gyre_now_ns() + PATIENCE_NS;
    GYRE_LOCKED(&health->lock);
    while (health->dump.is_wanted && gyre_now_ns() < deadline_ns) /* another thread asks */
        gyre_cond_wait_until(&health->changed, &health->lock, deadline_ns);
    if (health->dump.is_wanted)
        return gyre_fail(GYRE_ERROR_TIMEOUT,
                         "another thread has been asking for positions for 3 s");
    health->dump.is_wanted = true;
    bootstrap->ops->wake(bootstrap);
    while (health->dump.text == NULL && gyre_now_ns() < deadline_ns)
        gyre_cond_wait_until(&health->changed, &health->lock, deadline_ns);
    char *text = health->dump.text;
    health->dump.text = NULL;
    health->dump.is_wanted = false;
    pthread_cond_broadcast(&health->changed);
    if (text == NULL)
        return gyre_fail(GYRE_ERROR_TIMEOUT,
                         "the health thread of rank %d has printed no positions for 3 s: the "
                         "rendezvous is gone, or this process has no memory or time for it",
                         health->comm->self.rank);
    *text_out = text;
    return GYRE_SUCCESS;
}
