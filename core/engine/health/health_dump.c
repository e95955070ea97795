/* SPDX-License-Identifier: Apache-2.0
 *
 * The positions of all ranks as text. Any thread may ask for them at any time. The asking thread
 * hands its request to the health thread, which asks all ranks and prints their answers, because
 * only the health thread reads the messages of other ranks.
 */
#include "core/engine/health/watch.h"

#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_NS   1000000000ULL /* for the other ranks to answer */
#define PATIENCE_NS 3000000000ULL /* for the health thread to print */
#define LINE_BYTES  512
#define MAX_OWN     256 /* workers of this rank that are printed */
#define MAX_RANKS   16 /* ranks that are printed. All n ranks of a job may print at the same time */

/* ---- printing ------------------------------------------------------------------------------ */

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

/* Print how many more workers have not finished. @n_printed: the workers that were printed. */
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

/* Print this rank's workers. There may be more of them than a message holds. */
static void print_own(FILE *file, struct gyre_health *health)
{
    struct gyre_executor *executor = health->caller->executor;
    struct gyre_position *positions = malloc(MAX_OWN * sizeof(*positions));
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
                .position = *position, .transport = health->links->transport_of[position->peer]};
            print_wait(file, &wait);
        }
        health->waits.n_all = n;
    }
    print_rest(file, &health->waits, n_printed, place.is_waiting != 0);
    free(positions);
}

static void print_other(FILE *file, const struct gyre_health *health, int rank)
{
    const struct gyre_health_peer *peer = &health->peers[rank];
    if (health->has_left[rank]) {
        fputs(health->was_lost[rank] ? "has died\n" : "has left\n", file);
        return;
    }
    if (peer->waits == NULL || peer->waits_ns < health->dump.started_ns) {
        fputs("does not answer\n", file);
        return;
    }
    print_place(file, &peer->place);
    for (uint16_t i = 0; i < peer->waits->n_waits; i++)
        print_wait(file, &peer->waits->waits[i]);
    print_rest(file, peer->waits, peer->waits->n_waits, peer->place.is_waiting != 0);
}

static void print_why(FILE *file, struct gyre_health *health, uint64_t now_ns)
{
    struct gyre_record waiting;
    char why[GYRE_HEALTH_WHY_BYTES];
    gyre_health_waiting_call(health, &waiting);
    if (health->waits.n_waits == 0)
        return;
    (void)gyre_health_explain(health, &waiting, now_ns, why, sizeof(why));
    if (why[0] != '\0')
        fprintf(file, "  chain of waits: %s\n", why);
}

/* The states of ranks, the one that most likely explains a standstill first. */
enum state { IS_THIS_RANK, HAS_GONE, IS_SILENT, WAITS_IN_NO_CALL, WAITS_IN_A_CALL, N_STATES };

static enum state state_of(const struct gyre_health *health, int rank)
{
    const struct gyre_health_peer *peer = &health->peers[rank];
    if (rank == health->member->rank)
        return IS_THIS_RANK;
    if (health->has_left[rank])
        return HAS_GONE;
    if (peer->waits == NULL || peer->waits_ns < health->dump.started_ns)
        return IS_SILENT;
    return peer->place.is_waiting != 0 ? WAITS_IN_A_CALL : WAITS_IN_NO_CALL;
}

static void print_rank(FILE *file, struct gyre_health *health, int rank)
{
    char name[GYRE_RANK_NAME_BYTES];
    fprintf(file, "  %s ", gyre_health_rank_name(health, rank, name));
    if (rank == health->member->rank)
        print_own(file, health);
    else
        print_other(file, health, rank);
}

