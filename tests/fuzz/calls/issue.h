/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a round's calls, and waits for them.
 */
#ifndef GYRE_TESTS_FUZZ_ISSUE_H
#define GYRE_TESTS_FUZZ_ISSUE_H

#include "tests/fuzz/rank.h"

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

#endif
