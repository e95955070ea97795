/* SPDX-License-Identifier: Apache-2.0
 *
 * Random calls through gyre.h alone, over several communicators that are split and destroyed
 * meanwhile. All ranks derive the same sequence from the seed; every byte of every buffer is
 * compared with what the fuzzer computed by itself. docs/testing.md says how to use it.
 */
#include "tests/fuzz/run.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const int status = fuzz_options_read(argc, argv);
    if (status >= 0)
        return status;
    if (fuzz_options.checks_calls)
        setenv("GYRE_CHECK", "calls", 1);
    else
        unsetenv("GYRE_CHECK");
    const int verdict = fuzz_ranks_run();
    if (verdict == FUZZ_RIGHT)
        printf("fuzz: %ld calls, %ld elements checked, 0 wrong (seed %ld, %ld ranks, %ld calls "
               "made by ranks, %ld communicators, %ld windows, %ld graphs)\n",
               fuzz_options.n_calls, atomic_load(&fuzz_shared->n_elems), fuzz_options.seed,
               fuzz_options.n_ranks, atomic_load(&fuzz_shared->n_rank_calls),
               atomic_load(&fuzz_shared->n_comms), atomic_load(&fuzz_shared->n_windows),
               atomic_load(&fuzz_shared->n_graphs));
    return verdict;
}
