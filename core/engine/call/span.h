/* SPDX-License-Identifier: Apache-2.0
 *
 * The time of one launch on a host stream: one task in front of the launch and one behind it. On
 * GPUs there is nothing like it, because the host does not see when a stream comes to a launch.
 */
#ifndef GYRE_CALL_SPAN_H
#define GYRE_CALL_SPAN_H

#include "core/foundation/device/host_stream.h"

/* The first member of a struct of the user. The stream holds it until both tasks are gone. */
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

/** gyre_span_begin - a launch is about to be made on the stream. Returns false if the first task
 * cannot be enqueued; the caller still owns the span then. */
bool gyre_span_begin(struct gyre_span *span, const struct gyre_span_ops *ops, gyre_stream stream);

/** gyre_span_end - the launch has been made, or has failed. Gives the span up. Only after a
 * gyre_span_begin() that returned true. */
void gyre_span_end(struct gyre_span *span, bool is_launched, gyre_stream stream);

#endif
