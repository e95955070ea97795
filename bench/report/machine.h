/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's GPU in reports. On host memory, without CUDA and without NVML it is unknown.
 */
#ifndef GYRE_BENCH_MACHINE_H
#define GYRE_BENCH_MACHINE_H

#include "bench/driver/rank.h"

struct gyre_nvml_clocks;

struct bench_machine {
    unsigned n_sms;        /* 0 = no GPU */
    char cuda_driver[16];  /* the newest that the driver supports, as "13.0"; "" = unknown */
    char cuda_runtime[16]; /* of the runtime */
    struct gyre_nvml_clocks *clocks; /* NULL = unknown */
};

struct bench_clocks {
    unsigned sm_mhz; /* 0 = unknown */
    unsigned memory_mhz;
};

void bench_machine_open(const struct bench_rank *rank, struct bench_machine *machine_out);
void bench_machine_close(struct bench_machine *machine);

/** bench_machine_clocks - the lowest clocks over the ranks now, because the slowest GPU sets the
 * pace; unknown if they are so on any rank. Collective; all ranks get the same result. */
gyre_status bench_machine_clocks(struct bench_rank *rank, const struct bench_machine *machine,
                                 struct bench_clocks *clocks_out);

#endif
