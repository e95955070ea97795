/* SPDX-License-Identifier: Apache-2.0
 *
 * The caller: what launching the calls of one communicator on this rank needs. core/comm makes it,
 * and fills in what callers must ask of the folders above this one.
 */
#ifndef GYRE_CALL_CALLER_H
#define GYRE_CALL_CALLER_H

#include "core/call/record.h"
#include "core/links/links.h"
#include "core/plan/plan.h"

struct gyre_caller;

/* What core/comm and core/health do for callers. */
struct gyre_caller_ops {
    /* The caller becomes this thread's for launching; it may have been freed since the call was
     * taken. Errors: INVALID_USAGE (destroyed, finalized, another thread's), or what the
     * communicator failed with. */
    gyre_status (*begin)(struct gyre_caller *caller);
    void (*end)(struct gyre_caller *caller);
    /* This rank cannot take part in what the other ranks wait for: the communicator ends on all
     * ranks with `status` and the thread's cause, which are returned. */
    gyre_status (*give_up)(struct gyre_caller *caller, gyre_status status);
    /* Wait until the communicator is busy with nothing in the background. */
    void (*wait_ready)(struct gyre_caller *caller);
    /* On the host: the next launch goes to this stream, which is not that of the latest launch.
     * Returns another rank of the communicator in this process whose launch on the stream is not
     * finished, and then changes nothing; -1: there is none. */
    int (*take_stream)(struct gyre_caller *caller, gyre_stream stream);
    /* Every other rank finds by itself the failure that this rank is about to raise, in the same
     * words: it is not passed on. */
    void (*expect_alike)(struct gyre_caller *caller);
    /* A call was posted: compare it with what other ranks asked about. */
    void (*posted)(struct gyre_caller *caller, const struct gyre_record *record);
};

struct gyre_caller {
    const struct gyre_caller_ops *ops;
    struct gyre_member *member;
    const struct gyre_links *links;
    const struct gyre_windows *windows;
    struct gyre_plan_cache *plans;
    struct gyre_executor *executor;
    struct gyre_call_log call_log;
    uint64_t *n_p2p;       /* by peer * 2 + is_send: messages so far */
    uint64_t stream;       /* host: address of the stream of this rank's latest launch, 0 = none.
                            * Set under the registry's lock; the caller reads it without */
    uint64_t stream_works; /* n_launched behind that launch; one writer: the caller; release */
};

#endif
