/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws what a round does: groups, and the calls of each.
 */
#ifndef GYRE_TESTS_FUZZ_SEQUENCE_H
#define GYRE_TESTS_FUZZ_SEQUENCE_H

#include "tests/fuzz/rank.h"

/** fuzz_draw_round - fill in the rank's groups and calls.
 * @rng: the same on all ranks.
 * @index: of the round's first call. Returns the index of the next round's first. */
long fuzz_draw_round(struct fuzz_rank *rank, struct fuzz_rng rng, long index);

#endif
