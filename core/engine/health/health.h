/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator's thread that learns which ranks died, notices that a call makes no progress and
 * says which rank holds it up.
 */
#ifndef GYRE_HEALTH_HEALTH_H
#define GYRE_HEALTH_HEALTH_H

#include "core/engine/comm.h"
#include "core/engine/health/origin.h"

struct gyre_health;

/* Signals that a leaving rank waits for. Sent to ranks: fixed layout. */
struct gyre_health_blocked {
    uint64_t n_ended; /* as in struct gyre_blocked; 0 = the rank has said nothing */
    uint32_t n_senders;
    uint32_t pad;
    struct {
        uint64_t seen_ended; /* the sender's n_ended if all its earlier signals had come when the
                              * rank found that it waits; else 0 */
        uint32_t rank;
        uint32_t pad;
    } senders[GYRE_BLOCKED_SENDERS];
};

gyre_status gyre_health_open(gyre_comm *comm, struct gyre_health **health_out);

/** Compare the call with peers' questions. Any thread. */
void gyre_health_posted(struct gyre_health *health, const struct gyre_record *record);

/** Tell the other ranks once of this rank's failure, if any. Any thread, before the rank leaves. */
void gyre_health_pass_on(struct gyre_health *health);

/** Had all works of this rank ended when another rank ended the communicator? Captured and
 * one-sided calls are no such works. */
bool gyre_health_is_unharmed(const struct gyre_health *health);

/** Tell the origin, which the health then holds, past and future failures. */
void gyre_health_watch_child(struct gyre_health *health, struct gyre_origin *origin);

/** Also true of a lost rank. */
bool gyre_health_has_left(struct gyre_health *health, int rank);

/** Until every other rank has left, was lost or is silent for 3.5 s. */
void gyre_health_wait_left(struct gyre_health *health, uint64_t deadline_ns);

/** Any thread; asks the other ranks and waits at most 3 s. @text_out: malloc'ed. Errors: TIMEOUT
 * (nothing could be printed). */
gyre_status gyre_health_dump(struct gyre_health *health, char **text_out);

/** Tell all ranks what this leaving rank waits for. */
void gyre_health_tell_blocked(struct gyre_health *health,
                              const struct gyre_health_blocked *blocked);

/** What a rank told last. Any thread. */
struct gyre_health_blocked gyre_health_blocked_of(struct gyre_health *health, int rank);

void gyre_health_close(struct gyre_health *health);

#endif
