/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides the sends and receives of a group into waves, and a wave into launches. The calls of a
 * launch run at the same time, and a launch begins when the one before it has ended. Pure.
 */
#ifndef GYRE_CALL_WAVE_H
#define GYRE_CALL_WAVE_H

#include "core/engine/plan/call.h"

/* A call of a wave. */
struct gyre_wave_call {
    const struct gyre_call *call;
    enum gyre_proto proto; /* both ends of a message choose the same */
};

/** gyre_wave_take - take the next wave out of a run of point-to-point calls: the first call of each
 * peer and direction. Both ends count their calls alike, so wave k of one rank fits wave k of the
 * other.
 * @run: *n_run calls. Those that are left move to the front, and *n_run becomes their number.
 * @is_busy: room for 2 * n_ranks flags. @wave: room for *n_run calls; the protocols are not set.
 * Returns how many calls the wave has. */
int gyre_wave_take(const struct gyre_call **run, int *n_run, bool *is_busy, int n_ranks,
                   struct gyre_wave_call *wave);

/* The rank whose wave it is. */
struct gyre_wave_place {
    int rank;
    int n_ranks;
    uint32_t most_calls; /* of one launch: each takes a multiprocessor at least. 0 = any number */
};

/** gyre_wave_launches - divide a wave into launches. All calls with other ranks are one launch,
 * whatever their protocols: each of them may wait for any other one by way of the other ranks. The
 * sends come first. This rank's copy to itself waits for nobody, so it may be a launch of its own.
 *
 * With more ranks than one launch can serve, messages that go about as far (from rank r to rank r +
 * k) are one launch, the nearest first. Both ends count alike, so groups of all ranks complete. But
 * a call in the group may then wait for another one.
 * @calls: room for n_wave calls; gets all of them, launch by launch.
 * @ends: room for n_wave numbers; launch i ends before calls[ends[i]].
 * Returns how many launches there are. */
int gyre_wave_launches(const struct gyre_wave_call *wave, int n_wave,
                       const struct gyre_wave_place *place, const struct gyre_call **calls,
                       int *ends);

#endif
