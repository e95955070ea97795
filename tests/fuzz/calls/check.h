/* SPDX-License-Identifier: Apache-2.0
 *
 * What buffers must hold before and after a call, guards included.
 */
#ifndef GYRE_TESTS_FUZZ_CHECK_H
#define GYRE_TESTS_FUZZ_CHECK_H

#include "tests/fuzz/rank.h"

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
