/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stand-in for a real NCCL was asked.
 */
#ifndef GYRE_TESTS_FAKE_NCCL_H
#define GYRE_TESTS_FAKE_NCCL_H

#include "core/nccl/nccl.h"

struct fake_nccl_counts {
    int n_ids;
    int n_inits;
    int n_destroyed;
    int n_aborted;
    int n_windows;
    int n_windows_gone;
    int n_registered;
    int n_registered_gone;
    int n_allocated;
    int n_freed;
    int window_flags;      /* of the last window */
    size_t n_window_bytes; /* of the last window */
    int fails;             /* set by the test: ncclGetUniqueId and ncclMemAlloc fail */
    int makes_no_windows;  /* set by the test: registering succeeds without a window */
};

extern struct fake_nccl_counts fake_nccl_counts;

#endif
