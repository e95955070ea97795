/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's communicators: made, split, shrunk, made anew and destroyed, blocking and not.
 */
#ifndef GYRE_TESTS_FUZZ_COMMS_H
#define GYRE_TESTS_FUZZ_COMMS_H

#include "tests/fuzz/rank.h"

/** fuzz_comms_config - a configuration for the rank's device, all else undefined. */
gyre_config fuzz_comms_config(const struct fuzz_rank *rank);

/** fuzz_comms_open - make the world communicator.
 * @made: where it is made already, else NULL. */
void fuzz_comms_open(struct fuzz_rank *rank, gyre_comm *made);

/** fuzz_comms_change - split, shrink, destroy or make anew one of them.
 * @rng: the same on all ranks. */
void fuzz_comms_change(struct fuzz_rank *rank, struct fuzz_rng *rng);

/** fuzz_comms_close - destroy them all. */
void fuzz_comms_close(struct fuzz_rank *rank);

#endif
