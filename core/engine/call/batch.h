/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups and batches, and what metrics and observers are told of calls and launches.
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

struct gyre_item {
    gyre_comm *comm; /* NULL: it has ended in the meantime */
    struct gyre_call call;
    /* Set while the batch runs. */
    const struct gyre_plan *plan; /* NULL: planning failed; enqueuing says why */
    struct gyre_item *first;
    struct gyre_item *next_first;   /* of a first call: the next communicator's */
    struct gyre_comparer *comparer; /* of a first call; NULL = the calling thread compares */
    uint32_t follows; /* message: 1 + place in the launch of the same peer's call that it waits for;
                       * 0 = none */
    uint32_t wave;    /* message: earlier ones of its peer and direction */
    uint32_t launch;  /* message: its launch's number in the communicator */
};

/** Outside any group. This thread holds the communicator. A failure that other ranks do not share
 * ends it. */
gyre_status gyre_batch_one(struct gyre_item *item);

/** Communicator after communicator in the order in which they were made, of each the collectives,
 * then the messages. Changes @items: those of ended communicators lose theirs. Errors: the first;
 * calls that other ranks wait for are enqueued all the same. */
gyre_status gyre_batch_run(struct gyre_item *items, size_t n_items);

bool gyre_group_is_open(void);

/** Run it at the end of this thread's open group. This thread holds the communicator. Errors:
 * OUT_OF_MEMORY; the communicator then ends on all ranks. */
gyre_status gyre_group_add_call(const struct gyre_item *item);

/* A communicator's init task. */
struct gyre_group_task {
    /* Wait for its end and free it. */
    gyre_status (*finish)(struct gyre_group_task *task);
};

/** Finish it at the end of this thread's group. Errors: OUT_OF_MEMORY; the task is then finished
 * here. */
gyre_status gyre_group_add(struct gyre_group_task *task);

/** Makes the group's end return IN_PROGRESS. */
void gyre_group_note_background(void);

/* Later steps overwrite the thread's cause. */
struct gyre_failure {
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
};

static inline void gyre_failure_note(struct gyre_failure *failure, gyre_status status)
{
    if (failure->status != GYRE_SUCCESS || status == GYRE_SUCCESS)
        return;
    failure->status = status;
    snprintf(failure->cause, sizeof(failure->cause), "%s", gyre_cause());
}

static inline gyre_status gyre_failure_tell(const struct gyre_failure *failure)
{
    if (failure->status != GYRE_SUCCESS)
        gyre_set_cause(failure->cause);
    return failure->status;
}

/* ---- order.c ------------------------------------------------------------------------------ */

struct gyre_order_place {
    int rank;
    int n_ranks;
    uint32_t most_calls; /* of one launch; 0 = any number */
    bool queues;         /* the executor heeds gyre_work.follows */
};

/** Set `follows` and `launch` of one communicator's sends and receives. Pure.
 *
 * Where the executor queues works, all are one launch. Elsewhere they are divided into waves, each
 * with the first message left of every peer and direction; both ranks of a message count alike, so
 * their waves fit. A wave's calls with other ranks are one launch, the sends first, whatever their
 * protocols, because each may wait for any other by way of other ranks. A copy to itself waits for
 * no rank, so it may be a launch of its own, the last of its wave.
 *
 * With more ranks than one launch serves, messages from rank r to rank r + k are one launch, the
 * nearest first, so groups of all ranks complete, but a call may wait for another one. @latest: by
 * peer * 2 + is_send; zeros before and after. @messages: planned, in the order of the calls. */
void gyre_order_messages(const struct gyre_order_place *place, uint32_t *latest,
                         struct gyre_item **messages, int n_messages);

/** A rank's sends to itself become local copies, and the matching receives are taken out.
 * @messages: of one communicator. Errors: INVALID_USAGE (a send or a receive without its
 * counterpart). */
gyre_status gyre_order_join_copies(int rank, struct gyre_item **messages, size_t *n_messages);

/** Without the sequence. Inline: copying a record, which every call makes, took 8 ns. */
static inline struct gyre_record gyre_batch_record(const struct gyre_call *call)
{
    const int op = gyre_collectives[call->coll].reduces ? (int)call->op : 0;
    struct gyre_record record = {
        .count = call->count,
        .coll = (uint8_t)call->coll,
        .dtype = (uint8_t)call->dtype,
        .op = (uint8_t)(op >= GYRE_FIRST_USER_OP ? GYRE_FIRST_USER_OP : op),
        .is_send = call->is_send,
        .options =
            gyre_call_options_any(&call->options) ? gyre_call_options_hash(&call->options) : 0,
        .root = gyre_collectives[call->coll].has_root ? call->root : -1,
    };
    if (call->window != NULL) {
        record.window = call->window->number;
        record.window_offset = call->window_offset;
    }
    return record;
}

