/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the ranks, as threads of this process or as processes.
 */
#ifndef GYRE_TESTS_FUZZ_RANKS_H
#define GYRE_TESTS_FUZZ_RANKS_H

/** fuzz_ranks_run - run them all. Returns the status to exit with. */
int fuzz_ranks_run(void);

#endif
