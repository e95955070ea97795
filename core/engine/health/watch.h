/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between ranks, the health thread's state, and the waits-for graph of a stalled call.
 */
#ifndef GYRE_HEALTH_WATCH_H
#define GYRE_HEALTH_WATCH_H

#include "core/engine/health/health.h"

#include <stddef.h>

#define GYRE_HEALTH_MAX_ASKED     16  /* calls sent at once */
#define GYRE_HEALTH_WHO_BYTES     640 /* for names of ranks */
#define GYRE_HEALTH_WHY_BYTES     704 /* to explain waits */

#define GYRE_HEALTH_WAITS_VERSION 1
#define GYRE_HEALTH_MAX_WAITS     8 /* workers sent at once */

/* An edge leads from a worker to the worker of another rank that holds the connection's other end.
 * At most one edge leaves a worker, so a walk finds the cause. A worker waits for one slot or its
 * credit, and the rank at the other end (the peer) answers: */
enum gyre_peer_end {
    GYRE_PEER_END_UNKNOWN, /* no answer, or its executor cannot tell */
    GYRE_PEER_END_MOVED,   /* sent or consumed */
    GYRE_PEER_END_HELD,    /* not yet; an unfinished worker uses the connection */
    GYRE_PEER_END_FREE,    /* not yet; no unfinished worker uses it */
    GYRE_N_PEER_ENDS
};

/* Sent to ranks: fixed layout. */
struct gyre_wait_worker {
    uint16_t work; /* of the launch */
    uint16_t channel;
    uint16_t worker;
    uint16_t pad;
};

struct gyre_wait_edge {
    int rank;
    int peer; /* awaited rank; -1 = none, its step can run */
    struct gyre_wait_worker worker;
    struct gyre_wait_worker peer_worker; /* HELD: uses the connection */
    enum gyre_peer_end answer;
};

struct gyre_wait_graph {
    int n_ranks;
    const struct gyre_wait_edge *edges; /* in order of ranks */
    const uint32_t
        *first; /* n_ranks + 1 entries: rank r's edges are first[r] to first[r + 1] - 1 */
};

enum gyre_wait_end {
    GYRE_WAIT_ENDS_IN_CYCLE,    /* the last edge leads to edges[cycle_start] of the path */
    GYRE_WAIT_ENDS_RUNNABLE,    /* the last worker waits for nothing */
    GYRE_WAIT_ENDS_MOVED,       /* moved, but not arrived */
    GYRE_WAIT_ENDS_FREE,        /* no worker will move the slot */
    GYRE_WAIT_ENDS_UNEXPLAINED, /* the awaited worker is unknown */
};

struct gyre_wait_path {
    uint32_t n_edges; /* at least 1 */
    uint32_t cycle_start;
    int end_rank; /* awaited, or its worker can run */
    enum gyre_wait_end end;
};

/** Follow the waits from edge `start`. Pure. @edges_out: the path. @places: scratch. Both have as
 * many entries as the graph. */
struct gyre_wait_path gyre_wait_graph_walk(const struct gyre_wait_graph *graph, uint32_t start,
                                           uint32_t *edges_out, uint32_t *places);

/* ---- messages between ranks: fixed layout --------------------------------------------------- */

enum gyre_health_kind {
    GYRE_HEALTH_ASK, /* do your calls fit my unfinished ones and those before? */
    GYRE_HEALTH_ANSWER,
    GYRE_HEALTH_END,   /* the communicator ends here */
    GYRE_HEALTH_ECHO,  /* to the sender itself: does the rendezvous pass messages on? */
    GYRE_HEALTH_WHERE, /* where are your workers? */
    GYRE_HEALTH_WAITS,
    GYRE_HEALTH_END_ASK, /* how far is your end of the connection? */
    GYRE_HEALTH_END_ANSWER,
    GYRE_HEALTH_BLOCKED /* I leave, but wait for these signals */
};

struct gyre_health_place {
    uint64_t n_collectives;
    uint32_t is_waiting;     /* in `call`, else its latest */
    uint32_t is_behind;      /* ANSWER: has not reached a call that it was asked about */
    struct gyre_record call; /* sequence 0 = none */
};

struct gyre_health_wait {
    struct gyre_position position;
    struct gyre_wait_worker peer_worker;
    uint64_t n_peer_moved; /* slots, if the peer answered */
    uint8_t answer;        /* enum gyre_peer_end */
    uint8_t transport;     /* to the peer: index into gyre_transports */
    uint8_t pad[6];
};

