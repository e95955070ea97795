/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of health share: health.c has the thread, its messages and the comparison of
 * calls; health_stall.c notices that a call makes no progress and asks the other ranks;
 * health_culprits.c says which ranks hold the call up.
 */
#ifndef GYRE_COMM_HEALTH_H
#define GYRE_COMM_HEALTH_H

#include "core/comm/comm.h"

#include <stddef.h>

#define GYRE_HEALTH_MAX_ASKED 16 /* calls sent at once */
#define GYRE_HEALTH_WORKS     4096
#define GYRE_HEALTH_WHO_BYTES 640 /* of a text that names ranks */

enum gyre_health_kind {
    GYRE_HEALTH_ASK,    /* my unfinished calls, and those before them; do yours fit? */
    GYRE_HEALTH_ANSWER, /* where I am */
    GYRE_HEALTH_END,    /* this communicator ends here, and why */
    GYRE_HEALTH_ECHO    /* to the sender itself: does the rendezvous still pass messages on? */
};

/* Where a rank is. */
struct gyre_health_place {
    uint64_t n_collectives;  /* called so far */
    uint32_t is_waiting;     /* in `call`; else that is the latest one it called */
    uint32_t is_behind;      /* ANSWER: has not come to a call that it was asked about */
    struct gyre_record call; /* sequence 0 = none, or not on record any more */
};

struct gyre_health_message {
    uint32_t kind;
    uint32_t status; /* END: the failure */
    uint32_t n_records;
    uint32_t pad;
    struct gyre_health_place place; /* ASK, ANSWER */
    union {
        struct gyre_record records[GYRE_HEALTH_MAX_ASKED];
        char text[GYRE_CAUSE_MAX_BYTES];
    };
};

_Static_assert(sizeof(struct gyre_health_message) <= GYRE_MESSAGE_MAX_BYTES,
               "fits a bootstrap message");

/* What this rank knows of another one, or of itself through the rendezvous. The watcher's own. */
struct gyre_health_peer {
    uint64_t heard_ns;  /* the latest message came; 0 = none yet */
    uint64_t behind_ns; /* it said so; 0 = never */
    uint64_t left_ns;   /* its goodbye, or the news of its death, was read; 0 = not yet */
    struct gyre_health_place place;
};

/* What a peer asked about and this rank has not called yet. */
struct gyre_health_question {
    int rank;
    struct gyre_record record;
};

struct gyre_health {
    gyre_comm *comm;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stops;                   /* under lock */
    bool is_leaving;              /* under lock: this rank has left and waits for the others */
    bool is_alone;                /* under lock: no goodbye that is still missing will come */
    bool *has_left;               /* by rank: said goodbye or was lost; written by the watcher */
    bool *was_lost;               /* likewise: was lost */
    struct gyre_origin *children; /* under lock */
    struct gyre_health_question *questions;
    uint32_t n_questions; /* under lock; release, for a look without it */
    uint32_t max_questions;
    uint64_t record_of_work[GYRE_HEALTH_WORKS]; /* by the caller's thread, release/acquire */
    uint32_t has_told; /* 1: peers know of the failure; written by whoever raises it */

    /* The watcher's own. */
    bool has_told_children;
    struct gyre_health_peer *peers; /* by rank */
    uint8_t *standings;             /* by rank: room for a message that is being made */
    uint64_t checked_ns;            /* the latest look at the progress */
    uint64_t resumed_ns;            /* this process ran again after it was stopped; 0 = never */
    uint64_t left_self_ns;          /* this rank began to wait for the others' goodbyes; 0 = no */
    uint64_t seen_progress;
    uint64_t seen_completed;
    uint64_t still_since_ns;
    uint64_t started_ns;    /* when the first unfinished work became it */
    uint64_t asked_ns;      /* the latest question; 0 = this stall has none */
    uint64_t asks_since_ns; /* the first of the questions that are asked at regular intervals */
    uint64_t late_ns; /* the time limit was passed, and everybody had time to answer; 0 = no */
    bool has_warned;
};

/** gyre_health_fail - raise the communicator's fault.
 * @prints: one line a job, not one a rank: whoever finds a failure that others hear of prints. */
void gyre_health_fail(struct gyre_health *health, gyre_status status, const char *text,
                      bool prints);

/** gyre_health_end - tell all peers that the communicator ends here. */
void gyre_health_end(const gyre_comm *comm, gyre_status status, const char *text);

/** gyre_health_is_record - may a record that came from a peer be read? */
bool gyre_health_is_record(const struct gyre_record *record);

/** gyre_health_stop_waiting - wake gyre_health_wait_left(): no goodbye that is missing will come.
 */
void gyre_health_stop_waiting(struct gyre_health *health);

/* ---- health_stall.c ----------------------------------------------------------------------- */

/** gyre_health_call_text - what this rank was doing, for messages. Any thread. */
void gyre_health_call_text(struct gyre_health *health, char *text_out, size_t text_bytes);

/** gyre_health_place_of - where this rank is. */
void gyre_health_place_of(struct gyre_health *health, struct gyre_health_place *place_out);

/** gyre_health_ask_ns - the time between two questions while this rank waits. */
uint64_t gyre_health_ask_ns(const struct gyre_health *health, uint64_t now_ns);

/** gyre_health_check_progress - the watcher, every 100 ms or so: ask, warn and end what takes too
 * long. */
void gyre_health_check_progress(struct gyre_health *health);

/** gyre_health_check_leaving - the watcher, every 100 ms or so, once this rank has left: ask the
 * ranks that have not left whether they still run, and stop waiting for those that do not. */
void gyre_health_check_leaving(struct gyre_health *health);

/** gyre_health_silence_limit_ns - a rank that was asked all the time and sent nothing for so long
 * does not answer. */
uint64_t gyre_health_silence_limit_ns(const struct gyre_health *health, uint64_t now_ns);

/** gyre_health_silent_ns - how long nothing came from a rank although it was asked. For the own
 * rank: how long the rendezvous has not passed on its messages to itself. */
uint64_t gyre_health_silent_ns(const struct gyre_health *health, int rank, uint64_t now_ns);

/** gyre_health_is_silent - has a rank that has not left not answered for longer than the limit? */
bool gyre_health_is_silent(const struct gyre_health *health, int rank, uint64_t now_ns);

/* ---- health_culprits.c -------------------------------------------------------------------- */

/** gyre_health_name_culprits - why a call does not go on: the ranks that do not answer, have left,
 * are behind or wait elsewhere, then the ranks that wait in the same call.
 * @mine: the call that this rank waits in.
 * @who_out: GYRE_HEALTH_WHO_BYTES; what does not fit is cut off. */
void gyre_health_name_culprits(struct gyre_health *health, const struct gyre_record *mine,
                               uint64_t now_ns, char *who_out);

#endif
