/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's communicators, and a round's calls. Their buffers lie one after the other with guards
 * between them, in windows at one place on all ranks.
 */
#ifndef GYRE_TESTS_FUZZ_CALLS_H
#define GYRE_TESTS_FUZZ_CALLS_H

#include "tests/fuzz/rank.h"

/** All but the rank's device is undefined. */
gyre_config fuzz_comms_config(const struct fuzz_rank *rank);

/** @made: the world communicator if it is made already, else NULL. */
void fuzz_comms_open(struct fuzz_rank *rank, gyre_comm *made);

/** Split, shrink, destroy or make anew one of them. @rng: the same on all ranks. */
void fuzz_comms_change(struct fuzz_rank *rank, struct fuzz_rng *rng);

/** Destroy them all. */
void fuzz_comms_close(struct fuzz_rank *rank);

/** @rng: the same on all ranks. @index: of the round's first call. Returns the index of the next
 * round's first. */
long fuzz_draw_round(struct fuzz_rank *rank, struct fuzz_rng rng, long index);

/** Allocate the rank's memory. */
void fuzz_place_open(struct fuzz_rank *rank);
void fuzz_place_close(struct fuzz_rank *rank);

/** All memory is free. */
void fuzz_place_nothing(struct fuzz_rank *rank);

/** @rng: the same on all ranks of the call's communicator. */
void fuzz_place(struct fuzz_rank *rank, struct fuzz_call *call, struct fuzz_rng *rng);

/** Registered by all communicators as a window. */
uint8_t *fuzz_place_window(const struct fuzz_rank *rank, size_t *n_bytes_out);

/** Create the operations that the round's calls need. */
void fuzz_issue_open(struct fuzz_rank *rank);
void fuzz_issue_close(struct fuzz_rank *rank);

/** @pace: the rank's own: pauses, orders that make no difference. */
void fuzz_issue_round(struct fuzz_rank *rank, struct fuzz_rng *pace);

/** For all streams; no communicator may have failed. */
void fuzz_issue_wait(struct fuzz_rank *rank, struct fuzz_rng *pace);

void fuzz_check_prepare(struct fuzz_rank *rank, const struct fuzz_call *call);

/** The run fails unless every byte of the call's buffers and guards is as it must be. */
void fuzz_check_compare(struct fuzz_rank *rank, const struct fuzz_call *call);

/** The element where this rank's block begins in an in-place buffer that holds a block for each
 * rank; else 0. */
size_t fuzz_check_own_part(const struct fuzz_call *call);

/** The in-place buffer's base is the send buffer (reduce-scatter, scatter). */
bool fuzz_check_sends_all(const struct fuzz_call *call);

#endif
