/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells an observer (gyre_comm_observe) of each call of a rank, stage by stage.
 */
#ifndef GYRE_CALL_OBSERVE_H
#define GYRE_CALL_OBSERVE_H

#include "core/engine/plan/plan.h"

struct gyre_item;
struct gyre_observing;
struct gyre_observed_launch;

/** gyre_observing_open - @observer: copied.
 * @executor: NULL: streams are host streams, and their tasks tell when a call begins and ends. Else
 * the executor is asked for that after the call's end. It outlives the last gyre_observe_times().
 * Errors: OUT_OF_MEMORY. */
gyre_status gyre_observing_open(const gyre_observer *observer, struct gyre_executor *executor,
                                struct gyre_observing **observing_out);

/** gyre_observe_times - tell the observer of calls that have ended since, where an executor is
 * asked for their times. @observing: or NULL. */
void gyre_observe_times(struct gyre_observing *observing);

/** gyre_observing_close - the communicator has ended. The observer is closed once all of its calls
 * are finished. @observing: or NULL. */
void gyre_observing_close(struct gyre_observing *observing);

/** gyre_observe_submitted - the call was accepted. Sets call->observed, which the thread that
 * submits the call holds until gyre_observed_release(). If there is no memory, the call is not
 * observed. @observing: or NULL. */
void gyre_observe_submitted(struct gyre_observing *observing, struct gyre_call *call);

/** gyre_observed_release - the call has been launched, or never will be. @observed: or NULL. */
void gyre_observed_release(struct gyre_observed *observed);

/** gyre_observe_launching - calls with their plans are about to be launched together on the stream.
 * Returns NULL if none of them is observed. */
struct gyre_observed_launch *gyre_observe_launching(struct gyre_item *const *items, int n_items,
                                                    gyre_stream stream);

/** gyre_observe_launched - the launch has been made, or has failed. @launch: or NULL. */
void gyre_observe_launched(struct gyre_observed_launch *launch, bool is_launched,
                           gyre_stream stream);

#endif
