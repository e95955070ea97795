/* SPDX-License-Identifier: Apache-2.0
 *
 * A host stream is a queue of cooperative tasks. A thread that synchronises the stream runs the
 * queue itself. If no thread does, the stream's helper thread runs it after a short sleep, so
 * operations make progress while their caller does something else.
 *
 * A forked child has none of its parent's streams. Every function refuses them with INVALID_USAGE.
 */
#ifndef GYRE_DEVICE_HOST_STREAM_H
#define GYRE_DEVICE_HOST_STREAM_H

#include "core/foundation/base/status.h"

enum gyre_task_state {
    GYRE_TASK_IDLE,   /* nothing was done; the task waits for another rank */
    GYRE_TASK_MOVING, /* something was done, more to do */
    GYRE_TASK_DONE    /* finished; the stream removes the task and calls release */
};

struct gyre_task {
    struct gyre_task *next; /* the stream's */
    /* Do a bounded amount of work (at most about 100 us) without blocking. One thread at a time
     * calls this. A task that fails returns DONE and sets *status_out; the cause text is the
     * thread's. */
    enum gyre_task_state (*poll)(struct gyre_task *task, gyre_status *status_out);
    void (*release)(struct gyre_task *task); /* free it */
};

/** gyre_host_stream_push - append a task. Any thread may push.
 * @stream: NULL = the calling thread's default stream.
 * Errors: OUT_OF_MEMORY, SYSTEM (the helper thread cannot be started); the caller then still owns
 * the task. */
gyre_status gyre_host_stream_push(gyre_stream stream, struct gyre_task *task);

/** gyre_host_stream_create / gyre_host_stream_destroy - destroy waits until all tasks are done.
 * Meanwhile no thread may push, query or synchronise. A default stream cannot be destroyed, because
 * it ends with its thread. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT. */
gyre_status gyre_host_stream_create(gyre_stream *stream_out);
gyre_status gyre_host_stream_destroy(gyre_stream stream);

/** gyre_host_stream_synchronize - run the queue until all tasks pushed before the call are done.
 * Returns the first failure of a task since the last synchronize, with its cause text, once.
 * Several threads may synchronise one stream: one of them runs the queue, and one of them gets the
 * failure. */
gyre_status gyre_host_stream_synchronize(gyre_stream stream);

/** gyre_host_stream_query - SUCCESS when the queue is empty, else IN_PROGRESS. If no other thread
 * runs the queue, the first task is polled once, so a thread with many streams can drive them all
 * by querying one after the other. A failure is kept for synchronize. */
gyre_status gyre_host_stream_query(gyre_stream stream);

/** gyre_host_stream_resolve - the stream itself; for NULL the calling thread's default stream,
 * which ends with that thread. Errors: OUT_OF_MEMORY, SYSTEM. */
gyre_status gyre_host_stream_resolve(gyre_stream stream, gyre_stream *stream_out);

/** gyre_host_stream_follow - later tasks of `stream` begin after the tasks that are on `other` now,
 * whether those succeed or fail. Errors: as push; then `stream` is unchanged, and `other` may have
 * a task that does nothing. */
gyre_status gyre_host_stream_follow(gyre_stream stream, gyre_stream other);

#endif
