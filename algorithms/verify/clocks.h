/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector clocks: for each worker, how far every other worker certainly is. A worker learns this
 * only from data that it receives. Credits are ignored, so that a proof holds at any depth. A
 * message carries a snapshot of the sender's clock; all slots that one step fills share the
 * snapshot.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_CLOCKS_H
#define GYRE_ALGORITHMS_VERIFY_CLOCKS_H

#include "core/gyre.h"

#define GYRE_NO_SNAPSHOT 0U

struct gyre_clocks;

/** gyre_clocks_open - make one clock for each worker, all zero. Errors: OUT_OF_MEMORY. */
gyre_status gyre_clocks_open(uint32_t n_workers, struct gyre_clocks **clocks_out);
void gyre_clocks_close(struct gyre_clocks *clocks);

/** gyre_clocks_of - the clock of a worker, n_workers entries. */
uint32_t *gyre_clocks_of(struct gyre_clocks *clocks, uint32_t worker);

/** gyre_clocks_snapshot - keep a copy of `times` until it has been released `n_readers` times.
 * Returns GYRE_NO_SNAPSHOT when there is no memory. */
uint32_t gyre_clocks_snapshot(struct gyre_clocks *clocks, const uint32_t *times,
                              uint32_t n_readers);

/** gyre_clocks_receive - raise each entry of `times` to the snapshot's, if that is greater. */
void gyre_clocks_receive(const struct gyre_clocks *clocks, uint32_t snapshot, uint32_t *times);

/** gyre_clocks_release - one reader of the snapshot is done. */
void gyre_clocks_release(struct gyre_clocks *clocks, uint32_t snapshot);

#endif
