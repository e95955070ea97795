/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's communicators, and the calls of a round: what they are, where their buffers lie (one
 * after the other with guards between them, in windows at one place on all ranks), and what buffers
 * hold.
 */
#ifndef GYRE_TESTS_FUZZ_CALLS_H
#define GYRE_TESTS_FUZZ_CALLS_H

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

/** fuzz_draw_round - fill in the rank's groups and calls.
 * @rng: the same on all ranks.
 * @index: of the round's first call. Returns the index of the next round's first. */
long fuzz_draw_round(struct fuzz_rank *rank, struct fuzz_rng rng, long index);

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

/** fuzz_issue_open - create the operations that the round's calls need; close destroys them. */
void fuzz_issue_open(struct fuzz_rank *rank);
void fuzz_issue_close(struct fuzz_rank *rank);

/** fuzz_issue_round - make all calls of the round.
 * @pace: the rank's own: pauses, orders that make no difference. */
void fuzz_issue_round(struct fuzz_rank *rank, struct fuzz_rng *pace);

/** fuzz_issue_wait - wait for all streams; no communicator may have failed. */
void fuzz_issue_wait(struct fuzz_rank *rank, struct fuzz_rng *pace);

/** fuzz_issue_pause - now and then, yield or sleep, so that ranks drift apart. */
void fuzz_issue_pause(struct fuzz_rng *pace);

/** fuzz_check_prepare - write the call's buffers and their guards to the device. */
void fuzz_check_prepare(struct fuzz_rank *rank, const struct fuzz_call *call);

/** fuzz_check_compare - read the call's buffers back; the run fails unless every byte of the
 * receive buffer, of the send buffer and of the guards is as it must be. */
void fuzz_check_compare(struct fuzz_rank *rank, const struct fuzz_call *call);

/** fuzz_check_own_part - of an in-place buffer that holds a block for each rank: the element where
 * this rank's block begins; else 0. */
size_t fuzz_check_own_part(const struct fuzz_call *call);

/** fuzz_check_sends_all - is the in-place buffer's base the send buffer (reduce-scatter, scatter)?
 */
bool fuzz_check_sends_all(const struct fuzz_call *call);

#endif
