/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector clocks: for each worker, how far every other worker certainly is. A worker learns this
 * only from data that it receives. Credits are ignored, so that a proof holds at any depth. A
 * message carries a snapshot of the sender's clock; all slots that one step fills share the
 * snapshot.
 *
 * A time counts the steps of a worker in all tiles, where steps that may run at the same time count
 * once.
 *
 * Copying and comparing clocks would take most of the time of a proof, so both are avoided. A
 * worker that learned nothing new, or only what one other worker knows, takes a snapshot that
 * refers to an earlier one (snapshots.h). A worker first only lists the snapshots that it receives
 * (struct pending in clocks.c), and adds them to its clock when its own clock is asked for. By then
 * the list is long in all-pairs programs, and nearly the same for all ranks, so the maximum of a
 * part of it is often known from another rank (joins.h). Times are stored in 16 bits where that is
 * enough.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_CLOCKS_H
#define GYRE_ALGORITHMS_VERIFY_CLOCKS_H

#include "algorithms/verify/network.h"
#include "algorithms/verify/snapshots.h"

struct gyre_clocks;

/* What one step knows: what its worker knew before, and the snapshots that the step received. The
 * snapshots are kept apart if other steps of the worker may run at the same time, because these do
 * not learn of them. */
struct gyre_view {
    uint32_t worker;
    int32_t time;  /* of the step */
    bool is_apart; /* keep the snapshots apart */
    uint32_t n_snapshots;
    uint32_t snapshots[GYRE_STEP_MAX_INS];
};

/** gyre_clocks_open - make one clock for each worker, all zero. A worker that never sends has no
 * entry in the clocks of other workers, because none of them can ever know how far it is.
 * @network: its FIFOs say which workers send.
 * @max_time: no clock will show more than this.
 * Errors: OUT_OF_MEMORY. */
gyre_status gyre_clocks_open(const struct gyre_network *network, uint64_t max_time,
                             struct gyre_clocks **clocks_out);
void gyre_clocks_close(struct gyre_clocks *clocks);

/** gyre_clocks_own_time - the time of a worker in its own clock. */
int32_t gyre_clocks_own_time(const struct gyre_clocks *clocks, uint32_t worker);

/** gyre_clocks_set_time - set the time of a worker in its own clock. */
void gyre_clocks_set_time(struct gyre_clocks *clocks, uint32_t worker, int32_t time);

/** gyre_clocks_receive - the step with this view receives a snapshot and is one of its readers. The
 * snapshot is released when it is no longer needed. Returns false when there is no memory. */
bool gyre_clocks_receive(struct gyre_clocks *clocks, struct gyre_view *view, uint32_t snapshot);

/** gyre_clocks_learn - a worker has carried out all steps that may run at the same time, and now
 * knows what they received. Call it before another worker receives. */
bool gyre_clocks_learn(struct gyre_clocks *clocks, uint32_t worker);

/** gyre_view_is_after - does the step come after everything that a worker did up to `time`? */
bool gyre_view_is_after(struct gyre_clocks *clocks, const struct gyre_view *view, uint32_t worker,
                        int32_t time);

/** gyre_clocks_snapshot - keep a copy of what a step knows until it has been released `n_readers`
 * times. Returns GYRE_NO_SNAPSHOT when there is no memory. */
uint32_t gyre_clocks_snapshot(struct gyre_clocks *clocks, const struct gyre_view *view,
                              uint32_t n_readers);

/** gyre_clocks_share - let a snapshot have more readers. It has not been released by all yet. */
void gyre_clocks_share(struct gyre_clocks *clocks, uint32_t snapshot, uint32_t n_more);

/** gyre_clocks_release - one reader of the snapshot is done. */
void gyre_clocks_release(struct gyre_clocks *clocks, uint32_t snapshot);

#endif
