/* SPDX-License-Identifier: Apache-2.0
 *
 * When a call makes no progress, or a thread asks for a dump, ranks tell each other where their
 * workers are. A rank whose worker waits for a slot first asks the rank at the other end of the
 * connection how many slots that end has moved. So the rank that explains the stall learns which
 * rank waits for which other rank, and also whether a slot was sent and did not arrive. Each
 * message has a fixed greatest size, and the number of messages that a stalled rank sends a second
 * does not grow with the number of ranks.
 */
#include "core/engine/health/watch.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

/* ---- this rank ----------------------------------------------------------------------------- */

/* Does the worker wait at the sending end of its connection? */
static bool waits_as_sender(const struct gyre_position *position)
{
    return position->waits_for == GYRE_WAIT_CREDIT || position->waits_for == GYRE_WAIT_ENTRY;
}

static bool waits_at_end(const struct gyre_position *position)
{
    return position->waits_for == GYRE_WAIT_SLOT || waits_as_sender(position);
}

static bool is_same_wait(const struct gyre_position *a, const struct gyre_position *b)
{
    return a->peer == b->peer && a->fifo == b->fifo && a->slot == b->slot &&
           a->waits_for == b->waits_for && a->is_lines == b->is_lines;
}

/* Keep the answers of peers about waits that still go on. */
static void keep_answers(const struct gyre_health_waits *before, struct gyre_health_waits *waits)
{
    for (uint16_t i = 0; i < waits->n_waits; i++) {
        struct gyre_health_wait *wait = &waits->waits[i];
        for (uint16_t j = 0; j < before->n_waits; j++) {
            const struct gyre_health_wait *old = &before->waits[j];
            if (!waits_at_end(&wait->position) || !is_same_wait(&wait->position, &old->position))
                continue;
            wait->answer = old->answer;
            wait->peer_worker = old->peer_worker;
            wait->n_peer_moved = old->n_peer_moved;
        }
    }
}

void gyre_health_look(struct gyre_health *health)
{
    struct gyre_executor *executor = health->caller->executor;
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
            waits.waits[i].transport = health->links->transport_of[positions[i].peer];
        }
        keep_answers(&health->waits, &waits);
    } else {
        const struct gyre_progress progress = executor->ops->progress(executor);
        waits.n_all = 0;
        waits.has_begun = progress.activity > progress.completed;
    }
    health->waits = waits;
}

/* ---- telling and asking --------------------------------------------------------------------- */

static void post(struct gyre_health *health, int rank, const struct gyre_health_message *message,
                 size_t body_bytes)
{
    struct gyre_bootstrap *bootstrap = health->member->bootstrap;
    bootstrap->ops->post(bootstrap, rank, message,
                         offsetof(struct gyre_health_message, records) + body_bytes);
}

static void ask_about_ends(struct gyre_health *health)
{
    const struct gyre_health_waits *waits = &health->waits;
    for (uint16_t i = 0; i < waits->n_waits; i++) {
        const struct gyre_position *position = &waits->waits[i].position;
        struct gyre_health_message message = {.kind = GYRE_HEALTH_END_ASK};
        if (!waits_at_end(position))
            continue;
        message.end = (struct gyre_health_end){
            .slot = position->slot,
            .fifo = position->fifo,
            .is_send = !waits_as_sender(position),
            .is_lines = position->is_lines,
        };
        post(health, position->peer, &message, sizeof(message.end));
    }
}

static void tell(struct gyre_health *health, int rank)
{
    struct gyre_health_message message = {.kind = GYRE_HEALTH_WAITS};
    gyre_health_place_of(health, &message.place);
    message.waits = health->waits;
    post(health, rank, &message,
         offsetof(struct gyre_health_waits, waits) +
             health->waits.n_waits * sizeof(struct gyre_health_wait));
}

int gyre_health_explainer(const struct gyre_health *health, uint64_t now_ns)
{
    for (int rank = 0; rank < health->member->rank; rank++) {
        const uint64_t asked_ns = health->peers[rank].asked_ns;
        if (asked_ns != 0 && !health->has_left[rank] &&
            now_ns - asked_ns < gyre_health_silence_limit_ns(health, now_ns))
            return rank;
    }
    return health->member->rank;
}

void gyre_health_share_waits(struct gyre_health *health, uint64_t now_ns)
{
    const int explainer = gyre_health_explainer(health, now_ns);
    gyre_health_look(health);
    if (explainer != health->member->rank)
        tell(health, explainer);
    ask_about_ends(health);
}

void gyre_health_tell_waits(struct gyre_health *health, int rank)
{
    gyre_health_look(health);
    tell(health, rank);
}

/* ---- messages of other ranks ---------------------------------------------------------------- */

/* Make a peer's text safe to print: terminate it and replace control characters. */
static void clean(char *text, size_t text_bytes)
{
    text[text_bytes - 1] = '\0';
    for (char *at = text; *at != '\0'; at++)
        if (!gyre_text_is_printable(*at))
            *at = '?';
}

static bool is_transport(uint8_t index)
{
    for (uint8_t i = 0; gyre_transports[i] != NULL; i++)
        if (i == index)
            return true;
    return false;
}

static bool is_wait(const struct gyre_health *health, const struct gyre_health_wait *wait)
{
    return wait->position.peer < health->member->n_ranks &&
           wait->position.waits_for < GYRE_N_WAITS && wait->position.coll < GYRE_N_COLLECTIVES &&
           wait->answer < GYRE_N_PEER_ENDS && is_transport(wait->transport);
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
        if (!is_wait(health, &waits->waits[i]))
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
    struct gyre_executor *executor = health->caller->executor;
    struct gyre_health_message reply = {.kind = GYRE_HEALTH_END_ANSWER};
    struct gyre_end_state state;
    if (n_bytes != offsetof(struct gyre_health_message, end) + sizeof(message->end) ||
        executor == NULL)
        return;
    const struct gyre_end_name name = {(uint32_t)rank, message->end.fifo, message->end.is_send != 0,
                                       message->end.is_lines != 0};
    reply.end = message->end;
    reply.end.is_known = executor->ops->end_state(executor, &name, &state) == GYRE_SUCCESS;
    if (reply.end.is_known) {
        reply.end.n_moved = state.n_moved;
        reply.end.is_held = state.is_held;
        reply.end.worker = (struct gyre_wait_worker){state.work, state.channel, state.worker, 0};
    }
    post(health, rank, &reply, sizeof(reply.end));
}

/* A sender of placed data that waits until the receiver enters the call (GYRE_WAIT_ENTRY) does not
 * wait for the count of moved slots, so n_moved says nothing about that wait. */
static enum gyre_peer_end answer_of(const struct gyre_position *position,
                                    const struct gyre_health_end *end)
{
    if (!end->is_known)
        return GYRE_PEER_END_UNKNOWN;
    if (position->waits_for != GYRE_WAIT_ENTRY && end->n_moved > position->slot)
        return GYRE_PEER_END_MOVED;
    return end->is_held ? GYRE_PEER_END_HELD : GYRE_PEER_END_FREE;
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
        wait->answer = (uint8_t)answer_of(position, end);
        wait->peer_worker = end->worker;
        wait->n_peer_moved = end->n_moved;
    }
}
