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

/** gyre_host_stream_push - append a task. @stream: NULL = the calling thread's default stream. */
gyre_status gyre_host_stream_push(gyre_stream stream, struct gyre_task *task);

#endif
