/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that wait for the end of their group, and launching them.
 */
#ifndef GYRE_COMM_LAUNCH_H
#define GYRE_COMM_LAUNCH_H

#include "core/comm/comm.h"

struct gyre_pending {
    gyre_comm *comm; /* NULL: it has ended since */
    struct gyre_call call;
    bool is_joined; /* a receive from oneself: the send carries it out */
};

/** gyre_launch_one - a call outside any group: plan, record and launch it. This thread is attached
 * to the communicator.
 * Errors: those of the call; what other ranks are not refused alike ends the communicator. */
gyre_status gyre_launch_one(gyre_comm *comm, const struct gyre_call *call);

/** gyre_launch_all - launch a group's calls, of any communicators. For each these keep their order
 * but for point-to-point calls side by side, which run at the same time. Changes @calls: those of
 * ended communicators lose theirs.
 * Errors: the first; what the other communicators' ranks wait for is launched all the same. */
gyre_status gyre_launch_all(struct gyre_pending *calls, size_t n_calls);

#endif
