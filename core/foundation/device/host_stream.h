/* SPDX-License-Identifier: Apache-2.0
 *
 * A queue of cooperative tasks. A thread that synchronises runs it, else after a short sleep the
 * stream's helper thread. A forked child gets INVALID_USAGE for its parent's streams.
 */
#ifndef GYRE_DEVICE_HOST_STREAM_H
#define GYRE_DEVICE_HOST_STREAM_H

#include "core/foundation/base/status.h"

enum gyre_task_state {
    GYRE_TASK_IDLE,
    GYRE_TASK_MOVING,
    GYRE_TASK_DONE /* the stream then calls release */
};

struct gyre_task {
    struct gyre_task *next;
    /* At most 100 us of work, without blocking, one thread at a time. A failing task returns DONE
     * and sets *status_out and the thread's cause. */
    enum gyre_task_state (*poll)(struct gyre_task *task, gyre_status *status_out);
    void (*release)(struct gyre_task *task);
};

/** Any thread. @stream: NULL = the thread's default. Errors: OUT_OF_MEMORY, SYSTEM; then the caller
 * still owns the task. */
gyre_status gyre_host_stream_push(gyre_stream stream, struct gyre_task *task);

/** Destroy waits for all tasks; meanwhile no thread may use the stream. A default stream cannot be
 * destroyed. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT. */
gyre_status gyre_host_stream_create(gyre_stream *stream_out);
gyre_status gyre_host_stream_destroy(gyre_stream stream);

/** Runs all tasks pushed before. Returns the first failure since the last time, to one thread. */
gyre_status gyre_host_stream_synchronize(gyre_stream stream);

/** SUCCESS = empty queue, else IN_PROGRESS. Polls the first task once if no thread runs the queue,
 * so a thread can drive many streams. Keeps failures for synchronize. */
gyre_status gyre_host_stream_query(gyre_stream stream);

/** NULL becomes the thread's default stream, which ends with it. Errors: OUT_OF_MEMORY, SYSTEM. */
gyre_status gyre_host_stream_resolve(gyre_stream stream, gyre_stream *stream_out);

/** Later tasks of `stream` wait for those now on `other`, even failing ones. Errors: as push. */
gyre_status gyre_host_stream_follow(gyre_stream stream, gyre_stream other);

#endif
