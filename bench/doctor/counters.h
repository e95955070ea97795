/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters of RDMA ports before and after a load: which rose, and what that means. Only counters
 * whose meaning is known are read.
 */
#ifndef GYRE_BENCH_DOCTOR_COUNTERS_H
#define GYRE_BENCH_DOCTOR_COUNTERS_H

#include "bench/doctor/doctor.h"

#include <stdbool.h>
#include <stdint.h>

struct bench_counters;

/* A counter that rose. */
struct bench_rise {
    char
        name[128]; /* "mlx5_0:1 hw_counters/out_of_sequence", "mlx5_0:1 (ethtool) rx_prio3_pause" */
    int64_t n;
    bool is_loss; /* packets were lost, damaged or sent again; else flow control did its work */
    const char *meaning;
    char fix[BENCH_FIX_BYTES]; /* with the names of the port; "" if nothing is to be done */
};

/** bench_counters_read - the counters of all ports below a root, and of their interfaces. Freed by
 * bench_counters_free(); NULL if there is no memory. */
struct bench_counters *bench_counters_read(const char *root);

void bench_counters_free(struct bench_counters *counters);

/** bench_counters_n - how many were read. */
int bench_counters_n(const struct bench_counters *counters);

/** bench_counters_compare - the counters that are larger in `after`; losses first. A counter that
 * only one of the two has is left out. Returns their number, at most n_max. */
int bench_counters_compare(const struct bench_counters *before, const struct bench_counters *after,
                           struct bench_rise *rises_out, int n_max);

#endif
