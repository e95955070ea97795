/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector clocks over all workers: what each worker knows the others to have done, through data that
 * it received. Credits carry no knowledge here, so that what is proved holds at any depth. A
 * message carries a snapshot, shared by all slots that one step fills.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_CLOCKS_H
#define GYRE_ALGORITHMS_VERIFY_CLOCKS_H

#include "core/gyre.h"

#define GYRE_NO_SNAPSHOT 0U

struct gyre_clocks;

/** gyre_clocks_open - all zero. Errors: OUT_OF_MEMORY. */
gyre_status gyre_clocks_open(uint32_t n_workers, struct gyre_clocks **clocks_out);
void gyre_clocks_close(struct gyre_clocks *clocks);

/** gyre_clocks_of - the worker's own clock, n_workers entries. */
uint32_t *gyre_clocks_of(struct gyre_clocks *clocks, uint32_t worker);

/** gyre_clocks_snapshot - keep a copy of `times` until it was released `n_readers` times. Returns
 * GYRE_NO_SNAPSHOT without memory. */
uint32_t gyre_clocks_snapshot(struct gyre_clocks *clocks, const uint32_t *times,
                              uint32_t n_readers);

/** gyre_clocks_receive - learn what a snapshot knows into `times`. */
void gyre_clocks_receive(const struct gyre_clocks *clocks, uint32_t snapshot, uint32_t *times);

void gyre_clocks_release(struct gyre_clocks *clocks, uint32_t snapshot);

#endif
