/* SPDX-License-Identifier: Apache-2.0
 *
 * What reports tell about the rank's GPU: its multiprocessors, its clocks by NVML, and the versions
 * of CUDA. On host memory, and where nobody can tell, everything is unknown.
 */
#ifndef GYRE_BENCH_MACHINE_H
#define GYRE_BENCH_MACHINE_H

#include "bench/driver/rank.h"

struct gyre_nvml_clocks;

struct bench_machine {
    unsigned n_sms;        /* 0 = no GPU */
    char cuda_driver[16];  /* the newest CUDA that the driver can do, "13.0"; "" = unknown */
    char cuda_runtime[16]; /* that is linked in */
    struct gyre_nvml_clocks *clocks; /* NULL = unknown */
};

struct bench_clocks {
    unsigned sm_mhz; /* 0 = unknown */
    unsigned memory_mhz;
};

/** bench_machine_open - what is not known is left out, without an error. */
void bench_machine_open(const struct bench_rank *rank, struct bench_machine *machine_out);
void bench_machine_close(struct bench_machine *machine);

/** bench_machine_clocks - now, the lowest over the ranks: the slowest GPU sets the pace. Unknown if
 * it is for any rank. Collective; the result is the same on all ranks. */
gyre_status bench_machine_clocks(struct bench_rank *rank, const struct bench_machine *machine,
                                 struct bench_clocks *clocks_out);

#endif