/* ---- GYRE_CHECK=calls (compare.c) ----------------------------------------------------------- */

bool gyre_compares_calls(const gyre_comm *comm);

/** Compare a collective on all ranks. A difference ends the communicator on every rank. Errors:
 * INVALID_USAGE naming both calls, or the communicator's fault. */
gyre_status gyre_compare_call(gyre_comm *comm, const struct gyre_record *record);

/** Compare on a thread of its own, because the launching thread may also serve other ranks and
 * would wait for itself. @items: one communicator's collectives, must not move until the comparer
 * is finished. Errors: OUT_OF_MEMORY, SYSTEM; the communicator then ends on all ranks. */
gyre_status gyre_comparer_start(gyre_comm *comm, struct gyre_item *const *items, size_t n_items,
                                struct gyre_comparer **comparer_out);

/** Wait until the next collective is compared. Errors: as gyre_compare_call(). */
gyre_status gyre_comparer_take(struct gyre_comparer *comparer);

/** Until all are compared or one failed. @comparer: or NULL. */
void gyre_comparer_finish(struct gyre_comparer *comparer);

/* ---- observe.c, metrics.c ------------------------------------------------------------------- */

struct gyre_metrics;

/** @metrics_out: NULL if GYRE_METRICS_FILE is unset. In the file's name %h is the host, %p the
 * process, %r the rank, %n the communicator's number in its process and %c in the job. Errors:
 * OUT_OF_MEMORY, INVALID_ARGUMENT (too long a name), SYSTEM. */
gyre_status gyre_metrics_open(const gyre_comm *comm, struct gyre_metrics **metrics_out);

/** @metrics: or NULL. Any thread. */
void gyre_metrics_count_connection(struct gyre_metrics *metrics,
                                   const gyre_connection_event *event);

/** Waits up to two seconds for a last write. @metrics: or NULL. */
void gyre_metrics_close(struct gyre_metrics *metrics);

struct gyre_observing;

/** @observer: copied. @executor: tells times after a call's end and outlives the last
 * gyre_observe_times(); NULL: tasks of host streams tell them. */
gyre_status gyre_observing_open(const gyre_observer *observer, struct gyre_executor *executor,
                                struct gyre_observing **observing_out);

/** For ended calls whose times an executor knows. @observing: or NULL. */
void gyre_observe_times(struct gyre_observing *observing);

/** After all of its calls are finished. @observing: or NULL. */
void gyre_observing_close(struct gyre_observing *observing);

/** Sets call->observed, which this thread holds until gyre_observed_release(), unless memory is
 * short. @observing: or NULL. */
void gyre_observe_submitted(struct gyre_observing *observing, struct gyre_call *call);

/** After the launch, or instead of it. @observed: or NULL. */
void gyre_observed_release(struct gyre_observed *observed);

/** @observing: or NULL. Any thread, until the communicator's transports are closed. */
void gyre_observe_connection(const struct gyre_observing *observing,
                             const gyre_connection_event *event);

/** Returns NULL if none of them is observed. */
struct gyre_observed_launch *gyre_observe_launching(struct gyre_item *const *items, int n_items,
                                                    gyre_stream stream);

/** @launch: or NULL. */
void gyre_observe_launched(struct gyre_observed_launch *launch, bool is_launched,
                           gyre_stream stream);

/** @metrics: or NULL. Returns NULL if no time is taken. */
struct gyre_metrics_span *gyre_metrics_begin(struct gyre_metrics *metrics,
                                             struct gyre_item *const *items, int n_items,
                                             gyre_stream stream);

/** @span: or NULL. */
void gyre_metrics_end(struct gyre_metrics_span *span, bool is_launched, gyre_stream stream);

/* Times one launch by two tasks around it on a host stream; on GPUs the host does not see when a
 * stream comes to a launch. The first member of a user's struct, which the stream holds until both
 * tasks are gone. */
struct gyre_span {
    struct gyre_task before;
    struct gyre_task behind;
    uint32_t n_holders;
    const struct gyre_span_ops *ops;
};

/* Called by the stream's thread. */
struct gyre_span_ops {
    void (*begun)(struct gyre_span *span, uint64_t now_ns);
    void (*ended)(struct gyre_span *span, uint64_t now_ns); /* not if the launch failed */
    void (*free)(struct gyre_span *span);                   /* the last call, on any thread */
};

/** False if the first task cannot be enqueued; the caller then still owns the span. */
bool gyre_span_begin(struct gyre_span *span, const struct gyre_span_ops *ops, gyre_stream stream);

/** Gives up a span that has begun. */
void gyre_span_end(struct gyre_span *span, bool is_launched, gyre_stream stream);

#endif
