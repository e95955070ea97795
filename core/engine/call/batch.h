/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups and batches, and what metrics and observers are told of calls and launches. All calls of a
 * batch are planned, then all are enqueued.
 */
#ifndef GYRE_CALL_BATCH_H
#define GYRE_CALL_BATCH_H

#include "core/engine/comm.h"
#include "core/engine/plan/plan.h"
#include "core/foundation/device/host_stream.h"

#include <stdio.h>

struct gyre_comparer;
struct gyre_metrics_span;
struct gyre_observed_launch;

/* A call of a batch, with the facts that no plan has. */
struct gyre_item {
    gyre_comm *comm; /* NULL: it has ended in the meantime */
    struct gyre_call call;
    /* The fields below are set while the batch runs. */
    const struct gyre_plan *plan; /* NULL: it could not be made, and enqueuing the call says why */
    struct gyre_item *first;      /* the communicator's first call in the batch */
    struct gyre_item *next_first; /* of such a first call: that of the next communicator */
    struct gyre_comparer *comparer; /* likewise: compares the collectives; NULL = the calling thread
                                     * does */
    uint32_t follows; /* message: 1 + place in the launch of the earlier one of the same peer and
                       * direction, after whose end it begins; 0 = it begins with the launch */
    uint32_t wave;    /* message: how many of the batch with its peer and direction come before */
    uint32_t launch;  /* message: number of its launch among those of the communicator */
};

/** Plan and enqueue a call outside any group. This thread holds the communicator. Errors: those of
 * the call; what other ranks are not refused alike ends the communicator. */
gyre_status gyre_batch_one(struct gyre_item *item);

/** Plan and enqueue calls of any communicators, all by this thread: communicator after
 * communicator, in the order in which they were made, of each the collectives and then the sends
 * and receives, which run at the same time. Changes @items: those of ended communicators lose
 * theirs. Errors: the first; what the other communicators' ranks wait for is enqueued all the same.
 */
gyre_status gyre_batch_run(struct gyre_item *items, size_t n_items);

/** Is this thread inside a group? */
bool gyre_group_is_open(void);

/** Run a call at the end of this thread's group, which is open. This thread holds the communicator.
 * Errors: OUT_OF_MEMORY; the communicator then ends on all ranks. */
gyre_status gyre_group_add_call(const struct gyre_item *item);

/* A task that runs on another thread and ends with the group: a communicator's init task. */
struct gyre_group_task {
    /* Wait for its end and free it. */
    gyre_status (*finish)(struct gyre_group_task *task);
};

/** The end of this thread's group finishes the task. Errors: OUT_OF_MEMORY; the task is then
 * finished here. */
gyre_status gyre_group_add(struct gyre_group_task *task);

/** Make the group's end return IN_PROGRESS, because a communicator that does not block has work in
 * the background. */
void gyre_group_note_background(void);

/* The first failure of several steps, with its cause, which later steps would overwrite. */
struct gyre_failure {
    gyre_status status; /* SUCCESS = there is none so far */
    char cause[GYRE_CAUSE_MAX_BYTES];
};

static inline void gyre_failure_note(struct gyre_failure *failure, gyre_status status)
{
    if (failure->status != GYRE_SUCCESS || status == GYRE_SUCCESS)
        return;
    failure->status = status;
    snprintf(failure->cause, sizeof(failure->cause), "%s", gyre_cause());
}

/** The failure's status; the thread's cause becomes the failure's. */
static inline gyre_status gyre_failure_tell(const struct gyre_failure *failure)
{
    if (failure->status != GYRE_SUCCESS)
        gyre_set_cause(failure->cause);
    return failure->status;
}

/* ---- the order of messages (order.c) ------------------------------------------------------- */

/* The rank whose messages are ordered. */
struct gyre_order_place {
    int rank;
    int n_ranks;
    uint32_t most_calls; /* of one launch: each takes a multiprocessor at least. 0 = any number */
    bool queues;         /* the executor heeds gyre_work.follows */
};

/** Order the sends and receives of one communicator, and set their `follows` and `launch`. Pure.
 *
 * Where the executor queues works, all are one launch, in which a message waits only for the
 * earlier ones of the same peer and direction. Elsewhere they are divided into waves, of which each
 * has the first message of each peer and direction that is left; both ranks of a message count
 * alike, so their waves fit. The calls of a wave with other ranks are one launch, the sends first,
 * whatever their protocols, because each may wait for any other one by way of the other ranks. This
 * rank's copy to itself waits for nobody, so it may be a launch of its own, the last of its wave.
 *
 * With more ranks than one launch can serve, messages that go about as far (from rank r to rank r +
 * k) are one launch, the nearest first, so groups of all ranks complete. But a call in the group
 * may then wait for another one. @latest: by peer * 2 + is_send, zeros, which it has again
 * afterwards. @messages: in the order of the calls; with their plans. */
void gyre_order_messages(const struct gyre_order_place *place, uint32_t *latest,
                         struct gyre_item **messages, int n_messages);

/** Let the sends of a rank to itself carry out the matching receives, each as one local copy, and
 * take those receives out. @messages: of one communicator. @n_messages: becomes the number that is
 * left. Errors: INVALID_USAGE (a send or a receive without its counterpart). */
gyre_status gyre_order_join_copies(int rank, struct gyre_item **messages, size_t *n_messages);

/** The record's sequence is 0. Inline: every call makes a record, and copying it out of a function
 * took 8 ns. */
