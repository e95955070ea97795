/* SPDX-License-Identifier: Apache-2.0
 *
 * What core/engine/health and core/engine/comm use of this folder: the caller of a communicator,
 * groups, records of calls, metrics and observers.
 */
#ifndef GYRE_CALL_CALLER_H
#define GYRE_CALL_CALLER_H

#include "core/engine/links/links.h"
#include "core/engine/plan/plan.h"

#include <pthread.h>

/* ---- records (record.c) -------------------------------------------------------------------- */

/* The record of one call. A rank posts a record of every call in its own call log and waits for no
 * other rank. Call logs are compared only when a wait stalls or when GYRE_CHECK=calls asks for it.
 * Ranks send records to each other, so the layout is fixed. */
struct gyre_record {
    uint64_t sequence; /* collectives: n-th of the communicator; point to point: n-th of this pair
                        * and direction; from 1, 0 = no call */
    uint64_t count;
    uint8_t coll; /* enum gyre_collective; SEND_RECV for both directions */
    uint8_t dtype;
    uint8_t op; /* 0 where nothing is reduced; GYRE_FIRST_USER_OP for every user operation */
    uint8_t is_send;
    int32_t root;           /* or the peer; -1 where the collective has none */
    uint64_t window_offset; /* of recv, where data may be placed */
    uint32_t window;        /* in which; 0 = none */
    uint32_t terms;         /* hash of the call's own terms; 0 = it has none */
};

_Static_assert(sizeof(struct gyre_record) == 40, "exchanged between ranks");

/** gyre_record_text - "all_reduce(1048576 B, 262144 x float sum, seq 41)". @text_out: >= 128
 * bytes. */
const char *gyre_record_text(const struct gyre_record *record, char *text_out, size_t text_bytes);

/** gyre_record_signature - equal for calls that fit each other; travels with every slot.
 * @rank: the caller's, for point to point. */
uint32_t gyre_record_signature(const struct gyre_record *record, int rank);

/** gyre_record_same_place - are these two ranks' records of calls that must fit each other (the
 * same collective call number, or the two ends of the same message)? */
bool gyre_record_same_place(const struct gyre_record *a, int rank_a, const struct gyre_record *b,
                            int rank_b);

/** gyre_record_fits - given gyre_record_same_place: do they agree? */
bool gyre_record_fits(const struct gyre_record *a, const struct gyre_record *b);

#define GYRE_CALL_LOG_RECORDS 256
#define GYRE_CALL_LOG_WORKS   4096

/* The latest calls of one rank. Posted by the caller's thread, read by the health thread. */
struct gyre_call_log {
    pthread_mutex_t lock;
    uint64_t n_posted; /* record i (from 0) stands in records[i % GYRE_CALL_LOG_RECORDS] */
    uint64_t n_collectives;
    struct gyre_record records[GYRE_CALL_LOG_RECORDS];
    uint64_t record_of_work[GYRE_CALL_LOG_WORKS]; /* one writer: the caller; release */
};

void gyre_call_log_init(struct gyre_call_log *call_log);
void gyre_call_log_fini(struct gyre_call_log *call_log);

/** gyre_call_log_post - add a record; its index in the call log. A collective gets its number,
 * record->sequence. */
uint64_t gyre_call_log_post(struct gyre_call_log *call_log, struct gyre_record *record);

/** gyre_call_log_launched - work number `work`, as the executor counts them, carries out record
 * `record`. Before the launch. */
void gyre_call_log_launched(struct gyre_call_log *call_log, uint64_t work, uint64_t record);

/** gyre_call_log_record_of - the record that a work carries out, which must be one of the latest
 * GYRE_CALL_LOG_WORKS. Any thread. */
uint64_t gyre_call_log_record_of(const struct gyre_call_log *call_log, uint64_t work);

/** gyre_call_log_get - record `index`; false if it was not posted yet or was overwritten. */
bool gyre_call_log_get(struct gyre_call_log *call_log, uint64_t index,
                       struct gyre_record *record_out);

/** gyre_call_log_find - this rank's record that must fit the other rank's; false if there is none
 * (yet, or any more). */
bool gyre_call_log_find(struct gyre_call_log *call_log, int rank, const struct gyre_record *other,
                        int other_rank, struct gyre_record *record_out);

/* ---- metrics (metrics.c) ------------------------------------------------------------------- */

struct gyre_metrics;

/** gyre_metrics_open - @metrics_out: NULL if GYRE_METRICS_FILE is unset. In the file's name %h is
 * the host, %p the process, %r the rank, %n the number of the communicator in its process and %c
 * its number in the job. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT (the name is too long), SYSTEM (no
 * thread). */