/* Print MAX_RANKS ranks in the order of their states, and count the other ones. */
static void print_most_useful(FILE *file, struct gyre_health *health)
{
    static const char *const words[N_STATES] = {
        [HAS_GONE] = "have left or died",
        [IS_SILENT] = "do not answer",
        [WAITS_IN_NO_CALL] = "wait in no call",
        [WAITS_IN_A_CALL] = "wait in a call",
    };
    int n_printed = 0;
    for (int state = 0; state < N_STATES; state++) {
        int n_left_out = 0;
        for (int rank = 0; rank < health->member->n_ranks; rank++) {
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

static char *print_all(struct gyre_health *health, uint64_t now_ns)
{
    const struct gyre_member *member = health->member;
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    if (file == NULL)
        return NULL;
    fprintf(file, "gyre: positions of %d ranks, as rank %d sees them\n", member->n_ranks,
            member->rank);
    for (int rank = 0; rank < member->n_ranks && member->n_ranks <= MAX_RANKS; rank++)
        print_rank(file, health, rank);
    if (member->n_ranks > MAX_RANKS)
        print_most_useful(file, health);
    print_why(file, health, now_ns);
    const bool is_whole = ferror(file) == 0;
    if (fclose(file) == 0 && is_whole)
        return text;
    free(text);
    return NULL;
}

/* ---- the health thread ---------------------------------------------------------------------- */

static bool is_wanted(struct gyre_health *health)
{
    pthread_mutex_lock(&health->lock);
    const bool is_wanted = health->dump.is_wanted && health->dump.text == NULL;
    pthread_mutex_unlock(&health->lock);
    return is_wanted;
}

static bool have_all_answered(const struct gyre_health *health)
{
    for (int rank = 0; rank < health->member->n_ranks; rank++)
        if (rank != health->member->rank && !health->has_left[rank] &&
            health->peers[rank].waits_ns < health->dump.started_ns)
            return false;
    return true;
}

void gyre_health_check_dump(struct gyre_health *health)
{
    struct gyre_bootstrap *bootstrap = health->member->bootstrap;
    const struct gyre_health_message where = {.kind = GYRE_HEALTH_WHERE};
    if (!is_wanted(health)) {
        health->dump.started_ns = 0;
        return;
    }
    const uint64_t now_ns = gyre_now_ns();
    if (health->dump.started_ns == 0) {
        health->dump.started_ns = now_ns;
        gyre_health_look(health);
        bootstrap->ops->post(bootstrap, -1, &where, offsetof(struct gyre_health_message, records));
    }
    if (!have_all_answered(health) && now_ns - health->dump.started_ns < ANSWER_NS)
        return;
    char *text = print_all(health, now_ns);
    health->dump.started_ns = 0;
    pthread_mutex_lock(&health->lock);
    if (health->dump.is_wanted && text != NULL) {
        health->dump.text = text;
        text = NULL;
    }
    pthread_cond_broadcast(&health->changed);
    pthread_mutex_unlock(&health->lock);
    free(text);
}

/* ---- the thread that asks ------------------------------------------------------------------- */

gyre_status gyre_health_dump(struct gyre_health *health, char **text_out)
{
    struct gyre_bootstrap *bootstrap = health->member->bootstrap;
    const uint64_t deadline_ns = gyre_now_ns() + PATIENCE_NS;
    pthread_mutex_lock(&health->lock);
    while (health->dump.is_wanted && gyre_now_ns() < deadline_ns) /* another thread asks */
        gyre_cond_wait_until(&health->changed, &health->lock, deadline_ns);
    if (health->dump.is_wanted) {
        pthread_mutex_unlock(&health->lock);
        return gyre_fail(GYRE_ERROR_TIMEOUT,
                         "another thread has been asking for positions for 3 s");
    }
    health->dump.is_wanted = true;
    bootstrap->ops->wake(bootstrap);
    while (health->dump.text == NULL && gyre_now_ns() < deadline_ns)
        gyre_cond_wait_until(&health->changed, &health->lock, deadline_ns);
    char *text = health->dump.text;
    health->dump.text = NULL;
    health->dump.is_wanted = false;
    pthread_cond_broadcast(&health->changed);
    pthread_mutex_unlock(&health->lock);
    if (text == NULL)
        return gyre_fail(GYRE_ERROR_TIMEOUT,
                         "the health thread of rank %d has printed no positions for 3 s: the "
                         "rendezvous is gone, or this process has no memory or time for it",
                         health->member->rank);
    *text_out = text;
    return GYRE_SUCCESS;
}
