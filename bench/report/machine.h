/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's GPU. Unknown on host memory, without CUDA and without NVML.
 */
#ifndef GYRE_BENCH_MACHINE_H
#define GYRE_BENCH_MACHINE_H

#include "bench/driver/rank.h"

struct gyre_nvml_clocks;

struct bench_machine {
    unsigned n_sms;       /* 0 = no GPU */
    char cuda_driver[16]; /* the driver's newest, "13.0", "" = unknown */
    char cuda_runtime[16];
    struct gyre_nvml_clocks *clocks; /* NULL = unknown */
};

struct bench_clocks {
    unsigned sm_mhz; /* 0 = unknown */
    unsigned memory_mhz;
};

void bench_machine_open(const struct bench_rank *rank, struct bench_machine *machine_out);
void bench_machine_close(struct bench_machine *machine);

/** The lowest clocks over the ranks, as the slowest GPU sets the pace. Unknown if they are so on
 * any rank. Collective, with one result on all ranks. */
gyre_status bench_machine_clocks(struct bench_rank *rank, const struct bench_machine *machine,
                                 struct bench_clocks *clocks_out);

#endif
