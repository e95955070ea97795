/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that all ranks share, whether they are threads or processes: ids of communicators, what
 * was counted, when each rank last went on, and who reports a failure.
 */
#ifndef GYRE_TESTS_FUZZ_SHARED_H
#define GYRE_TESTS_FUZZ_SHARED_H

#include "core/gyre.h"
#include "tests/fuzz/options.h"

#include <stdatomic.h>

struct fuzz_shared {
    /* World communicator number i, from 1 on, is made with ids[i % 2]; its rank 0 writes n_ids = i
     * once the id is there. No rank still reads ids[i % 2] when number i + 2 overwrites it: all
     * ranks have joined number i + 1 then. */
    gyre_unique_id ids[2];
    atomic_long n_ids;
    /* By rank of the job: when the rank last made progress, in CLOCK_MONOTONIC; 0 = it has not
     * begun, or is done. */
    _Atomic uint64_t progress_ns[FUZZ_MAX_RANKS];
    /* The status of the first failure: its finder reports it in full. */
    atomic_int verdict;
    /* At a hang, processes print one after the other. */
    atomic_int is_printing, n_printed, n_running;
    atomic_int n_done; /* ranks that have destroyed all their communicators */
    atomic_long n_elems, n_rank_calls, n_comms, n_windows, n_graphs;
};
extern struct fuzz_shared *fuzz_shared;

/** fuzz_now_ns - CLOCK_MONOTONIC. */
uint64_t fuzz_now_ns(void);

#endif
