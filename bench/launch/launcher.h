/* SPDX-License-Identifier: Apache-2.0
 *
 * How a run's processes gather a few bytes: over MPI, over connections to process 0, or not at all.
 */
#ifndef GYRE_BENCH_LAUNCHER_H
#define GYRE_BENCH_LAUNCHER_H

#include "core/foundation/base/status.h"

struct bench_launcher_ops;

struct bench_launcher {
    const struct bench_launcher_ops *ops;
    int process;
    int n_processes;
    int local_process;
    int n_local_processes;
    gyre_launch launch;
    void *state;
};

struct bench_launcher_ops {
    const char *name;
    /* Sets process, n_processes and state. Deadline: GYRE_BOOTSTRAP_TIMEOUT. */
    gyre_status (*open)(struct bench_launcher *launcher);
    /* Gathers n_bytes from each process, by process. Also a barrier. Main thread only. */
    gyre_status (*all_gather)(struct bench_launcher *launcher, const void *mine, size_t n_bytes,
                              void *all_out);
    void (*close)(struct bench_launcher *launcher);
};

extern const struct bench_launcher_ops bench_launcher_alone;
extern const struct bench_launcher_ops bench_launcher_meet; /* process 0 listens */
#ifdef GYRE_BENCH_WITH_MPI
extern const struct bench_launcher_ops bench_launcher_mpi;
#endif

/** Errors: as gyre_launch_find(). */
gyre_status bench_launcher_detect(char *const *environment, gyre_launch *launch_out,
                                  const struct bench_launcher_ops **ops_out);

/** Joins the other processes. Closed by ops->close(). */
gyre_status bench_launcher_open(struct bench_launcher *launcher_out);

#endif
