/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes of a run and how they were started: by mpirun, by torchrun's variables, or one
 * process alone. A world can gather a few bytes of every process; that carries the unique id, the
 * times and the error counts, never the data that is measured.
 */
#ifndef GYRE_BENCH_LAUNCHER_H
#define GYRE_BENCH_LAUNCHER_H

#include "core/base/status.h"

struct bench_launcher_ops;

struct bench_launcher {
    const struct bench_launcher_ops *ops;
    int process;
    int n_processes;
    int local_process;     /* index among the processes of this host */
    int n_local_processes; /* of this host */
    void *state;           /* the launcher's */
};

struct bench_launcher_ops {
    const char *name;
    /* Fills process, n_processes and state. Ends by a deadline. */
    gyre_status (*open)(struct bench_launcher *launcher);
    /* all_out: n_processes * n_bytes, by process. Also a barrier. Main thread only. */
    gyre_status (*all_gather)(struct bench_launcher *launcher, const void *mine, size_t n_bytes,
                              void *all_out);
    void (*close)(struct bench_launcher *launcher);
};

extern const struct bench_launcher_ops bench_launcher_alone;
extern const struct bench_launcher_ops bench_launcher_torchrun; /* RANK, WORLD_SIZE, MASTER_* */
#ifdef GYRE_BENCH_WITH_MPI
extern const struct bench_launcher_ops bench_launcher_mpi;
#endif

/** bench_launcher_detect - which launcher started this process, from its environment.
 * @lookup: getenv, or a test's.
 * Errors: UNSUPPORTED with the fix when a launcher started several processes that this build cannot
 * join, rather than running as many lonely copies; INVALID_ARGUMENT for half a torchrun
 * environment. */
gyre_status bench_launcher_detect(char *(*lookup)(const char *name),
                                  const struct bench_launcher_ops **ops_out);

/** bench_launcher_open - detect, join, and find this process's place on its host. */
gyre_status bench_launcher_open(struct bench_launcher *launcher_out);

#endif