struct gyre_health_waits {
    uint16_t version; /* GYRE_HEALTH_WAITS_VERSION */
    uint16_t n_waits;
    uint32_t n_all;    /* `waits` has room for fewer */
    uint8_t is_known;  /* 0: the executor cannot tell */
    uint8_t has_begun; /* 0: the first unfinished launch waits for its stream */
    uint8_t pad[6];
    struct gyre_health_wait waits[GYRE_HEALTH_MAX_WAITS];
};

/* END_ANSWER repeats END_ASK and fills in the rest. */
struct gyre_health_end {
    uint64_t slot;    /* awaited by the asking rank */
    uint64_t n_moved; /* answer: sent or consumed */
    uint32_t fifo;
    uint16_t is_send;  /* 1: the asked rank sends */
    uint16_t is_known; /* answer: 0 = the executor cannot tell */
    uint16_t is_held;  /* answer: 1 = by an unfinished worker */
    uint16_t is_lines; /* as in struct gyre_side_name */
    uint16_t pad[2];
    struct gyre_wait_worker worker; /* answer: holds the end */
};

struct gyre_health_message {
    uint32_t kind;
    uint32_t status; /* END */
    uint32_t n_records;
    uint32_t pad;
    struct gyre_health_place place; /* ASK, ANSWER, WAITS */
    union {
        struct gyre_health_waits waits;
        struct gyre_health_end end;
        struct gyre_health_blocked blocked;
        struct gyre_record records[GYRE_HEALTH_MAX_ASKED];
        char text[GYRE_CAUSE_MAX_BYTES];
    };
};

_Static_assert(sizeof(struct gyre_health_message) <= GYRE_MESSAGE_MAX_BYTES,
               "fits a bootstrap message");

/* Of another rank, or of this rank itself by the rendezvous. The health thread's own; 0 = never. */
struct gyre_health_peer {
    uint64_t heard_ns;
    uint64_t asked_ns; /* by its latest question */
    uint64_t waits_ns;
    uint64_t behind_ns; /* it said that it is behind */
    uint64_t left_ns;   /* its goodbye, or the news of its death */
    struct gyre_health_place place;
    struct gyre_health_waits *waits;     /* NULL = none came */
    struct gyre_health_blocked *blocked; /* likewise; under the health's lock */
};

/* Under the health's lock. */
struct gyre_health_dump {
    bool is_wanted;      /* set and taken back by the waiting thread */
    char *text;          /* malloc'ed by the health thread */
    uint64_t started_ns; /* by the health thread; 0 = not yet */
};

/* For a call that this rank has not made yet. */
struct gyre_health_question {
    int rank;
    struct gyre_record record;
};

struct gyre_health {
    gyre_comm *comm; /* outlives it */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stops;                   /* under lock */
    bool is_leaving;              /* under lock: waits for goodbyes */
    bool is_alone;                /* under lock: no missing goodbye will come */
    bool *has_left;               /* by rank, also if lost; by the health thread */
    bool *was_lost;               /* by rank; by the health thread */
    struct gyre_origin *children; /* under lock */
    struct gyre_health_question *questions;
    uint32_t n_questions; /* under lock; release, for a look without it */
    uint32_t max_questions;
    struct gyre_health_dump dump;
    /* Works launched, plus one, when this rank heard of another's failure and all had ended; else
     * 0. Set before the fault is raised. */
    uint64_t idle_after;

    /* The rest is the health thread's own. */
    bool has_told_children;
    struct gyre_health_waits waits; /* at the latest question */
    struct gyre_health_peer *peers; /* by rank */
    uint8_t *standings;             /* by rank: scratch for a message */
    uint64_t checked_ns;            /* the progress */
    uint64_t resumed_ns;            /* runs, and no rail is missing, since then; 0 = always */
    uint64_t left_self_ns;          /* began to wait for goodbyes; 0 = no */
    uint64_t seen_progress;
    uint64_t seen_completed;
    uint64_t still_since_ns;
    uint64_t started_ns;    /* when the first unfinished work became the first */
    uint64_t asked_ns;      /* latest question; 0 = this stall has none */
    uint64_t asks_since_ns; /* first question of this series; 0 = none */
    uint64_t late_ns;       /* over the time limit, and all ranks had time to answer; 0 = no */
    bool has_warned;
};

