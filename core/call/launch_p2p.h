/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends and receives of a group.
 */
#ifndef GYRE_CALL_LAUNCH_P2P_H
#define GYRE_CALL_LAUNCH_P2P_H

#include "core/call/launch.h"

/** gyre_launch_join_self - let the send of each rank to itself carry out the matching receive as
 * one local copy. Sets is_joined of the receives.
 * Errors: INVALID_USAGE (a send or a receive without its counterpart in the group). */
gyre_status gyre_launch_join_self(struct gyre_pending *calls, size_t n_calls);

/** gyre_launch_p2p - launch a run of point-to-point calls of one communicator in waves
 * (core/call/wave.h).
 * @run: n_run calls; its entries are overwritten. Errors: as gyre_launch_together(),
 * OUT_OF_MEMORY. */
gyre_status gyre_launch_p2p(struct gyre_caller *caller, const struct gyre_call **run, int n_run,
                            gyre_stream stream);

#endif
