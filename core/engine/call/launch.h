/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls that wait for the end of their group, and their launch.
 */
#ifndef GYRE_CALL_LAUNCH_H
#define GYRE_CALL_LAUNCH_H

#include "core/engine/call/caller.h"

struct gyre_pending {
    struct gyre_caller *caller; /* NULL: the communicator has ended in the meantime */
    const struct gyre_caller_ops *ops;
    struct gyre_call call;
    bool is_joined; /* a receive from this rank itself, which the matching send carries out */
    /* The fields below are for the launch. */
    size_t first;      /* index of the communicator's first call in the group */
    size_t next_first; /* of such a first call: that of the communicator that comes next in the
                        * group; 0 = none */
    size_t next_self; /* likewise: no receive from this rank itself before this index is unjoined */
};

/** gyre_launch_record - the record of a call whose window is known; the record's sequence
 * is 0. Inline: every call makes a record, and copying it out of a function took 8 ns. */
static inline struct gyre_record gyre_launch_record(const struct gyre_call *call)
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

/** gyre_launch_one - a call outside any group: plan, record and launch it. This thread holds
 * the communicator. Fills in the call's window.
 * Errors: those of the call; what other ranks are not refused alike ends the communicator. */
gyre_status gyre_launch_one(struct gyre_caller *caller, struct gyre_call *call);

/** gyre_launch_all - launch a group's calls, of any communicators, all by this thread: communicator
 * after communicator, in the order in which they were made. For each the collectives run in order,
 * and then the sends and receives, at the same time. Changes @calls: those of ended communicators
 * lose theirs.
 * Errors: the first; what the other communicators' ranks wait for is launched all the same. */
gyre_status gyre_launch_all(struct gyre_pending *calls, size_t n_calls);

#endif
