/* SPDX-License-Identifier: Apache-2.0
 *
 * A host stream: a FIFO of cooperative tasks. The thread that synchronises runs the queue itself;
 * when nobody does, the stream's helper thread takes over after a nap, so that an operation makes
 * progress while its caller does something else.
 */
#ifndef GYRE_DEVICE_HOST_STREAM_H
#define GYRE_DEVICE_HOST_STREAM_H

#include "core/base/status.h"

enum gyre_task_state {
    GYRE_TASK_IDLE,   /* waits for somebody; nothing was done */
    GYRE_TASK_MOVING, /* something was done, more to do */
    GYRE_TASK_DONE    /* finished: the stream removes it, then calls release */
};

struct gyre_task {
    struct gyre_task *next; /* the stream's */
    /* Do a bounded amount of work (at most about 100 us) without blocking. Runs on one thread at a
     * time. A failure is stored in *status_out together with DONE; its cause text is on the thread.
     */
    enum gyre_task_state (*poll)(struct gyre_task *task, gyre_status *status_out);
    void (*release)(struct gyre_task *task); /* free it */
};

/** gyre_host_stream_push - append a task. @stream: NULL = the calling thread's default stream.
 * Any thread may push. Errors: OUT_OF_MEMORY, SYSTEM (the helper thread cannot be started); the
 * task then stays the caller's. */
gyre_status gyre_host_stream_push(gyre_stream stream, struct gyre_task *task);

/** gyre_host_stream_create / destroy - destroying first waits until everything enqueued is done;
 * nobody may push, query or synchronise any more. NULL cannot be destroyed: it ends with its
 * thread. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT. */
gyre_status gyre_host_stream_create(gyre_stream *stream_out);
gyre_status gyre_host_stream_destroy(gyre_stream stream);

/** gyre_host_stream_synchronize - run the queue until everything pushed before the call is done.
 * Returns the first failure of a task since the last call, with its cause text, once. Several
 * threads may synchronise one stream: one of them runs it, one of them gets the failure. */
gyre_status gyre_host_stream_synchronize(gyre_stream stream);

/** gyre_host_stream_query - SUCCESS when nothing is enqueued, else IN_PROGRESS. Gives the first
 * task one poll if nobody else runs the queue, so that a thread with many streams can drive all of
 * them by asking in turn. Failures are left for synchronize. */
gyre_status gyre_host_stream_query(gyre_stream stream);

/** gyre_host_stream_resolve - the stream itself, or for NULL the calling thread's default stream,
 * which ends with that thread. Errors: OUT_OF_MEMORY, SYSTEM. */
gyre_status gyre_host_stream_resolve(gyre_stream stream, gyre_stream *stream_out);

/** gyre_host_stream_follow - what is pushed on `stream` from now on begins after what is on `other`
 * now, however that ends. Errors: as push; then nothing was changed but a task that does nothing on
 * `other`. */
gyre_status gyre_host_stream_follow(gyre_stream stream, gyre_stream other);

#endif
