/* SPDX-License-Identifier: Apache-2.0
 *
 * Where in a rank's memory the buffers of a call lie: one after the other, with guards between
 * them, aligned to the element only. Windows have parts of their own, one for each slot's
 * communicators, where all ranks put a call's receive buffer at the same place.
 */
#ifndef GYRE_TESTS_FUZZ_PLACE_H
#define GYRE_TESTS_FUZZ_PLACE_H

#include "tests/fuzz/rank.h"

/** fuzz_place_open - allocate the rank's memory. */
void fuzz_place_open(struct fuzz_rank *rank);
void fuzz_place_close(struct fuzz_rank *rank);

/** fuzz_place_nothing - a new round begins: all memory is free. */
void fuzz_place_nothing(struct fuzz_rank *rank);

/** fuzz_place - find room for the call's buffers.
 * @rng: the same on all ranks of the call's communicator. */
void fuzz_place(struct fuzz_rank *rank, struct fuzz_call *call, struct fuzz_rng *rng);

/** The memory that all communicators register as a window. */
uint8_t *fuzz_place_window(const struct fuzz_rank *rank, size_t *n_bytes_out);

#endif
