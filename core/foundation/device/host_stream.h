/* SPDX-License-Identifier: Apache-2.0
 *
 * A host stream is a queue of cooperative tasks. A thread that synchronises the stream runs it; if
 * no thread does, the stream's helper thread runs it after a short sleep. A forked child has none
 * of its parent's streams: every function refuses them with INVALID_USAGE.
 */
#ifndef GYRE_DEVICE_HOST_STREAM_H
#define GYRE_DEVICE_HOST_STREAM_H

#include "core/foundation/base/status.h"

enum gyre_task_state {
    GYRE_TASK_IDLE,   /* waits for another rank */
    GYRE_TASK_MOVING, /* more is to do */
    GYRE_TASK_DONE    /* the stream removes the task and calls release */
};

struct gyre_task {
    struct gyre_task *next; /* the stream's */
    /* Do at most about 100 us of work without blocking. One thread at a time calls this. A task
     * that fails returns DONE and sets *status_out and the thread's cause. */
    enum gyre_task_state (*poll)(struct gyre_task *task, gyre_status *status_out);
    void (*release)(struct gyre_task *task);
};

/** Any thread. @stream: NULL = the thread's default stream. Errors: OUT_OF_MEMORY, SYSTEM; the
 * caller then still owns the task. */
gyre_status gyre_host_stream_push(gyre_stream stream, struct gyre_task *task);

/** Destroy waits until all tasks are done; meanwhile no thread may use the stream. A default stream
 * cannot be destroyed. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT. */
gyre_status gyre_host_stream_create(gyre_stream *stream_out);
gyre_status gyre_host_stream_destroy(gyre_stream stream);

/** Run all tasks pushed before the call. Returns the first failure of a task since the last
 * synchronize, to one thread, once. */
gyre_status gyre_host_stream_synchronize(gyre_stream stream);

/** SUCCESS when the queue is empty, else IN_PROGRESS. Polls the first task once if no other thread
 * runs the queue, so a thread can drive many streams in turn. A failure is kept for synchronize. */
gyre_status gyre_host_stream_query(gyre_stream stream);

/** For NULL the thread's default stream, which ends with that thread. Errors: OUT_OF_MEMORY,
 * SYSTEM. */
gyre_status gyre_host_stream_resolve(gyre_stream stream, gyre_stream *stream_out);

/** Later tasks of `stream` begin after the tasks that are on `other` now, whether those succeed or
 * fail. Errors: as push; `stream` is unchanged then. */
gyre_status gyre_host_stream_follow(gyre_stream stream, gyre_stream other);

#endif