gyre_status gyre_metrics_open(const struct gyre_member *member, const struct gyre_links *links,
                              struct gyre_metrics **metrics_out);

/** gyre_metrics_close - write the file a last time, wait up to two seconds for that, and give the
 * metrics up.
 * @metrics: or NULL. */
void gyre_metrics_close(struct gyre_metrics *metrics);

/* ---- observers (observe.c) ----------------------------------------------------------------- */

struct gyre_observing;

/** gyre_observing_open - @observer: copied.
 * @executor: NULL: streams are host streams, and their tasks tell when a call begins and ends. Else
 * the executor is asked for that after the call's end. It outlives the last gyre_observe_times().
 * Errors: OUT_OF_MEMORY. */
gyre_status gyre_observing_open(const gyre_observer *observer, struct gyre_executor *executor,
                                struct gyre_observing **observing_out);

/** gyre_observe_times - tell the observer of calls that have ended since, where an executor is
 * asked for their times. @observing: or NULL. */
void gyre_observe_times(struct gyre_observing *observing);

/** gyre_observing_close - the communicator has ended. The observer is closed once all of its calls
 * are finished. @observing: or NULL. */
void gyre_observing_close(struct gyre_observing *observing);

/* ---- the caller ---------------------------------------------------------------------------- */

struct gyre_caller;

/* What core/engine/comm and core/engine/health do for callers. */
struct gyre_caller_ops {
    /* Take the caller for launches by this thread. It may have been freed since the call was
     * submitted. Errors: INVALID_USAGE (destroyed, finalized, in use by another thread), or the
     * communicator's fault. */
    gyre_status (*begin)(struct gyre_caller *caller);
    void (*end)(struct gyre_caller *caller);
    /* End the communicator on all ranks with `status` and the thread's cause, because this rank
     * cannot take part in an operation that the other ranks wait for. Returns `status`. */
    gyre_status (*give_up)(struct gyre_caller *caller, gyre_status status);
    /* Wait until the communicator has no work in the background. */
    void (*wait_ready)(struct gyre_caller *caller);
    /* On the host: the next launch goes to this stream, which is not that of the latest launch.
     * Returns another rank of the communicator in this process whose launch on the stream is not
     * finished, and then changes nothing; -1: there is none. */
    int (*take_stream)(struct gyre_caller *caller, gyre_stream stream);
    /* Do not report this rank's next fault to the other ranks, because each of them finds the same
     * failure by itself. */
    void (*expect_alike)(struct gyre_caller *caller);
    /* A call's record was posted. Compare it with the records that other ranks have asked about. */
    void (*posted)(struct gyre_caller *caller, const struct gyre_record *record);
};

struct gyre_caller {
    const struct gyre_caller_ops *ops;
    struct gyre_member *member;
    const struct gyre_links *links;
    const struct gyre_windows *windows;
    struct gyre_plan_cache *plans;
    struct gyre_executor *executor;
    struct gyre_trace_buffer *recorded; /* gets launches; NULL = they are not recorded */
    struct gyre_call_log call_log;
    struct gyre_metrics *metrics;     /* NULL = GYRE_METRICS_FILE is unset */
    struct gyre_observing *observing; /* NULL = no observer */
    uint64_t *n_p2p;                  /* by peer * 2 + is_send: messages so far */
    uint32_t *latest;                 /* likewise: zeros; room for gyre_order_messages() */
    uint64_t stream;       /* host: address of the stream of this rank's latest launch, 0 = none.
                            * Set under the registry's lock; the caller reads it without */
    uint64_t stream_works; /* n_launched after that launch; one writer: the caller; release */
};

/** gyre_group_submit - take one call: run it now, or at the end of this thread's group. */
gyre_status gyre_group_submit(struct gyre_caller *caller, const struct gyre_call *call);

/** gyre_group_is_open - is this thread inside a group? */
bool gyre_group_is_open(void);

/* A task that runs on another thread and ends with the group: a communicator's init task. */
struct gyre_group_task {
    /* Wait for its end and free it. */
    gyre_status (*finish)(struct gyre_group_task *task);
};

/** gyre_group_add - the end of this thread's group finishes the task. Errors: OUT_OF_MEMORY; the
 * task is then finished here. */
gyre_status gyre_group_add(struct gyre_group_task *task);

/** gyre_group_note_background - make the group's end return IN_PROGRESS, because a communicator
 * that does not block has work in the background. */
void gyre_group_note_background(void);

#endif
