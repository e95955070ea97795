/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator's thread that learns which ranks died, notices that a call makes no progress and
 * says which rank holds it up.
 */
#ifndef GYRE_HEALTH_HEALTH_H
#define GYRE_HEALTH_HEALTH_H

#include "core/engine/comm.h"
#include "core/engine/links/links.h"

#include <stdbool.h>
#include <stdint.h>

/* Which ranks of the parent a split or shrunk communicator's ranks are. Messages name both numbers,
 * and the parent's links report deaths while the child is made. */

#define GYRE_RANK_NAME_BYTES 192

enum gyre_origin_kind { GYRE_ORIGIN_SPLIT, GYRE_ORIGIN_SHRUNK };

struct gyre_origin_member {
    int parent_rank;
    uint32_t pid;
    char host_name[64];
};

/* Its holders are the child and its parent's health; the last one frees it. */
struct gyre_origin {
    struct gyre_origin *next; /* under the lock of the parent's health */
    enum gyre_origin_kind kind;
    int n_ranks;
    pthread_mutex_t lock;
    int n_holders;                       /* under lock, as are all fields below */
    struct gyre_fault *fault;            /* the child's while it is being made, then NULL */
    bool is_joining;                     /* its ranks have not all come to its rendezvous */
    char word[GYRE_CAUSE_MAX_BYTES];     /* of gyre_origin_word(); "" = nothing */
    struct gyre_origin_member members[]; /* by rank of the child */
};

struct gyre_origin_config {
    enum gyre_origin_kind kind;
    const struct gyre_peer_info *infos; /* by rank of the parent */
    const int *parent_ranks;            /* by rank of the child */
    int n_ranks;
    struct gyre_fault *fault;
};

/** Before the child is made. It has two holders: the child and the parent's health
 * (gyre_health_watch_child). Until gyre_origin_set_made() the child's fault is raised by the death
 * of one of its ranks, and in a split whose ranks have not all joined by every failure of the
 * parent. Errors: OUT_OF_MEMORY. */
gyre_status gyre_origin_open(const struct gyre_origin_config *config,
                             struct gyre_origin **origin_out);

/** All ranks have come to the child's rendezvous. @origin: or NULL. */
void gyre_origin_set_joined(struct gyre_origin *origin);

/** Set-up has ended or failed. @origin: or NULL. */
void gyre_origin_set_made(struct gyre_origin *origin);

/** A holder gives it up. @origin: or NULL. */
void gyre_origin_release(struct gyre_origin *origin);

/** Has the child released it? */
bool gyre_origin_is_alone(struct gyre_origin *origin);

/** @lost_rank: of the parent, -1 = none died. @how: why it died. @text: why the parent failed, with
 * its rank numbers. */
void gyre_origin_tell(struct gyre_origin *origin, int lost_rank, const char *how, const char *text);

/** Why the parent failed, with the child's rank numbers; false = it did not. @origin: or NULL.
 * @word_out: GYRE_CAUSE_MAX_BYTES. */
bool gyre_origin_word(struct gyre_origin *origin, char *word_out);

/** "rank 1 (hostB pid 77)"; of a child "rank 1 of the split communicator (rank 3 of its parent,
 * hostB pid 77)". @name_out: GYRE_RANK_NAME_BYTES. Returns name_out. */
const char *gyre_rank_name(const struct gyre_origin *origin, const struct gyre_peer_info *infos,
                           int rank, char *name_out);

/** After a failed set-up, perhaps only because another rank gave up: waits at most 200 ms for the
 * report of a death. Returns the status. Before the health thread runs. */
gyre_status gyre_origin_settle(struct gyre_rank *self, struct gyre_origin *origin,
                               gyre_status status);

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
