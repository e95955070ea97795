/* SPDX-License-Identifier: Apache-2.0
 *
 * How the processes of a run gather a few bytes (the unique id, times, error counts): over MPI,
 * over connections to process 0, or not at all, for one process alone.
 */
#ifndef GYRE_BENCH_LAUNCHER_H
#define GYRE_BENCH_LAUNCHER_H

#include "core/foundation/base/status.h"

struct bench_launcher_ops;

struct bench_launcher {
    const struct bench_launcher_ops *ops;
    int process; /* index of this process in the run */
    int n_processes;
    int local_process;     /* index of this process among those of its host */
    int n_local_processes; /* number of processes on its host */
    gyre_launch launch;    /* what the launcher's variables say (bootstrap/launch.h) */
    void *state;           /* owned by the launcher's operations */
};

struct bench_launcher_ops {
    const char *name;
    /* Joins the other processes and fills in process, n_processes and state. It has a deadline:
     * GYRE_BOOTSTRAP_TIMEOUT. */
    gyre_status (*open)(struct bench_launcher *launcher);
    /* Gathers n_bytes from each process. all_out holds n_processes * n_bytes, ordered by process.
     * The call is also a barrier. Only the main thread may call it. */
    gyre_status (*all_gather)(struct bench_launcher *launcher, const void *mine, size_t n_bytes,
                              void *all_out);
    void (*close)(struct bench_launcher *launcher);
};

extern const struct bench_launcher_ops bench_launcher_alone;
extern const struct bench_launcher_ops bench_launcher_meet; /* process 0 listens at an address */
#ifdef GYRE_BENCH_WITH_MPI
extern const struct bench_launcher_ops bench_launcher_mpi;
#endif

/** bench_launcher_detect - which launcher started this process, by its environment.
 * Errors: those of gyre_launch_find(). */
gyre_status bench_launcher_detect(char *const *environment, gyre_launch *launch_out,
                                  const struct bench_launcher_ops **ops_out);

/** bench_launcher_open - detect the launcher, join the other processes, and find this one's index
 * on its host. Close it with ops->close(). */
gyre_status bench_launcher_open(struct bench_launcher *launcher_out);

#endif