enum gyre_health_standing {
    GYRE_STANDS_SILENT,
    GYRE_STANDS_LEFT,
    GYRE_STANDS_BEHIND,
    GYRE_STANDS_ELSEWHERE,
    GYRE_STANDS_DONE,
    GYRE_STANDS_IN_THE_CALL,
    GYRE_N_STANDINGS
};

/* ---- health.c ----------------------------------------------------------------------------- */

/** @rank: -1 = all others. @body_bytes: of the union. */
void gyre_health_post(const struct gyre_health *health, int rank,
                      const struct gyre_health_message *message, size_t body_bytes);

/** @prints: on one rank of the job, which finds the failure. */
void gyre_health_fail(struct gyre_health *health, gyre_status status, const char *text,
                      bool prints);

void gyre_health_fail_all(struct gyre_health *health, gyre_status status, const char *text);

const char *gyre_health_rank_name(const struct gyre_health *health, int rank, char *name_out);

/* ---- health_calls.c ----------------------------------------------------------------------- */

/** For messages. Any thread. */
void gyre_health_call_text(struct gyre_health *health, char *text_out, size_t text_bytes);

void gyre_health_place_of(struct gyre_health *health, struct gyre_health_place *place_out);

/** Sequence 0 = none on record. */
void gyre_health_waiting_call(struct gyre_health *health, struct gyre_record *call_out);

/** May a peer's record be read? */
bool gyre_health_is_record(const struct gyre_record *record);

/** Keeps questions about later calls, and tells this rank's place. */
void gyre_health_answer(struct gyre_health *health, int rank,
                        const struct gyre_health_message *message);

/** Between two questions. */
uint64_t gyre_health_ask_ns(const struct gyre_health *health, uint64_t now_ns);

/** Of a rank that was asked regularly. */
uint64_t gyre_health_silence_limit_ns(const struct gyre_health *health, uint64_t now_ns);

/** Since an asked rank sent anything; for this rank itself, since the rendezvous passed on a
 * message. */
uint64_t gyre_health_silent_ns(const struct gyre_health *health, int rank, uint64_t now_ns);

/** False if the rank has left. */
bool gyre_health_is_silent(const struct gyre_health *health, int rank, uint64_t now_ns);

/** @mine: this rank waits in it. */
enum gyre_health_standing gyre_health_stands(const struct gyre_health *health, int rank,
                                             uint64_t now_ns, const struct gyre_record *mine);

/* ---- health_stall.c ----------------------------------------------------------------------- */

/** Ask about stalled calls, warn, and fail late ones. About every 100 ms. */
void gyre_health_check_progress(struct gyre_health *health);

/** Likewise once this rank has left. False if no missing goodbye will come. */
bool gyre_health_check_leaving(struct gyre_health *health);

/* ---- health_waits.c ----------------------------------------------------------------------- */

/** Fills health->waits. */
void gyre_health_look(struct gyre_health *health);

/** When this rank asks: find its positions, ask the awaited ranks about theirs, and tell the
 * explainer. */
void gyre_health_share_waits(struct gyre_health *health, uint64_t now_ns);

void gyre_health_tell_waits(struct gyre_health *health, int rank);

/** The lowest rank that waits and asks explains the stall for all. */
int gyre_health_explainer(const struct gyre_health *health, uint64_t now_ns);

/** Drop messages with a wrong version, size or range. */
void gyre_health_take_waits(struct gyre_health *health, int rank,
                            struct gyre_health_message *message, size_t n_bytes);
void gyre_health_take_end_ask(struct gyre_health *health, int rank,
                              const struct gyre_health_message *message, size_t n_bytes);
void gyre_health_take_end_answer(struct gyre_health *health, int rank,
                                 const struct gyre_health_message *message, size_t n_bytes);

void gyre_health_check_dump(struct gyre_health *health);

/* ---- health_explain.c --------------------------------------------------------------------- */

/** Append "channel 0, worker 0, step 3 of ring all_reduce seq 12, tile 0 of 4 (chunk 1: from 3 + in
 * 1 -> to 1) waits for slot 41 from rank 3 over shm". */
void gyre_health_wait_text(const struct gyre_health_wait *wait, char *text, size_t text_bytes);

/** From this rank's call `mine`. @why_out: "" if nothing is known. @why_bytes: at least 1; a long
 * text loses waits and keeps its end. Returns true if the cause is certain: a cycle, or a slot that
 * was sent and did not arrive. */
bool gyre_health_explain(struct gyre_health *health, const struct gyre_record *mine,
                         uint64_t now_ns, char *why_out, size_t why_bytes);

#endif