static inline struct gyre_record gyre_batch_record(const struct gyre_call *call)
{
    const int op = gyre_collectives[call->coll].reduces ? (int)call->op : 0;
    struct gyre_record record = {
        .count = call->count,
        .coll = (uint8_t)call->coll,
        .dtype = (uint8_t)call->dtype,
        .op = (uint8_t)(op >= GYRE_FIRST_USER_OP ? GYRE_FIRST_USER_OP : op),
        .is_send = call->is_send,
        .terms = gyre_call_terms_any(&call->terms) ? gyre_call_terms_hash(&call->terms) : 0,
        .root = gyre_collectives[call->coll].has_root ? call->root : -1,
    };
    if (call->window != NULL) {
        record.window = call->window->number;
        record.window_offset = call->window_offset;
    }
    return record;
}

/* ---- GYRE_CHECK=calls: every rank's record of a collective is gathered and compared before the
 * call is enqueued (compare.c) -------------------------------------------------------------- */

/** Was the communicator made with GYRE_CHECK=calls? */
bool gyre_compares_calls(const gyre_comm *comm);

/** Wait for all ranks' records of a collective and compare them. A difference ends the communicator
 * on every rank. Errors: INVALID_USAGE naming both calls, or what ended the communicator meanwhile.
 */
gyre_status gyre_compare_call(gyre_comm *comm, const struct gyre_record *record);

/** Compare the collectives of one communicator in a batch. A thread of its own runs ahead of the
 * launches, because the launching thread may also serve other ranks of the communicator and would
 * then wait for itself. @items: must not move until the comparer is finished. Errors:
 * OUT_OF_MEMORY, SYSTEM; the communicator then ends on all ranks, which wait for this one. */
gyre_status gyre_comparer_start(gyre_comm *comm, struct gyre_item *const *items, size_t n_items,
                                struct gyre_comparer **comparer_out);

/** Wait until the communicator's next collective of the batch is compared. Errors: those of
 * gyre_compare_call(). */
gyre_status gyre_comparer_take(struct gyre_comparer *comparer);

/** Wait until all its collectives are compared, or one failed; free it. @comparer: or NULL. */
void gyre_comparer_finish(struct gyre_comparer *comparer);

/* ---- what is told of calls and launches (observe.c, metrics.c) ------------------------------ */

struct gyre_metrics;

/** @metrics_out: NULL if GYRE_METRICS_FILE is unset. In the file's name %h is the host, %p the
 * process, %r the rank, %n the number of the communicator in its process and %c its number in the
 * job. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT (the name is too long), SYSTEM (no thread). */
gyre_status gyre_metrics_open(const gyre_comm *comm, struct gyre_metrics **metrics_out);

/** Write the file a last time, wait up to two seconds for that, and give the metrics up. @metrics:
 * or NULL. */
void gyre_metrics_close(struct gyre_metrics *metrics);

struct gyre_observing;

/** @observer: copied. @executor: NULL: streams are host streams, and their tasks tell when a call
 * begins and ends. Else the executor is asked for that after the call's end. It outlives the last
 * gyre_observe_times(). Errors: OUT_OF_MEMORY. */
gyre_status gyre_observing_open(const gyre_observer *observer, struct gyre_executor *executor,
                                struct gyre_observing **observing_out);

/** Tell the observer of calls that have ended since, where an executor is asked for their times.
 * @observing: or NULL. */
void gyre_observe_times(struct gyre_observing *observing);

/** The communicator has ended. The observer is closed once all of its calls are finished.
 * @observing: or NULL. */
void gyre_observing_close(struct gyre_observing *observing);

/** The call was accepted. Sets call->observed, which the thread that submits the call holds until
 * gyre_observed_release(). If there is no memory, the call is not observed. @observing: or NULL. */
void gyre_observe_submitted(struct gyre_observing *observing, struct gyre_call *call);

/** The call has been launched, or never will be. @observed: or NULL. */
void gyre_observed_release(struct gyre_observed *observed);

/** Calls with their plans are about to be launched together on the stream. Returns NULL if none of
 * them is observed. */
struct gyre_observed_launch *gyre_observe_launching(struct gyre_item *const *items, int n_items,
                                                    gyre_stream stream);

/** The launch has been made, or has failed. @launch: or NULL. */
void gyre_observe_launched(struct gyre_observed_launch *launch, bool is_launched,
                           gyre_stream stream);

/** Calls are about to be launched together on the stream. @metrics: or NULL. Returns NULL if no
 * time is taken. */
struct gyre_metrics_span *gyre_metrics_begin(struct gyre_metrics *metrics,
                                             struct gyre_item *const *items, int n_items,
                                             gyre_stream stream);

/** The launch has been made, or has failed. @span: or NULL. */
void gyre_metrics_end(struct gyre_metrics_span *span, bool is_launched, gyre_stream stream);

/* The time of one launch on a host stream: one task in front of the launch and one behind it. On
 * GPUs there is nothing like it, because the host does not see when a stream comes to a launch.
The first member of a struct of the user. The stream holds it until both tasks are gone. */
struct gyre_span {
    struct gyre_task before;
    struct gyre_task behind;
    uint32_t n_holders;
    const struct gyre_span_ops *ops;
};

/* Called by the thread that runs the stream. */
struct gyre_span_ops {
    void (*begun)(struct gyre_span *span, uint64_t now_ns);
    void (*ended)(struct gyre_span *span, uint64_t now_ns); /* not if the launch failed */
    void (*free)(struct gyre_span *span);                   /* the last call, on any thread */
};

/** A launch is about to be made on the stream. Returns false if the first task cannot be enqueued;
 * the caller still owns the span then. */
bool gyre_span_begin(struct gyre_span *span, const struct gyre_span_ops *ops, gyre_stream stream);

/** The launch has been made, or has failed. Gives the span up. Only after a gyre_span_begin() that
 * returned true. */
void gyre_span_end(struct gyre_span *span, bool is_launched, gyre_stream stream);

#endif
