/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends and receives of a group.
 */
#ifndef GYRE_CALL_LAUNCH_P2P_H
#define GYRE_CALL_LAUNCH_P2P_H

#include "core/engine/call/launch.h"

/** gyre_launch_join_self - let the send of each rank to itself carry out the matching receive as
 * one local copy. Sets is_joined of the receives.
 * Errors: INVALID_USAGE (a send or a receive without its counterpart in the group). */
gyre_status gyre_launch_join_self(struct gyre_pending *calls, size_t n_calls);

/** gyre_launch_p2p - launch the point-to-point calls of one communicator in a group. Where the
 * executor queues works, they are one launch, in which a call waits only for the earlier ones of
 * the same peer and direction. Elsewhere they are launched in waves (core/engine/call/wave.h).
 * @run: n_run > 0 calls; its entries are overwritten. Errors: as gyre_launch_together(),
 * OUT_OF_MEMORY. */
gyre_status gyre_launch_p2p(struct gyre_caller *caller, const struct gyre_call **run, int n_run,
                            gyre_stream stream);

#endif
