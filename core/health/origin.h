/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the ranks of a split or shrunk communicator (the child) come from. Failures name a child's
 * rank together with its rank in the parent, and the parent's links tell of deaths that the child's
 * rendezvous cannot know of: those of ranks that had not joined it yet.
 */
#ifndef GYRE_HEALTH_ORIGIN_H
#define GYRE_HEALTH_ORIGIN_H

#include "core/links/links.h"

#include <stdbool.h>
#include <stdint.h>

#define GYRE_RANK_NAME_BYTES 192

enum gyre_origin_kind { GYRE_ORIGIN_SPLIT, GYRE_ORIGIN_SHRUNK };

/* One rank of the child, as the parent knows it. */
struct gyre_origin_member {
    int parent_rank;
    uint32_t pid;
    char host_name[64];
};

/* Held by the child and by its parent's health; whoever lets go last frees it. */
struct gyre_origin {
    struct gyre_origin *next; /* in the parent's list; under the lock of the parent's health */
    enum gyre_origin_kind kind;
    int n_ranks;
    pthread_mutex_t lock;
    int n_holders;                       /* under lock, as what follows */
    struct gyre_fault *fault;            /* the child's while it is being made, then NULL */
    bool is_joining;                     /* its ranks have not all come to its rendezvous */
    char word[GYRE_CAUSE_MAX_BYTES];     /* see gyre_origin_word(); "" = nothing */
    struct gyre_origin_member members[]; /* by rank of the child */
};

/* Where a child comes from. */
struct gyre_origin_config {
    enum gyre_origin_kind kind;
    const struct gyre_peer_info *infos; /* by rank of the parent */
    const int *parent_ranks;            /* by rank of the child */
    int n_ranks;                        /* of the child */
    struct gyre_fault *fault;           /* the child's */
};

/** gyre_origin_open - the origin of a child that is about to be made. Once the parent's health
 * watches it (gyre_health_watch_child), and until gyre_origin_set_made(), a failure of the parent
 * that concerns the child is the child's: a death among its ranks and, in a split whose ranks have
 * not all joined, any failure. It has two holders. Errors: OUT_OF_MEMORY. */
gyre_status gyre_origin_open(const struct gyre_origin_config *config,
                             struct gyre_origin **origin_out);

/** gyre_origin_set_joined - all ranks have come to the child's rendezvous. @origin: or NULL. */
void gyre_origin_set_joined(struct gyre_origin *origin);

/** gyre_origin_set_made - the making has ended, well or not. @origin: or NULL. */
void gyre_origin_set_made(struct gyre_origin *origin);

/** gyre_origin_release - a holder lets go. @origin: or NULL. */
void gyre_origin_release(struct gyre_origin *origin);

/** gyre_origin_is_alone - has the child let go? */
bool gyre_origin_is_alone(struct gyre_origin *origin);

/** gyre_origin_tell - the parent's health: the parent failed.
 * @lost_rank: of the parent, which died; -1 = none did. @how: it died. @text: why the parent
 * failed, in its ranks. */
void gyre_origin_tell(struct gyre_origin *origin, int lost_rank, const char *how, const char *text);

/** gyre_origin_word - what ended the parent, in words about the child's ranks; false if nothing
 * did. @origin: or NULL. @word_out: GYRE_CAUSE_MAX_BYTES. */
bool gyre_origin_word(struct gyre_origin *origin, char *word_out);

/** gyre_rank_name - "rank 1 (hostB pid 77)"; of a child "rank 1 of the split communicator (rank 3
 * of its parent, hostB pid 77)". @name_out: GYRE_RANK_NAME_BYTES. Returns name_out. */
const char *gyre_rank_name(const struct gyre_origin *origin, const struct gyre_peer_info *infos,
                           int rank, char *name_out);

/** gyre_origin_settle - set-up failed on this rank, perhaps only because another rank gave up for a
 * cause of its own: wait at most 200 ms for the word of the rendezvous, or of the parent, about who
 * died. The thread's cause becomes that; returns the status. Before health watches. */
gyre_status gyre_origin_settle(struct gyre_member *member, struct gyre_origin *origin,
                               gyre_status status);

#endif
